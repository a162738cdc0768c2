"""What one command changes at a time, while the others wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from wiserouter.cli.output import err


@contextmanager
def alone(lock: Path, changed: Path) -> Iterator[None]:
    """Wait until no other command changes a file or folder, and keep others waiting; a line on stderr says so.

    A lock ends with its process, however that ends. On Windows, and where the file system has no locks, no one waits.

    Parameters
    ----------
    lock : Path
        The file that is locked, made if there is none; `changed` itself, or a file of its own.
    changed : Path
        What is changed.
    """
    with lock.open("ab") as file:
        _wait(file, changed)
        yield


def _wait(file: IO[bytes], changed: Path) -> None:
    try:
        if not _locked(file):
            err.print(f"waiting for another command that changes {changed}", highlight=False, soft_wrap=True)
        while not _locked(file):
            time.sleep(0.1)  # and no lock that waits: where polars handles Ctrl-C, it does not end one
    except OSError as error:
        text = f"{changed} cannot be locked ({error.strerror}): run one command at a time on it"
        err.print(text, highlight=False, soft_wrap=True)


def _locked(file: IO[bytes]) -> bool:
    """Lock a file, once or again; return False if another process holds it."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
