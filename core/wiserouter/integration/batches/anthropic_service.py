"""Anthropic's Message Batches: https://docs.anthropic.com/en/api/creating-message-batches.

A batch is made of the file itself, and bears no mark. One whose id was lost is found by the custom ids of its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.layouts import custom_ids
from wiserouter.integration.batches.requests import json_lines
from wiserouter.integration.batches.service import HttpService

VERSION = "2023-06-01"
"""The version of the API."""

_ROUTE = "/v1/messages/batches"
_PAGE = 100


class AnthropicService(HttpService):
    """The service at an address such as https://api.anthropic.com."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, {"x-api-key": key, "anthropic-version": VERSION})

    def upload(self, path: Path) -> str:
        """Return "": a batch is made of the file itself."""
        return ""

    def create(self, file_id: str, path: Path, model: str, mark: str) -> Mapping[str, Any]:
        """Create a batch of a file."""
        return _as_openai(self._send(self._url + _ROUTE, path, {"content-type": "application/json"}))

    def find(self, path: Path, mark: str) -> Mapping[str, Any] | None:
        """Return the batch of a file, by its results; refuse while one of as many requests has none yet."""
        ids = set(custom_ids(path))
        for batch in self._batches():
            if sum(batch["request_counts"].values()) != len(ids):
                continue
            if batch["processing_status"] != "ended":
                raise InvalidInput(
                    f"batch {batch['id']} may be that of {path.name}, which its results will tell: submit again when "
                    f"it has ended",
                    value=batch["id"],
                )
            if self._first_result(str(batch["id"])) in ids:
                return _as_openai(batch)
        return None

    def batch(self, batch_id: str) -> Mapping[str, Any]:
        """Return a batch as it stands."""
        return _as_openai(self._get(f"{_ROUTE}/{batch_id}"))

    def download(self, file_id: str, path: Path) -> None:
        """Write the results of a batch."""
        self._write(f"{_ROUTE}/{file_id}/results", path)

    def _batches(self) -> Iterator[dict[str, Any]]:
        after: str | None = None
        while True:
            page = self._get(_ROUTE, {"limit": _PAGE, "after_id": after})
            yield from page["data"]
            if not page.get("has_more") or not page["data"]:
                return
            after = page["last_id"]

    def _first_result(self, batch_id: str) -> str | None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            self.download(batch_id, path)
            return next((str(line.get("custom_id")) for _, line in json_lines(path)), None)


def _as_openai(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch with the fields of one of OpenAI's; failures are among its results.

    Examples
    --------
    >>> _as_openai({"id": "msgbatch_1", "processing_status": "ended"})
    {'id': 'msgbatch_1', 'status': 'completed', 'output_file_id': 'msgbatch_1'}
    """
    ended = batch["processing_status"] == "ended"
    fields = {"id": batch["id"], "status": "completed" if ended else batch["processing_status"]}
    return {**fields, **({"output_file_id": batch["id"]} if ended else {})}
