"""An embedding service as an encoder, with a cache, paid from the router's budget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from threading import Lock
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from wiserouter.errors import EncoderError
from wiserouter.prompts.encoders.base import Settings, State, check_embeddings, tail
from wiserouter.types import Embedding

MAX_CHARS = 4_000


class Embedded(NamedTuple):
    """The response of a service: one row per text, and the tokens that it bills; None where it does not report them."""

    rows: ArrayLike
    tokens: int | None = None


class RemoteEncoder:
    """An encoder that requests vectors from a service, once per text.

    Parameters
    ----------
    name : str
        Its name in errors.
    embed, aembed : callable of (list of str) -> Embedded
        The service, synchronously and asynchronously; safe to call from many threads.
    token_usd : float, default 0
        USD per token.
    cache_size : int, default 10,000
        Vectors kept, by a hash of the text.

    Attributes
    ----------
    pay, apay : callable of (float) -> None, and its asynchronous twin
        Called with an upper bound on the cost before a call, and after it with the unused part of that as a negative
        amount. A cancelled call stays paid: the service may bill it.

    Notes
    -----
    Only the last 4,000 characters are embedded. An artifact cannot hold a service: pass the encoder to
    `WiseRouter.load` again.
    """

    spec = "custom"

    def __init__(
        self,
        name: str,
        embed: Callable[[list[str]], Embedded],
        aembed: Callable[[list[str]], Awaitable[Embedded]],
        *,
        token_usd: float = 0.0,
        cache_size: int = 10_000,
    ) -> None:
        self.pay: Callable[[float], None] = _pay_nothing
        self.apay: Callable[[float], Awaitable[None]] = _apay_nothing
        self._name, self._embed, self._aembed = name, embed, aembed
        self._token_usd, self._cache_size = token_usd, cache_size
        self._cache: OrderedDict[bytes, Embedding] = OrderedDict()
        self._lock = Lock()

    def fit(self, texts: Sequence[str]) -> Self:
        """Return the encoder as it is: the service is trained."""
        return self

    def encode(self, text: str) -> Embedding:
        """Return the vector of one text, of shape (d,)."""
        row: Embedding = self.encode_many([text])[0]
        return row

    def encode_many(self, texts: Sequence[str]) -> Embedding:
        """Return the vectors of many texts, of shape (n, d); one call for those that the cache does not hold."""
        cut = [tail(text, MAX_CHARS) for text in texts]
        vectors = {text: self._cached(text) for text in dict.fromkeys(cut)}
        missing = [text for text, vector in vectors.items() if vector is None]
        if missing:
            bound_usd = self._bound_usd(missing)
            self.pay(bound_usd)
            try:
                answer = self._embed(missing)
            except Exception as error:
                self.pay(-bound_usd)
                raise self._failed(error) from error
            if rest_usd := self._rest_usd(answer, bound_usd):
                self.pay(rest_usd)
            vectors |= self._add_to_cache(missing, answer)
        return np.stack([vector for text in cut if (vector := vectors[text]) is not None])

    async def aencode(self, text: str) -> Embedding:
        """Return the vector of one text, of shape (d,), without blocking the event loop."""
        cut = tail(text, MAX_CHARS)
        found = self._cached(cut)
        if found is not None:
            return found
        bound_usd = self._bound_usd([cut])
        await self.apay(bound_usd)
        try:
            answer = await self._aembed([cut])
        except Exception as error:
            await self.apay(-bound_usd)
            raise self._failed(error) from error
        if rest_usd := self._rest_usd(answer, bound_usd):
            await self.apay(rest_usd)
        return self._add_to_cache([cut], answer)[cut]

    def state(self) -> State:
        """Return an empty state: the model is the service's."""
        return {}

    def settings(self) -> Settings:
        """Return no settings: an artifact keeps none."""
        return {}

    def _bound_usd(self, texts: list[str]) -> float:
        """Return the cost of as many tokens as the texts have bytes: no byte-level tokenizer makes more of them."""
        return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) * self._token_usd

    def _rest_usd(self, answer: Embedded, bound_usd: float) -> float:
        """Return the cost less the bound, at most 0 as a rule; 0 where the service does not report its tokens."""
        return 0.0 if answer.tokens is None else answer.tokens * self._token_usd - bound_usd

    def _failed(self, error: Exception) -> EncoderError:
        return EncoderError(f"embedding with {self._name} failed: {type(error).__name__}")

    def _add_to_cache(self, texts: list[str], answer: Embedded) -> dict[str, Embedding]:
        """Cache the vectors, and return them."""
        rows = check_embeddings(answer.rows, len(texts))
        with self._lock:
            for text, row in zip(texts, rows, strict=True):
                self._cache[_key(text)] = row
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return dict(zip(texts, rows, strict=True))

    def _cached(self, text: str) -> Embedding | None:
        with self._lock:
            key = _key(text)
            if key in self._cache:
                self._cache.move_to_end(key)
            return self._cache.get(key)


def _key(text: str) -> bytes:
    """Return a digest of a text: the cache keeps no prompt."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _pay_nothing(usd: float) -> None:
    """Pay nothing, before a router uses the encoder."""


async def _apay_nothing(usd: float) -> None:
    """Pay nothing, before a router uses the encoder."""
