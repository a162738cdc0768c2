"""Gemini's Batch API: https://ai.google.dev/gemini-api/docs/batch-api."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.service import HttpService

_ENDED = {"SUCCEEDED": "completed", "FAILED": "failed", "CANCELLED": "cancelled", "EXPIRED": "expired"}
_UPLOAD = {"x-goog-upload-protocol": "resumable", "x-goog-upload-command": "start"}
_PAGE = 100


class GeminiService(HttpService):
    """The service at an address such as https://generativelanguage.googleapis.com."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, {"x-goog-api-key": key})

    def upload(self, path: Path) -> str:
        """Upload a batch file, and return its name, such as files/abc."""
        size, kind = str(path.stat().st_size), "application/jsonl"
        start = {**_UPLOAD, "x-goog-upload-header-content-length": size, "x-goog-upload-header-content-type": kind}
        body = b'{"file": {}}'
        with self._answer(
            f"{self._url}/upload/v1beta/files", {**start, "content-type": "application/json"}, body
        ) as told:
            address = str(told.headers.get("x-goog-upload-url"))
        if not address.startswith(f"{self._url}/"):
            raise InvalidInput(f"files must be uploaded to {self._url}, and it names {address!r:.200}", value=address)
        headers = {"x-goog-upload-offset": "0", "x-goog-upload-command": "upload, finalize", "content-type": kind}
        return str(self._send(address, path, headers)["file"]["name"])

    def create(self, file_id: str, path: Path, model: str, mark: str) -> Mapping[str, Any]:
        """Create a batch, whose name for display is its mark."""
        batch = {"display_name": mark, "input_config": {"file_name": file_id}}
        return _as_openai(self._post(f"/v1beta/models/{model}:batchGenerateContent", {"batch": batch}))

    def find(self, path: Path, mark: str) -> Mapping[str, Any] | None:
        """Return the batch of a mark, or None."""
        token: str | None = None
        while True:
            page = self._get("/v1beta/batches", {"pageSize": _PAGE, "pageToken": token})
            for operation in page.get("operations", ()):
                if (operation.get("metadata") or {}).get("displayName") == mark:
                    return _as_openai(operation)
            token = page.get("nextPageToken")
            if not token:
                return None

    def batch(self, batch_id: str) -> Mapping[str, Any]:
        """Return a batch as it stands."""
        return _as_openai(self._get(f"/v1beta/{batch_id}"))

    def download(self, file_id: str, path: Path) -> None:
        """Write a file of results."""
        self._write(f"/download/v1beta/{file_id}:download?alt=media", path)


def _as_openai(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operation of a batch with the fields of one of OpenAI's batches.

    Examples
    --------
    >>> _as_openai({"name": "batches/1", "metadata": {"state": "BATCH_STATE_RUNNING"}})
    {'id': 'batches/1', 'status': 'running'}
    >>> _as_openai({"name": "batches/1", "metadata": {"state": "BATCH_STATE_FAILED"}, "error": {"message": "bad"}})
    {'id': 'batches/1', 'status': 'failed', 'errors': {'data': [{'message': 'bad'}]}}
    """
    metadata = operation.get("metadata") or {}
    state = str(metadata.get("state", "")).rpartition("STATE_")[2]
    found = {"id": operation["name"], "status": _ENDED.get(state, state.lower() or "pending")}
    output = (operation.get("response") or {}).get("responsesFile") or (metadata.get("output") or {}).get(
        "responsesFile"
    )
    error = operation.get("error")
    return {
        **found,
        **({"output_file_id": output} if output else {}),
        **({"errors": {"data": [{"message": error.get("message")}]}} if error else {}),
    }
