"""Any embedding model of LiteLLM as an encoder, with a cache; what it costs is paid from the same budget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any, Self

import litellm
import numpy as np

from wiserouter.encoders.base import Settings, State, check_embeddings, tail
from wiserouter.errors import EncoderError
from wiserouter.prices import worst_case_usd
from wiserouter.tokens import count_tokens
from wiserouter.types import Embedding
from wiserouter_litellm.tariff import tariff_of

MAX_CHARS = 4_000


class LiteLLMEncoder:
    """Embeds with `litellm.embedding`, or with an embedding model group of a router.

    Parameters
    ----------
    model : str
        Such as "text-embedding-3-small", or a group of `router`.
    router : callable returning litellm.Router or None, optional
        Looked up at each call, since the proxy's router comes after its callbacks.
    cache_size : int, default 10,000
        Vectors kept, by a hash of the text.
    **params
        Of the embedding call, such as `api_key`, `dimensions`, `input_cost_per_token`.

    Attributes
    ----------
    pay : callable of (float) -> None
        Called with the bound on the cost before a call, and with what was not used of it, negative, after it.

    Raises
    ------
    UnknownPrice
        If LiteLLM knows no price of the model, and none is given.

    Notes
    -----
    Only the last 4,000 characters are embedded. An artifact fitted with it needs it again: `WiseRouter.load(path,
    encoder=LiteLLMEncoder(...))`; in the proxy that is the setting `encoder`.
    """

    spec = "custom"

    def __init__(
        self,
        model: str,
        *,
        router: Callable[[], Any] = lambda: None,
        cache_size: int = 10_000,
        **params: Any,
    ) -> None:
        price = {name: params[name] for name in ("input_cost_per_token", "output_cost_per_token") if name in params}
        self.price = tariff_of({"litellm_params": {"model": model, "output_cost_per_token": 0.0, **price}}).price
        self.pay: Callable[[float], None] = lambda usd: None  # noqa: ARG005
        self._model, self._router, self._params = model, router, params
        self._cache: OrderedDict[bytes, Embedding] = OrderedDict()
        self._cache_size = cache_size
        self._lock = Lock()

    def fit(self, texts: Sequence[str]) -> Self:  # noqa: ARG002
        """Return the encoder as it is: the model is trained."""
        return self

    def encode(self, text: str) -> Embedding:
        """Return the vector of one text, of shape (d,)."""
        row: Embedding = self.encode_many([text])[0]
        return row

    def encode_many(self, texts: Sequence[str]) -> Embedding:
        """Return the vectors of many texts, of shape (n, d); one call for those that the cache does not hold."""
        cut = [tail(text, MAX_CHARS) for text in texts]
        missing = list(dict.fromkeys(text for text in cut if self._cached(text) is None))
        fresh: dict[str, Embedding] = {}
        if missing:
            bound = self._prepay(missing)
            fresh = self._taken(missing, bound, lambda: self._embedder().embedding(**self._call(missing)))
        return np.stack([fresh[text] if text in fresh else self._known(text) for text in cut])

    async def aencode(self, text: str) -> Embedding:
        """Return the vector of one text, of shape (d,), without blocking the event loop."""
        cut = tail(text, MAX_CHARS)
        found = self._cached(cut)
        if found is not None:
            return found
        bound = self._prepay([cut])
        try:  # one that is given up in the middle stays paid: the provider may bill it
            response = await self._embedder().aembedding(**self._call([cut]))
        except Exception as error:
            self.pay(-bound)
            raise EncoderError(f"embedding with {self._model} failed: {type(error).__name__}") from error
        return self._taken([cut], bound, lambda: response)[cut]

    def state(self) -> State:
        """Return nothing: the model is a provider's."""
        return {}

    def settings(self) -> Settings:
        """Return nothing that an artifact should keep."""
        return {}

    def _embedder(self) -> Any:
        """Return the router, where the model is a group of it, else LiteLLM itself."""
        router = self._router()
        return router if router is not None and self._model in router.get_model_names() else litellm

    def _call(self, texts: list[str]) -> dict[str, Any]:
        return {"model": self._model, "input": texts, **self._params}

    def _prepay(self, texts: list[str]) -> float:
        bound = sum(worst_case_usd(self.price, count_tokens(text).at_most, 0) for text in texts)
        self.pay(bound)
        return bound

    def _taken(self, texts: list[str], bound_usd: float, ask: Callable[[], Any]) -> dict[str, Embedding]:
        """Ask, keep the vectors, and give back what was paid beyond the true cost."""
        try:
            response = ask()
        except Exception as error:
            self.pay(-bound_usd)
            raise EncoderError(f"embedding with {self._model} failed: {type(error).__name__}") from error
        tokens = int(getattr(response.usage, "prompt_tokens", 0) or 0)
        self.pay(tokens * self.price.input - bound_usd)
        rows = check_embeddings([row["embedding"] for row in response.data], len(texts))
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

    def _known(self, text: str) -> Embedding:
        found = self._cached(text)
        return self.encode(text) if found is None else found


def _key(text: str) -> bytes:
    """Return a digest: the cache keeps no prompt."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
