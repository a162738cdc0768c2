"""Contexts as workers share them: their text in a store, with the moves that led to them from the first ones."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import numpy as np

from wiserouter.errors import InvalidInput, WiseRouterError
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder, encoder_from_state
from wiserouter.prompts.encoders.base import RefittableEncoder
from wiserouter.stores.shared.codec import array_of, text_of_array
from wiserouter.types import FloatArray


class ContextMove(NamedTuple):
    """The move away from a version of contexts.

    Attributes
    ----------
    sums : str
        The name of the sums of the contexts that were left.
    spread : ndarray of shape (n_contexts, n_contexts of the next version)
        The share of each of them in each new one.
    """

    sums: str
    spread: FloatArray


class SharedContexts(NamedTuple):
    """A version of the contexts.

    Attributes
    ----------
    sums : str
        The name of the sums of observations in these contexts.
    contexts : Contexts
        The contexts.
    encoder : Encoder or None
        The encoder that was fitted with them; None where none was.
    refits_encoder : bool
        Whether `encoder` takes the place of the worker's own.
    n_seen : int
        Number of queries that all workers had seen.
    moves : tuple of ContextMove
        The moves from version 0 on; their number is the version.
    """

    sums: str
    contexts: Contexts
    encoder: Encoder | None
    refits_encoder: bool
    n_seen: int
    moves: tuple[ContextMove, ...]

    @property
    def version(self) -> int:
        """Number of these contexts; those that all workers began with are 0."""
        return len(self.moves)

    def to_text(self) -> str:
        """Return it as text."""
        contexts, encoder = self.contexts, self.encoder
        arrays = {} if encoder is None else {name: text_of_array(array) for name, array in encoder.state().items()}
        fields = {
            "sums": self.sums,
            "centroids": text_of_array(contexts.centroids),
            "freq": contexts.freq.tolist(),
            "n_queries": contexts.n_queries,
            "encoder": None if encoder is None else [encoder.spec, encoder.settings(), arrays],
            "refits_encoder": self.refits_encoder,
            "n_seen": self.n_seen,
            "moves": [[move.sums, move.spread.tolist()] for move in self.moves],
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> SharedContexts:
        """Return the contexts that `to_text` was called on.

        Raises
        ------
        InvalidInput
            If the text cannot be read.
        """
        try:
            return _read(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, WiseRouterError) as error:
            raise InvalidInput(f"text must be that of shared contexts, and cannot be read: {error}") from error


def root_name(contexts: Contexts, encoder: Encoder | None) -> str:
    """Return the name that workers with the same first contexts and the same kind of encoder give to all versions."""
    kind = "" if encoder is None else f"{encoder.spec}{json.dumps(encoder.settings(), sort_keys=True)}"
    return "contexts|" + hashlib.sha256(contexts.centroids.tobytes() + kind.encode()).hexdigest()[:16]


def _read(fields: Any) -> SharedContexts:
    centroids = array_of(fields["centroids"]).reshape(len(fields["freq"]), -1)
    contexts = Contexts(centroids, fields["freq"], n_queries=fields["n_queries"])
    encoder = None
    if fields["encoder"] is not None:
        spec, settings, arrays = fields["encoder"]
        encoder = encoder_from_state(spec, settings, {name: array_of(array) for name, array in arrays.items()})
        if not isinstance(encoder, RefittableEncoder):
            raise ValueError(f"encoder {spec!r} is not fitted while serving")
    moves = tuple([ContextMove(str(name), np.array(spread, dtype=np.float64)) for name, spread in fields["moves"]])
    sizes = [len(move.spread) for move in moves[1:]] + [contexts.n_contexts]
    if not moves or any(move.spread.shape[1:] != (size,) for move, size in zip(moves, sizes, strict=True)):
        raise ValueError("the moves do not lead to the contexts")
    return SharedContexts(
        str(fields["sums"]), contexts, encoder, bool(fields["refits_encoder"]), int(fields["n_seen"]), moves
    )
