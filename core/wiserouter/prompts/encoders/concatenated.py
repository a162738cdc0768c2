"""Several encoders as one: their vectors side by side, each scaled so that all weigh the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.prompts.encoders.base import Encoder, Settings, State
from wiserouter.prompts.encoders.registry import encoder_from_state
from wiserouter.types import Embedding


class ConcatenatedEncoder:
    """The vectors of several encoders, one after the other.

    Parameters
    ----------
    parts : sequence of Encoder
        Two or more; distances between their vectors add up, so that each should give unit vectors.

    Examples
    --------
    >>> from wiserouter.prompts.encoders.hashing import HashingTfidf
    >>> ConcatenatedEncoder([HashingTfidf(dim=4), HashingTfidf(dim=3)]).encode("sort a list").shape
    (7,)
    """

    spec = "concatenated"

    def __init__(self, parts: Sequence[Encoder]) -> None:
        if len(parts) < 2:
            raise InvalidInput(f"parts must be two encoders or more, got {len(parts)}", value=parts)
        self.parts = tuple(parts)

    def fit(self, texts: Sequence[str]) -> Self:
        """Fit each part on `texts`."""
        self.parts = tuple(part.fit(texts) for part in self.parts)
        return self

    def encode(self, text: str) -> Embedding:
        """Return the vector of `text`, of shape (d,)."""
        return joined([part.encode(text) for part in self.parts])

    def encode_many(self, texts: Sequence[str]) -> Embedding:
        """Return the vectors of `texts`, of shape (n, d)."""
        return joined([part.encode_many(texts) for part in self.parts])

    def terms_of(self, direction: Embedding, most: int) -> list[str]:
        """Return the terms of a direction by the first part that knows terms; none where no part does."""
        start = 0
        for part in self.parts:
            end = start + part.encode("").size
            named = getattr(part, "terms_of", None)
            if named is not None:
                terms: list[str] = named(direction[start:end], most)
                return terms
            start = end
        return []

    def state(self) -> State:
        """Return the arrays of all parts, each with the number of its part."""
        return {f"{i}.{name}": array for i, part in enumerate(self.parts) for name, array in part.state().items()}

    def settings(self) -> Settings:
        """Return the kinds of the parts and their settings, each with the number of its part."""
        own = {f"{i}.{name}": value for i, part in enumerate(self.parts) for name, value in part.settings().items()}
        return {"parts": "+".join(part.spec for part in self.parts), **own}

    @classmethod
    def restore(cls, settings: Settings, arrays: State) -> Self:
        """Return the encoder whose `settings()` and `state()` these are."""
        specs = str(settings["parts"]).split("+")
        return cls([encoder_from_state(spec, _of(i, settings), _of(i, arrays)) for i, spec in enumerate(specs)])


def joined(vectors: Sequence[Embedding]) -> Embedding:
    """Return vectors side by side, of length 1 together where each has length 1."""
    both = np.concatenate(vectors, axis=-1) / np.sqrt(len(vectors))
    return np.asarray(both, dtype=np.float32)


def _of(i: int, named: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of one part."""
    prefix = f"{i}."
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}
