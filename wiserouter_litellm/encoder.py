"""An encoder that asks any embedding model of LiteLLM; the router's budget pays for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import litellm

from wiserouter.integration import Embedded, RemoteEncoder
from wiserouter_litellm.deployments.litellm_compat import deployments_of
from wiserouter_litellm.deployments.price_map import rate_card_of


class LiteLLMEncoder(RemoteEncoder):
    """Embeds with `litellm.embedding`, or with an embedding model group of a router.

    Parameters
    ----------
    model : str
        Such as "text-embedding-3-small", or a group of `router`.
    router : callable returning litellm.Router or None, optional
        Called at each embedding, since the proxy makes its router after its callbacks.
    cache_size : int, default 10,000
        The number of vectors kept, each by a hash of its text.
    **params
        Parameters of the embedding call, such as `api_key`, `dimensions`, `input_cost_per_token`.

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
        card = rate_card_of({"litellm_params": {"model": model, "output_cost_per_token": 0.0, **price}})
        super().__init__(model, self._request, self._arequest, token_usd=card.price.input, cache_size=cache_size)
        self._model, self._router, self._params = model, router, params

    def _request(self, texts: list[str]) -> Embedded:
        return _embedded(self._embedder().embedding(model=self._model, input=texts, **self._params))

    async def _arequest(self, texts: list[str]) -> Embedded:
        return _embedded(await self._embedder().aembedding(model=self._model, input=texts, **self._params))

    def _embedder(self) -> Any:
        """Return the router, where the model is one of its groups, else LiteLLM itself."""
        router = self._router()
        return router if router is not None and deployments_of(router, self._model) else litellm


def _embedded(response: Any) -> Embedded:
    return Embedded([row["embedding"] for row in response.data], int(getattr(response.usage, "prompt_tokens", 0) or 0))
