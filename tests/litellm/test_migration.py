"""The migration guides from LiteLLM's budgets and routers: their code is run, on the same calls before and after."""

import ast
import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace

import httpx
import litellm
import pytest
import yaml

from support.groups import HI, asked
from support.providers import URL, answer, cost_usd, deployment
from support.semantic_router import stand_in
from wiserouter import Budget
from wiserouter.errors import UnknownPrice
from wiserouter_litellm import attach
from wiserouter_litellm.settings.proxy_settings import settings_of

GUIDES = Path(__file__).parents[2] / "docs" / "migrating"


def blocks(guide, language):
    return re.findall(rf"```{language}\n(.*?)```", (GUIDES / guide).read_text(encoding="utf-8"), re.DOTALL)


BEFORE, AFTER = blocks("litellm-budgets.md", "python")
(PROXY,) = blocks("litellm-budgets.md", "yaml")
RULES, BUDGETED, UTTERANCES = blocks("litellm-auto-router.md", "python")
THRESHOLD, AMOUNT = blocks("routellm.md", "python")
HARD_WORDS = (
    "Think step by step, then prove: does this distributed algorithm's function `f(x)` converge? Then write code."
)
LIMIT_USD = 0.003


@pytest.fixture
def scope():
    names = {"litellm": litellm, "attach": attach, "Budget": Budget}
    return names | {"deployments": [deployment("small"), deployment("large")]}


