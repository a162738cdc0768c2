"""A batch service with OpenAI's routes: https://platform.openai.com/docs/api-reference/batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wiserouter.integration.batches.requests import CHAT_URL
from wiserouter.integration.batches.service import HttpService
from wiserouter.stores.ids import fresh_id

MARK = "wiserouter"
"""The key of a batch's metadata that tells which file it was made of."""

_PAGE = 100


class OpenAIService(HttpService):
    """A service with OpenAI's routes, at an address such as https://api.openai.com/v1."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, {"authorization": f"Bearer {key}"})

    def upload(self, path: Path) -> str:
        """Upload a batch file, and return its id."""
        limit = fresh_id()
        head = (
            f'--{limit}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{limit}\r\ncontent-disposition: form-data; name="file"; filename="{path.name}"\r\n'
            f"content-type: application/jsonl\r\n\r\n"
        ).encode()
        headers = {"content-type": f"multipart/form-data; boundary={limit}"}
        return str(self._send(f"{self._url}/files", path, headers, head, f"\r\n--{limit}--\r\n".encode())["id"])

    def create(self, file_id: str, path: Path, model: str, mark: str) -> Mapping[str, Any]:
        """Create a batch, whose metadata holds its mark."""
        terms = {"input_file_id": file_id, "endpoint": CHAT_URL, "completion_window": "24h"}
        return self._post("/batches", {**terms, "metadata": {MARK: mark}})

    def find(self, path: Path, mark: str) -> Mapping[str, Any] | None:
        """Return the batch of a mark, or None."""
        after: str | None = None
        while True:
            page = self._get("/batches", {"limit": _PAGE, "after": after})
            for batch in page["data"]:
                if (batch.get("metadata") or {}).get(MARK) == mark:
                    return dict(batch)
            if not page.get("has_more") or not page["data"]:
                return None
            after = page["data"][-1]["id"]

    def batch(self, batch_id: str) -> Mapping[str, Any]:
        """Return a batch as it stands."""
        return self._get(f"/batches/{batch_id}")

    def download(self, file_id: str, path: Path) -> None:
        """Write a file of results."""
        self._write(f"/files/{file_id}/content", path)
