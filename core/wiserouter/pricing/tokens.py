"""The number of tokens of a text, before the call and without the network.

tiktoken downloads an encoding on first use and waits for it; this module uses an encoding only if its file is already
in tiktoken's cache directory with the right hash. It reads the file itself, since tiktoken's loader fetches missing
files and deletes damaged ones. Without a file the count is an estimate, and is marked as one.

Chat formats add a few tokens per message (about four), tools and images add more: only the text is counted here.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from wiserouter.parallel.forks import held_at_fork, import_between_forks

if TYPE_CHECKING:
    import tiktoken

ESTIMATE = "estimate:utf8/4"
SHORT_TEXT_CHARS = 4_000
"""The tokens of a shorter text are counted in well under a millisecond."""
PIECE_CHARS = 500_000
"""Longer texts are counted in pieces: a run of 1,000,000 blanks overflows the stack of tiktoken's o200k pattern."""

_BLOBS = "https://openaipublic.blob.core.windows.net/encodings/"
_SHA256 = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
_PATTERN = {  # as in tiktoken_ext.openai_public; the tests hold them equal
    "o200k_base": "|".join(
        (
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        )
    ),
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
}
_SAME_TEXT = {"o200k_harmony": "o200k_base"}  # differs in special tokens only
_LOCK = held_at_fork(threading.RLock(), innermost=True)
_LOOKED_FOR: dict[Path, tiktoken.Encoding | None] = {}


@dataclass(frozen=True, slots=True)
class TokenCount:
    """The tokens of one text.

    Attributes
    ----------
    tokens : int
        The best count or estimate.
    at_most : int
        An upper bound, for reserving money: equal to `tokens` where the model's own encoding counted them, else the
        UTF-8 bytes of the text, since every token of a byte-level encoding covers at least one byte.
    encoding : str
        The encoding that counted: "o200k_base", "cl100k_base" or "estimate:utf8/4".
    """

    tokens: int
    at_most: int
    encoding: str


def count_tokens(text: str, model: str | None = None) -> TokenCount:
    """Count the tokens of `text` for `model`, without ever touching the network.

    Parameters
    ----------
    text : str
        Any text; a special token in it counts as plain text.
    model : str, optional
        A model's name, with or without the prefix "openai/".

    Returns
    -------
    TokenCount
        By the model's own encoding if tiktoken knows the model and the file is cached; else by o200k_base or
        cl100k_base, whichever is cached; else a quarter of the UTF-8 bytes, rounded up.

    Notes
    -----
    Beyond 500,000 characters the text is counted in pieces, whose seams may shift the count by a token or so;
    `at_most` is then the number of bytes. A tokenizer that normalises text before splitting it (some SentencePiece
    models) may exceed the bytes on exotic characters.

    Examples
    --------
    >>> count_tokens("")
    TokenCount(tokens=0, at_most=0, encoding=...)
    >>> count_tokens("naïve", model="some-open-model").at_most
    6
    """
    n_bytes = len(text.encode("utf-8", "surrogatepass"))
    own = _encoding_name(model)
    for name in (own,) if own and _load(own) else _SHA256:
        encoding = _load(name)
        if encoding:
            tokens = _count(encoding, text)
            exact = name == own and len(text) <= PIECE_CHARS
            return TokenCount(tokens, tokens if exact else max(n_bytes, tokens), name)
    return TokenCount(-(-n_bytes // 4), n_bytes, ESTIMATE)


def _count(encoding: tiktoken.Encoding, text: str) -> int:
    """Return the tokens of `text`, counted in pieces of at most `PIECE_CHARS`."""
    pieces = (text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS))
    return sum(len(encoding.encode_ordinary(piece)) for piece in pieces)


def _encoding_name(model: str | None) -> str | None:
    """Return the name of tiktoken's encoding for `model`, or None if there is none."""
    if model is None:
        return None
    import_between_forks("tiktoken.model")
    from tiktoken.model import encoding_name_for_model

    try:
        name = encoding_name_for_model(model.removeprefix("openai/"))
    except KeyError:
        return None
    return _SAME_TEXT.get(name, name)


def load_tokenizer() -> None:
    """Read the file of the encoding that counts for most models, in a thread of its own if an event loop runs here.

    On an event loop, a file that has been looked for before is not looked at again.
    """
    if not _is_on_event_loop():
        count_tokens("")
    else:
        threading.Thread(target=count_tokens, args=("",), name="wiserouter-tokenizer").start()


def _load(name: str) -> tiktoken.Encoding | None:
    """Return the encoding `name` if an intact file of it is cached, else None; a file is read once."""
    folder = _cache_folder()
    if name not in _SHA256 or not folder:
        return None
    path = _cache_path(folder, name)
    if path in _LOOKED_FOR and _is_on_event_loop():
        return _LOOKED_FOR[path]
    try:
        modified_ns = path.stat().st_mtime_ns
    except OSError:
        _LOOKED_FOR[path] = None
        return None
    with _LOCK:
        _LOOKED_FOR[path] = encoding = _read(name, path, modified_ns)
    return encoding


def _is_on_event_loop() -> bool:
    # its import takes time, and before its end no event loop runs: another thread may be importing it
    running_loop = getattr(sys.modules.get("asyncio"), "get_running_loop", None)
    if running_loop is None:
        return False
    try:
        running_loop()
    except RuntimeError:
        return False
    return True


def _cache_folder() -> str:
    """Return tiktoken's cache directory; empty if a variable that is set but empty switches the cache off."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return os.environ[variable]
    import tempfile  # slow to import, and needed only where text is counted

    return f"{tempfile.gettempdir()}{os.sep}data-gym-cache"


@lru_cache(maxsize=32)
def _cache_path(folder: str, name: str) -> Path:
    """Return the path of the encoding `name` in tiktoken's cache, named by the SHA-1 of its URL."""
    return Path(folder) / hashlib.sha1(f"{_BLOBS}{name}.tiktoken".encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=8)
def _read(name: str, path: Path, modified_ns: int) -> tiktoken.Encoding | None:  # noqa: ARG001
    """Return the encoding in the file at `path`, or None if its hash is wrong; `modified_ns` is part of the key."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(data).hexdigest() != _SHA256[name]:
        return None
    import tiktoken

    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, data.splitlines())}
    return tiktoken.Encoding(name, pat_str=_PATTERN[name], mergeable_ranks=ranks, special_tokens={})
