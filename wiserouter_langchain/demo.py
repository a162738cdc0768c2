"""`wiserouter demo --via langchain`: the demo's workload through a LangChain chain of simulated chat models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate

from wiserouter import Price, WiseRouter
from wiserouter.evaluation.table import Table
from wiserouter_langchain.decisions.routed_call import RECORD
from wiserouter_langchain.runnable import RunnableWiseRouter

TOKEN_USD = 1e-9
"""Price of a token of the simulated models: small, so that every cost is a whole number of tokens."""


class TableChat(BaseChatModel):
    """A chat model whose answers cost what a table gives for the current query."""

    name: str
    cost_usd: Any
    query: Any

    @property
    def _llm_type(self) -> str:
        return "wiserouter-demo"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        spent = round(self.cost_usd[self.query[0]] / TOKEN_USD)
        usage = {"input_tokens": 1, "output_tokens": spent - 1, "total_tokens": spent}
        answer = AIMessage(f"an answer of {self.name}", usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def serve(router: WiseRouter, table: Table, tick: Callable[[int], None]) -> npt.NDArray[np.int64]:
    """Send every query of a table through a chain, with feedback, and return the index of the model that answered each.

    Parameters
    ----------
    router : WiseRouter
        A router with a running budget.
    table : Table
        Prompts, with the score and the cost of each model on them.
    tick : callable of (int) -> None
        Called with the number of queries done.
    """
    query = [0]
    models: dict[str, BaseChatModel] = {
        name: TableChat(name=name, cost_usd=table.cost_usd[:, k], query=query) for k, name in enumerate(table.models)
    }
    llm = RunnableWiseRouter(models=models, router=router, prices=dict.fromkeys(models, Price(TOKEN_USD, TOKEN_USD)))
    chain = ChatPromptTemplate.from_messages([("human", "{question}")]) | llm
    chosen = np.empty(len(table.prompts), dtype=np.int64)
    for i, prompt in enumerate(table.prompts):
        query[0] = i
        answer = chain.invoke({"question": prompt})
        chosen[i] = model = table.models.index(answer.response_metadata[RECORD]["model"])
        llm.feedback(answer, float(table.reward[i, model]))
        tick(i)
    return chosen
