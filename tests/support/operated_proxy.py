"""A LiteLLM proxy about three weeks into its budget, with the store of three teams, and with mocked models."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from support.proxies import write
from support.questions import OF_KIND, question
from wiserouter import Budget, Model, Price, RoutingLog, Usage, WiseRouter
from wiserouter.budgets.periods import parse_period, window_at
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared import SharedStore

MODELS = ("nano", "mini", "large")
USD_PER_TOKEN = {"nano": (1e-7, 4e-7), "mini": (6e-7, 2.4e-6), "large": (3e-6, 1.5e-5)}
SKILL = np.array([[0.45, 0.70, 0.93], [0.50, 0.82, 0.86], [0.88, 0.90, 0.92], [0.35, 0.62, 0.90]])
"""Mean score by kind of question and model."""

TOKENS = (9_000, 1_500)
DAY_S = 86_400.0


def period_at(now_s: float) -> str:
    """Return a period that began about three weeks ago, whatever the date: a month, or some number of days."""
    periods = ("month", *(f"{n}d" for n in range(30, 90)))
    windows = {every: window_at(parse_period(every), now_s) for every in periods}
    return next(
        every
        for every, (start_s, end_s) in windows.items()
        if 18 * DAY_S <= now_s - start_s <= 28 * DAY_S and end_s - now_s >= DAY_S
    )


EVERY = period_at(time.time())
BUDGET = {"budget_usd": 60.0, "requests": 2_700, "every": EVERY}
TEAMS = {"research": (24.0, 0.45), "assistants": (15.0, 0.3), "search": (9.0, 0.15)}
"""Budget of a team, and its share of the traffic."""


def cost_usd(model: str, tokens: tuple[float, float] = TOKENS) -> float:
    return sum(price * n for price, n in zip(USD_PER_TOKEN[model], tokens, strict=True))


def fitted_router(rng: np.random.Generator, n: int = 600) -> WiseRouter:
    """Return a router that was fitted on a log of scored questions."""
    kinds = rng.integers(0, len(OF_KIND), size=n)
    prompts = [question(rng, kind) for kind in kinds]
    reward = np.clip(SKILL[kinds] + rng.normal(0.0, 0.15, (n, len(MODELS))), 0.0, 1.0)
    cost = np.array([cost_usd(model) for model in MODELS]) * rng.lognormal(0.0, 0.3, (n, 1))
    log = RoutingLog.from_arrays(prompts, reward, cost, MODELS)
    models = [Model(name, Price(*USD_PER_TOKEN[name])) for name in MODELS]
    return WiseRouter.fit(log, encoder="tfidf", n_contexts=4, models=models, seed=0)


class _Clock:
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def seed(folder: Path, now_s: float, *, per_day: int = 120, seed: int = 0) -> None:
    """Write the artifact, and the store after the traffic of the period so far."""
    rng = np.random.default_rng(seed)
    fitted_router(rng).save(folder / "support.wise")
    start_s, _ = window_at(parse_period(EVERY), now_s)
    clock = _Clock(start_s + 60.0)
    engine = SQLiteEngine(folder / "budget.db", clock=clock, decision_ttl_s=14 * DAY_S)
    router = WiseRouter.load(folder / "support.wise", store=SharedStore(engine, clock=clock), seed=seed)
    router.start(Budget(BUDGET["budget_usd"], horizon=BUDGET["requests"], every=EVERY))
    for team, (amount_usd, _) in TEAMS.items():
        router.start(Budget(amount_usd, every=EVERY), scope=f"team:{team}", parent="default")
    names = [*(f"team:{team}" for team in TEAMS), "default"]
    shares = [share for _, share in TEAMS.values()]
    for at_s in _times(rng, clock.now_s, now_s, per_day):
        clock.now_s = at_s
        kind = int(rng.choice(len(OF_KIND), p=[0.3, 0.2, 0.35, 0.15]))
        scope = names[int(rng.choice(len(names), p=[*shares, 1.0 - sum(shares)]))]
        decision = router.decide(question(rng, kind), scope=scope)
        length = float(rng.lognormal(0.0, 0.35))
        router.charge(decision, usage=Usage(*(round(n * length) for n in TOKENS)))
        if rng.random() < 0.3:
            router.reward(decision, float(rng.random() < SKILL[kind, MODELS.index(decision.model)]))
    router.refresh()
    router.close()


def _times(rng: np.random.Generator, from_s: float, until_s: float, per_day: int) -> np.ndarray:
    """Return times of requests: more by day than by night, fewer at weekends."""
    n = round((until_s - from_s) / DAY_S * per_day * 1.6)
    times = np.sort(rng.uniform(from_s, until_s - 1.0, size=n))
    hour, weekday = times / 3_600.0 % 24, (times // DAY_S + 3) % 7
    keep = (0.35 + 0.65 * np.exp(-(((hour - 14) / 5.0) ** 2))) * np.where(weekday >= 5, 0.45, 1.0)
    return times[rng.random(n) < keep]


def deployment(name: str, answer: str, group: str | None = None) -> dict[str, Any]:
    """Return a deployment that answers with a text, without a provider."""
    inputs, outputs = USD_PER_TOKEN[name]
    params = {"model": f"openai/{name}", "api_key": "none", "mock_response": answer}
    prices = {"input_cost_per_token": inputs, "output_cost_per_token": outputs}
    info = {"id": name, "max_input_tokens": 100_000, "max_output_tokens": 4_000}
    return {"model_name": group or name, "litellm_params": {**params, **prices}, "model_info": info}


def config_of(deployments: Sequence[dict[str, Any]] = (), groups: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the configuration of the proxy on the seeded store, with further deployments and groups."""
    teams = {"by": "team", "budgets": {name: {"budget_usd": usd, "every": EVERY} for name, (usd, _) in TEAMS.items()}}
    group = {**BUDGET, "artifact": "./support.wise", "store": "sqlite:///./budget.db", "scopes": teams, "seed": 0}
    routing = [{"group_name": "support", "models": list(MODELS), "routing_strategy": "simple-shuffle"}]
    return {
        "model_list": [*(deployment(name, f"an answer of {name}") for name in MODELS), *deployments],
        "router_settings": {"routing_groups": routing},
        "litellm_settings": {"callbacks": ["wiserouter_litellm.callback"]},
        "callback_settings": {"wiserouter": {"groups": {"support": group, **(groups or {})}}},
        "general_settings": {
            "master_key": "os.environ/LITELLM_MASTER_KEY",
            "custom_auth": "support.operator_auth.auth",
        },
    }


def write_config(
    folder: Path, deployments: Sequence[dict[str, Any]] = (), groups: Mapping[str, Any] | None = None
) -> Path:
    return write(config_of(deployments, groups), folder)
