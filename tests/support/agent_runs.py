"""A router of two models whose providers discount cached prefixes, for runs and conversations of LangChain."""

import numpy as np

from support.caching_chat import RATES, CachingChat, Provider
from wiserouter import Budget, Estimates, Model, Offline, WiseRouter
from wiserouter_langchain import RunnableWiseRouter

RUN_USD = (0.01, 0.1)
MIXED = Budget(5.5, horizon=100)
"""A budget at which half of the runs get the better model."""


def estimates(cost_usd=RUN_USD, reward=(0.2, 0.9)):
    known = Estimates(1, 2)
    known.add_table(np.zeros(50, dtype=np.int64), np.tile(reward, (50, 1)), np.tile(cost_usd, (50, 1)))
    return known


def fitted(budget=None, **options):
    models = [Model(name, price) for name, price in RATES.items()]
    router = WiseRouter(models, policy=Offline(), estimates=estimates(), seed=0, **options)
    router.start(budget or Budget(1_000.0, horizon=1_000))
    return router


def routed(budget=None, unit="run", steps=0, router=None, **fields):
    providers = {name: Provider(price) for name, price in RATES.items()}
    models = {
        name: CachingChat(model=name, provider=providers[name], steps=steps, max_tokens=2_000) for name in providers
    }
    profile = {"max_input_tokens": 400_000, "tool_calling": True}
    models = {name: model.model_copy(update={"profile": profile}) for name, model in models.items()}
    llm = RunnableWiseRouter(models=models, router=router or fitted(budget), prices=RATES, unit=unit, **fields)
    return llm, providers


def thread(name):
    return {"configurable": {"thread_id": name}}


def model_of(answer):
    return answer.response_metadata["wise_router"]["model"]


def ledger_usd(providers):
    return sum(provider.ledger_usd for provider in providers.values())
