"""Checksums of files and tables: they identify the data of a figure and verify downloads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wiserouter.errors import LogError
from wiserouter.evaluation.errors import HashMismatch
from wiserouter.types import Embedding, FloatArray

MOST_BYTES = 2**29
"""The largest file that is read into memory at once; RouterBench's largest wide file has 163 MB."""


def checked_bytes(file: Path, expected: str | None) -> tuple[bytes, str]:
    """Return a file's bytes and their SHA-256, so that exactly the checked bytes are read.

    Parameters
    ----------
    file : Path
        The file.
    expected : str or None
        The SHA-256 that it must have; by default the one pinned by an earlier use, if any.

    Raises
    ------
    HashMismatch
        If the hash differs.
    LogError
        If the file is larger than `MOST_BYTES`.
    """
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise LogError(f"a file of at most {MOST_BYTES} bytes is read, got {size}", file=file, value=size)
    payload = file.read_bytes()
    digest = hashlib.sha256(payload).hexdigest()
    wanted = expected.lower() if expected else _pinned(file)
    if wanted not in (None, digest):
        raise HashMismatch(file, str(wanted), digest)
    return payload, digest


def pin(file: Path, digest: str, *, asked: bool = False) -> None:
    """Write the hash of a file's first use to `<file>.sha256`, as sha256sum does; with `asked` it is replaced."""
    if _pinned(file) not in ((None, digest) if asked else (digest,)):
        _pin_of(file).write_text(f"{digest}  {file.name}\n", encoding="utf-8")


def content_hash(
    prompts: Sequence[str],
    models: Sequence[str],
    reward: FloatArray,
    cost_usd: FloatArray,
    embeddings: Embedding | None = None,
) -> str:
    """Return the SHA-256 of a table's content, which does not depend on the file format.

    Parameters
    ----------
    prompts, models : sequence of str
        Rows and columns.
    reward, cost_usd : ndarray of shape (n_queries, n_models)
        Scores and costs; all NaNs are equal.
    embeddings : ndarray of shape (n_queries, dim), optional
        Embeddings, if the table has any.

    Examples
    --------
    >>> content_hash(["hi"], ["m"], np.array([[1.0]]), np.array([[0.5]]))[:12]
    '...'
    """
    digest = hashlib.sha256()
    for texts in (prompts, models):
        digest.update(f"{len(texts)}\n".encode())
        for text in texts:
            raw = text.encode()
            digest.update(f"{len(raw)}:".encode() + raw)
    for array in (reward, cost_usd):
        digest.update(np.where(np.isnan(array), np.nan, array).astype("<f8").tobytes())
    if embeddings is not None:
        digest.update(np.asarray(embeddings, dtype="<f4").tobytes())
    return digest.hexdigest()


def _pinned(file: Path) -> str | None:
    pinned = _pin_of(file)
    words = pinned.read_text(encoding="utf-8").split() if pinned.is_file() else []
    return words[0].lower() if words else None


def _pin_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")
