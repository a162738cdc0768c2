"""The registry of encoders: from a name, a callable or the content of an artifact to an encoder."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from wiserouter.errors import EncoderError, InvalidInput
from wiserouter.prompts.encoders.base import Encoder, Settings, State
from wiserouter.prompts.encoders.from_callable import CallableEncoder, EmbedFunction

EncoderLike = str | Encoder | EmbedFunction
"""The values that `open_encoder` accepts."""

_KNOWN = {
    "hashing": "wiserouter.prompts.encoders.hashing:HashingTfidf",
    "tfidf": "wiserouter.prompts.encoders.tfidf:TfidfEncoder",
    "minilm": "wiserouter.prompts.encoders.minilm:MiniLMEncoder",
    "concatenated": "wiserouter.prompts.encoders.concatenated:ConcatenatedEncoder",
}
"""The class of each encoder, imported on first use."""

WHOLE_CHARS = 100_000
"""Characters that "tfidf-whole" reads: practically all of a prompt."""

_NAMED: dict[str, tuple[str, Settings]] = {
    "hashing": ("hashing", {}),
    "tfidf": ("tfidf", {}),
    "tfidf-whole": ("tfidf", {"max_chars": WHOLE_CHARS}),
    "minilm": ("minilm", {}),
}
"""The encoders that have a name: their kind and their settings."""


def open_encoder(spec: EncoderLike | None = None) -> Encoder:
    """Return the encoder for a name, a callable or an encoder.

    Parameters
    ----------
    spec : str, Encoder, callable or None
        "tfidf" (also the default), "tfidf-whole", "hashing" or "minilm", several of them as in "tfidf+minilm", a
        callable of (list of texts) -> (n, d), or an encoder, which is returned as is.

    Raises
    ------
    InvalidInput
        If it is none of these.
    MissingExtra
        If the encoder needs an extra that is not installed.

    Examples
    --------
    >>> open_encoder("tfidf").spec
    'tfidf'
    >>> open_encoder(lambda texts: [[len(text)] for text in texts]).encode("four")
    array([4.], dtype=float32)
    """
    if spec is None:
        return open_encoder("tfidf")
    if isinstance(spec, str) and all(name in _NAMED for name in spec.split("+")):
        parts = [_named(name) for name in spec.split("+")]
        encoder: Encoder = parts[0] if len(parts) == 1 else _kind("concatenated")(parts)
        return encoder
    if isinstance(spec, Encoder) and not isinstance(spec, type):
        return spec
    if callable(spec) and not isinstance(spec, type):
        return CallableEncoder(spec)
    names = ", ".join(repr(name) for name in _NAMED)
    raise InvalidInput(
        f"encoder must be one of {names}, several of them joined by '+', a callable or an Encoder, got {spec!r}",
        value=spec,
    )


def encoder_from_state(spec: str, settings: Settings, arrays: State) -> Encoder:
    """Return the encoder whose `spec`, `settings()` and `state()` these are.

    Raises
    ------
    EncoderError
        If an encoder of this kind cannot be restored from a file, or the content does not fit it.
    """
    if spec not in _KNOWN:
        raise EncoderError(f"an encoder of kind {spec!r} cannot be restored from a file: pass encoder=... when loading")
    try:
        encoder: Encoder = _kind(spec).restore(settings, arrays)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise EncoderError(f"the {spec} encoder cannot be restored: {error!r}: fit and save it again") from error
    return encoder


def _named(name: str) -> Encoder:
    kind, settings = _NAMED[name]
    encoder: Encoder = _kind(kind)(**settings)
    return encoder


def _kind(spec: str) -> Any:
    module, _, name = _KNOWN[spec].partition(":")
    return getattr(import_module(module), name)
