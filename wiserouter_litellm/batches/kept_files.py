"""The files of batches: what callers upload, and the results that are merged for them."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from wiserouter.errors import WiseRouterError
from wiserouter.integration import fresh_id

FILE_ID = re.compile(r"file-wise-[0-9a-f]{32}")
"""The ids of files, by which a request for one is told from those that LiteLLM answers."""


class UnknownBatch(WiseRouterError):
    """No batch or file of this id belongs to the caller."""

    def __init__(self, kind: str, id_: str) -> None:
        super().__init__(
            f"no {kind} {id_!r:.80} of this key is known: it was deleted, has expired, or is another key's"
        )


@dataclass(frozen=True)
class KeptFile:
    """A file.

    Attributes
    ----------
    id : str
        Its id.
    owner : str
        A digest of the key that it belongs to.
    filename, purpose : str
        As the caller gave them; the purpose of results is "batch_output".
    bytes : int
        Its length.
    created_at : int
        Seconds since 1970.
    """

    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created_at: int

    def shown(self) -> dict[str, Any]:
        """Return the file as OpenAI's routes show it."""
        fields = asdict(self)
        del fields["owner"]
        return {**fields, "object": "file", "status": "processed"}


class KeptFiles:
    """A folder of files, each with its description beside it.

    Parameters
    ----------
    folder : Path
        The folder, which is made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_private(folder)

    def add(self, source: BinaryIO, owner: str, filename: str, purpose: str = "batch") -> KeptFile:
        """Keep a copy of a file; its description is written last, so that a file is there whole or not at all."""
        id_ = f"file-wise-{fresh_id()}"
        with self.path(id_).open("wb") as target:
            shutil.copyfileobj(source, target)
        kept = KeptFile(id_, owner, filename, purpose, self.path(id_).stat().st_size, int(time.time()))
        write_whole(self._described(id_), json.dumps(asdict(kept)))
        return kept

    def find(self, id_: str, owner: str | None) -> KeptFile:
        """Return a file; None for the owner finds those of all callers.

        Raises
        ------
        UnknownBatch
            If there is none of this owner.
        """
        path = self._described(id_)
        if FILE_ID.fullmatch(id_) is None or not path.exists():
            raise UnknownBatch("file", id_)
        kept = KeptFile(**json.loads(path.read_text(encoding="utf-8")))
        if owner is not None and kept.owner != owner:
            raise UnknownBatch("file", id_)
        return kept

    def path(self, id_: str) -> Path:
        """Return where the content of a file is."""
        return self._folder / f"{id_}.jsonl"

    def delete(self, id_: str) -> None:
        """Delete a file."""
        self._described(id_).unlink(missing_ok=True)
        self.path(id_).unlink(missing_ok=True)

    def delete_before(self, created_at: float) -> None:
        """Delete the files that are older than a time, in seconds since 1970."""
        for path in self._folder.glob("*.jsonl"):
            if path.stat().st_mtime < created_at:
                self.delete(path.stem)

    def _described(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner can read, if it is missing: it holds the prompts and answers of callers."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
