"""Any embedding model of LiteLLM as an encoder, with a cache; what it costs is paid from the same budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import litellm

from wiserouter.prompts.encoders.remote import Embedded, RemoteEncoder
from wiserouter_litellm.litellm_compat import deployments_of
from wiserouter_litellm.price_map import tariff_of


class LiteLLMEncoder(RemoteEncoder):
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

    Raises
    ------
    UnknownPrice
        If LiteLLM knows no price of the model, and none is given.
    """

    def __init__(
        self,
        model: str,
        *,
        router: Callable[[], Any] = lambda: None,
        cache_size: int = 10_000,
        **params: Any,
    ) -> None:
        price = {name: params[name] for name in ("input_cost_per_token", "output_cost_per_token") if name in params}
        known = tariff_of({"litellm_params": {"model": model, "output_cost_per_token": 0.0, **price}}).price
        super().__init__(model, self._ask, self._aask, token_usd=known.input, cache_size=cache_size)
        self._model, self._router, self._params = model, router, params

    def _ask(self, texts: list[str]) -> Embedded:
        return _embedded(self._embedder().embedding(model=self._model, input=texts, **self._params))

    async def _aask(self, texts: list[str]) -> Embedded:
        return _embedded(await self._embedder().aembedding(model=self._model, input=texts, **self._params))

    def _embedder(self) -> Any:
        """Return the router, where the model is a group of it, else LiteLLM itself."""
        router = self._router()
        return router if router is not None and deployments_of(router, self._model) else litellm


def _embedded(response: Any) -> Embedded:
    return Embedded([row["embedding"] for row in response.data], int(getattr(response.usage, "prompt_tokens", 0) or 0))
