"""`wiserouter demo --via litellm`: the demo's workload through a real `litellm.Router` with simulated providers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # before litellm is imported: it would fetch the map

import litellm
import numpy as np
from litellm.llms.custom_llm import CustomLLM
from litellm.router import Router
from litellm.types.utils import Usage
from litellm.utils import custom_llm_setup

from wiserouter import WiseRouter
from wiserouter.evaluation.table import Table
from wiserouter.integration import IntArray
from wiserouter_litellm.attachment import attach, detach

PROVIDER, GROUP = "wiserouter-demo", "wise"
TOKEN_USD = 1e-9
"""Price of a token of the simulated providers: a cost becomes a whole number of tokens."""


class TableProvider(CustomLLM):
    """A provider that answers at the cost that a table gives for the query and the model.

    Parameters
    ----------
    table : Table
        The cost of each model on each query.

    Attributes
    ----------
    query : int
        The query to answer next.
    """

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table
        self.query = 0

    async def acompletion(  # type: ignore[override]
        self, model: str, model_response: Any, **_: Any
    ) -> Any:
        """Return an answer whose usage costs as much as the table says."""
        model_response.choices[0].message.content = f"an answer of {model}"
        cost_usd = self._table.cost_usd[self.query, self._table.models.index(model)]
        spent = round(cost_usd / TOKEN_USD)
        model_response.usage = Usage(prompt_tokens=0, completion_tokens=spent, total_tokens=spent)
        model_response.model = model
        return model_response


def serve(router: WiseRouter, table: Table, tick: Callable[[int], None]) -> IntArray:
    """Send every query of a table through a LiteLLM router, with feedback, and return the models that answered.

    Parameters
    ----------
    router : WiseRouter
        With a running budget.
    table : Table
        Prompts, with the score and the cost of each model on them.
    tick : callable of (int) -> None
        Called with the number of queries done.
    """
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)
    provider = TableProvider(table)
    before = litellm.custom_provider_map
    litellm.custom_provider_map = [{"provider": PROVIDER, "custom_handler": provider}]
    custom_llm_setup()  # type: ignore[no-untyped-call]
    try:
        return asyncio.run(_serve(router, table, provider, tick))
    finally:
        litellm.custom_provider_map = before


async def _serve(router: WiseRouter, table: Table, provider: TableProvider, tick: Callable[[int], None]) -> IntArray:
    llms = Router([_deployment(model) for model in table.models], num_retries=0)
    callback = attach(llms, GROUP, router=router)
    chosen = np.empty(len(table.prompts), dtype=np.int64)
    for i, prompt in enumerate(table.prompts):
        provider.query = i
        answer = await llms.acompletion(model=GROUP, messages=[{"role": "user", "content": prompt}])
        chosen[i] = model = table.models.index(answer._hidden_params["model_id"])
        callback.feedback(answer, float(table.reward[i, model]))
        while router.status().in_flight:  # noqa: ASYNC110 - LiteLLM reports costs in the background
            await asyncio.sleep(0)
        tick(i)
    detach(llms)
    return chosen


def _deployment(model: str) -> dict[str, Any]:
    price = {"input_cost_per_token": TOKEN_USD, "output_cost_per_token": TOKEN_USD}
    return {
        "model_name": GROUP,
        "litellm_params": {"model": f"{PROVIDER}/{model}", **price},
        "model_info": {"id": model, "wiserouter_model": model},
    }
