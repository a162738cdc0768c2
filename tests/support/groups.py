"""A model group `wise` of two priced models, and a router that knows them."""

import json

import litellm

from support.providers import cost_usd, deployment
from wiserouter import Budget, Contexts, Estimates, Model, Offline, WiseRouter
from wiserouter.stores import Store

HI = [{"role": "user", "content": "hello there"}]


def fitted(prefer: str = "large", n: int = 50, store: str | Store = "memory://") -> WiseRouter:
    """Return a router that knows both models, and prefers `prefer` at a rich budget."""
    estimates = Estimates(1, 2)
    for k, name in enumerate(("small", "large")):
        for _ in range(n):
            estimates.add_cost(0, k, cost_usd(name))
            estimates.add_reward(0, k, 0.9 if name == prefer else 0.1)
    models = [Model("small"), Model("large")]
    return WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), store=store, seed=0)


def llms(*deployments, **settings) -> litellm.Router:
    settings = {"num_retries": 0, "cooldown_time": 60, **settings}
    return litellm.Router(model_list=list(deployments) or [deployment("small"), deployment("large")], **settings)


def asked(provider) -> list[str]:
    """Return the models that the provider was asked for, in order."""
    return [json.loads(call.request.content)["model"] for call in provider.calls if call.request.method == "POST"]


def sent(provider, i: int = -1) -> dict:
    return json.loads(provider.calls[i].request.content)


RICH = Budget(10.0, 100)


def add(router: litellm.Router, row: dict) -> None:
    """Add a deployment at run time, as the proxy does on /model/new."""
    change(router, upsert=[litellm.types.router.Deployment(**row)])


def remove(router: litellm.Router, deployment_id: str) -> None:
    change(router, delete=[deployment_id])


def change(router: litellm.Router, upsert=(), delete=()) -> None:
    if hasattr(router, "registry"):  # LiteLLM 1.109 and later
        from litellm.router_api import ChangeSet

        router.apply(ChangeSet(upsert=upsert, delete=delete))
        return
    for each in upsert:
        router.add_deployment(each)
    for each in delete:
        router.delete_deployment(id=each)