async def crowd(router, n=40):
    """Send calls at once, and return the number of those answered."""
    calls = [router.acompletion(model="wise", messages=HI, max_tokens=60) for _ in range(n)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    return sum(not isinstance(one, BaseException) for one in answers)


def billed_usd(provider):
    return sum(cost_usd(name) for name in asked(provider))


async def test_a_provider_budget_lets_a_crowd_pass_its_limit(provider, scope, flushed):
    exec(BEFORE, scope)
    for _ in range(3):
        await crowd(scope["router"])
        await flushed()
    assert billed_usd(provider) > 2 * LIMIT_USD


async def test_the_budget_of_the_group_holds_for_the_same_crowd(provider, scope, settled):
    exec(AFTER, scope)
    answered = [await crowd(scope["router"]) for _ in range(3)]
    status = scope["callback"].groups["wise"].router.status
    await settled(lambda: status().in_flight == 0)
    assert sum(answered) == len(asked(provider)) > 0
    assert billed_usd(provider) <= LIMIT_USD
    assert status().spent_usd == pytest.approx(billed_usd(provider), rel=1e-9)


async def test_a_provider_budget_that_stays_is_kept_beside_the_groups(provider, scope, flushed):
    exec(BEFORE.replace("0.003", "0.000001"), scope)
    callback = attach(scope["router"], "wise", budget=Budget(1.0, 200, limit="hard"), cap_output_tokens=60)
    assert await crowd(scope["router"], n=1) == 1
    await flushed()
    assert await crowd(scope["router"], n=1) == 0
    status = callback.groups["wise"].router.status()
    assert (len(asked(provider)), status.in_flight) == (1, 0)
    assert status.spent_usd == pytest.approx(billed_usd(provider), rel=1e-9)


def test_the_block_for_the_proxy_is_one_that_it_takes():
    groups = settings_of(yaml.safe_load(PROXY)["callback_settings"]["wiserouter"]).groups
    assert groups["wise"].scopes.by == "team"


async def test_rules_send_hard_words_to_the_large_model_whatever_it_costs(provider, scope):
    names = scope | {"deployments": [deployment(name, name) for name in ("small", "large")]}
    exec(RULES, names)
    for text in ("hello", HARD_WORDS, HARD_WORDS):
        await names["router"].acompletion(model="smart", messages=[{"role": "user", "content": text}])
    assert asked(provider) == ["small", "large", "large"]


async def test_a_budget_learns_which_hard_words_the_small_model_answers(provider, scope, settled):
    names = scope | {"deployments": [deployment(name, name) for name in ("small", "large")]}
    exec(BUDGETED, names)
    callback, status = names["callback"], names["callback"].groups["smart"].router.status
    for n in range(60):
        messages = [{"role": "user", "content": f"{HARD_WORDS} Case {n}."}]
        answer = await names["router"].acompletion(model="smart", messages=messages)
        await settled(lambda n=n: status().charged == n + 1)
        callback.feedback(answer, 1.0 if asked(provider)[-1] == "small" else 0.8)
    assert asked(provider)[-30:].count("small") >= 24
    assert status().spent_usd == pytest.approx(billed_usd(provider), rel=1e-9)
    assert billed_usd(provider) < 0.5 * 60 * cost_usd("large")


EMBEDDER = {
    "model_name": "embedder",
    "litellm_params": {"model": "openai/text-embedding-3-small", "api_base": URL, "api_key": "sk-provider"},
}
TEXTS = ("hello there, friend", "prove that this diverges", "something else")


@pytest.fixture
def utterances(provider, scope, monkeypatch):
    """Return the names that the guide's block on utterances leaves, with an embedding model that counts two words."""

    def answered(request):
        if not request.url.path.endswith("/embeddings"):
            return answer(request)
        texts = json.loads(request.content)["input"]
        rows = [[float("prove" in text), float("hello" in text), 0.2] for text in texts]
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        usage = {"prompt_tokens": 10, "total_tokens": 10}
        return httpx.Response(200, json={"object": "list", "model": "embedder", "data": data, "usage": usage})

    stand_in(monkeypatch)
    provider.routes[0].mock(side_effect=answered)
    deployments = [deployment(name, name) for name in ("small", "large")]
    names = scope | {"json": json, "embedder": EMBEDDER, "deployments": deployments}
    exec(UTTERANCES, names)
    return names


async def test_utterances_choose_a_model_by_an_embedding_of_each_request(provider, utterances):
    for text in TEXTS:
        await utterances["router"].acompletion(model="smart", messages=[{"role": "user", "content": text}])
    chats = [name for name in asked(provider) if name in {"small", "large"}]
    assert chats == ["small", "large", "small"]
    assert asked(provider).count("text-embedding-3-small") >= 1 + len(TEXTS)  # the utterances, and each request


async def test_the_budget_that_takes_the_place_of_utterances_asks_no_embedding_model(provider, utterances, settled):
    exec(BUDGETED, utterances)
    for text in TEXTS:
        await utterances["router"].acompletion(model="smart", messages=[{"role": "user", "content": text}])
    assert set(asked(provider)) <= {"small", "large"}
    status = utterances["callback"].groups["smart"].router.status
    await settled(lambda: status().charged == len(TEXTS))
    assert status().spent_usd == pytest.approx(billed_usd(provider), rel=1e-9)


@pytest.mark.parametrize("limit", ["hard", "expected"])
async def test_an_auto_router_before_a_budgeted_group_is_charged_to_it(provider, utterances, settled, limit):
    callback = attach(utterances["router"], "large", budget=Budget(1.0, 60, limit=limit), cap_output_tokens=60)
    for text in TEXTS:
        await utterances["router"].acompletion(model="smart", messages=[{"role": "user", "content": text}])
    status = callback.groups["large"].router.status
    await settled(lambda: status().charged == 1)
    assert status().spent_usd == pytest.approx(cost_usd("large"), rel=1e-9)


async def test_a_budget_on_the_name_of_an_auto_router_is_refused(utterances):
    with pytest.raises(UnknownPrice, match="'auto_router/smart' has no price: it is one of LiteLLM's auto routers"):
        attach(utterances["router"], "smart", budget=Budget(1.0, 60))


class Controller:
    """RouteLLM's call and rule: strong where the predicted rate reaches the threshold in the name of the model."""

    def __init__(self, routers, strong_model, weak_model, api_base, api_key):
        self.models, self.keys = (strong_model, weak_model), {"api_base": api_base, "api_key": api_key}
        self.routers, self.chat = routers, SimpleNamespace(completions=SimpleNamespace(create=self.create))

    def create(self, model, messages):
        prefix, name, threshold = model.split("-", 2)
        assert (prefix, name in self.routers) == ("router", True)
        rate = len(messages[-1]["content"]) % 5 / 5 - 0.65  # reaches the threshold for one length in five
        return litellm.completion(self.models[rate < float(threshold)], messages=messages, max_tokens=60, **self.keys)


async def executed(block, scope):
    """Run a block of code that awaits, in a scope."""
    await eval(compile(block, "guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), scope)


async def test_a_share_of_strong_calls_becomes_the_amount_that_it_costs(provider, settled, monkeypatch):
    keys = ("input_cost_per_token", "output_cost_per_token", "api_base", "api_key")
    params = {name: {key: deployment(name)["litellm_params"][key] for key in keys} for name in ("small", "large")}
    known = {
        f"openai/{name}": {"litellm_provider": "openai"} | {key: one[key] for key in keys[:2]}
        for name, one in params.items()
    }
    monkeypatch.setattr(litellm, "model_cost", dict(litellm.model_cost))
    litellm.register_model(known)
    scope = {"litellm": litellm, "attach": attach, "Budget": Budget, "Controller": Controller, "messages": HI}
    scope |= {"strong": "openai/large", "weak": "openai/small", "strong_usd": cost_usd("large")}
    scope |= {key: params["small"][key] for key in keys[2:]} | {"weak_usd": cost_usd("small")}
    exec(THRESHOLD, scope)
    for n in range(59):
        question = [{"role": "user", "content": "?" * (n + 1)}]
        scope["client"].chat.completions.create(model="router-mf-0.11593", messages=question)
    before_usd = billed_usd(provider)
    assert asked(provider).count("large") == 12
    await executed(AMOUNT, scope)
    callback, status = scope["callback"], scope["callback"].groups["router-mf-0.11593"].router.status
    for n in range(59):
        question = [{"role": "user", "content": f"Question {n}"}]
        answer = await scope["router"].acompletion(model="router-mf-0.11593", messages=question)
        await settled(lambda n=n: status().charged == n + 2)
        callback.feedback(answer, 1.0 if answer.model == "large" else 0.2)
    assert billed_usd(provider) - before_usd <= scope["amount_usd"]
    assert status().spent_usd == pytest.approx(billed_usd(provider) - before_usd, rel=1e-9)
    assert 5 <= asked(provider)[60:].count("large") <= 12
