"""A synthetic workload: prompts of six kinds, and four models with prices and skills.

All prompts, prices and scores are invented; none is taken from a data set or a provider.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.table import Table
from wiserouter.pricing.prices import Price, cost_usd
from wiserouter.testing import SimulatedModels

PRICES = {
    "nano": Price(input=1e-7, output=4e-7),
    "mini": Price(input=5e-7, output=2e-6),
    "coder": Price(input=1.2e-6, output=5e-6),
    "max": Price(input=6e-6, output=3e-5),
}
"""USD per token."""


class QueryKind(NamedTuple):
    """One kind of query: share, prompt templates, mean length of answers, and each model's rate of correct answers."""

    share: float
    templates: tuple[str, ...]
    output_tokens: float
    skill: dict[str, float]


_TOPICS = (
    "the spring invoice",
    "a delayed parcel",
    "the annual report",
    "our holiday policy",
    "the payment service",
    "a broken keyboard",
    "the billing database",
    "customer churn",
    "the mobile app",
    "warehouse stock",
    "the login page",
    "a supplier contract",
)

KINDS = {
    "small talk": QueryKind(
        0.25,
        (
            "hi, could you wish the team a happy weekend and mention {topic}",
            "thanks a lot! please say something kind about {topic}",
            "good morning, write a friendly greeting that mentions {topic}",
        ),
        40,
        {"nano": 0.93, "mini": 0.95, "coder": 0.93, "max": 0.96},
    ),
    "extraction": QueryKind(
        0.20,
        (
            "extract all dates and amounts from this email about {topic} and return json",
            "list the names, order numbers and emails found in the message about {topic} as json fields",
            "pull the phone number and the due date out of this note on {topic}, json only",
        ),
        90,
        {"nano": 0.78, "mini": 0.93, "coder": 0.94, "max": 0.96},
    ),
    "translation": QueryKind(
        0.15,
        (
            "translate this paragraph about {topic} into german and keep the tone",
            "how do you say the following sentence on {topic} in french and spanish",
            "translate the customer's reply on {topic} from polish into english",
        ),
        120,
        {"nano": 0.55, "mini": 0.90, "coder": 0.72, "max": 0.95},
    ),
    "summary": QueryKind(
        0.15,
        (
            "summarise the meeting transcript on {topic} in five bullet points",
            "give me a short summary of this long thread about {topic}, with next steps",
            "condense the discussion of {topic} into one paragraph for the board",
        ),
        160,
        {"nano": 0.70, "mini": 0.86, "coder": 0.75, "max": 0.92},
    ),
    "coding": QueryKind(
        0.15,
        (
            "write a python function with unit tests that reconciles {topic}",
            "fix the bug in this sql query that joins tables for {topic}",
            "refactor the typescript class behind {topic} and explain the stack trace",
        ),
        420,
        {"nano": 0.22, "mini": 0.48, "coder": 0.90, "max": 0.91},
    ),
    "reasoning": QueryKind(
        0.10,
        (
            "prove step by step how many units of {topic} we need if demand grows by 7 percent a month",
            "solve this puzzle on {topic}: three trains, two tickets, and work out every probability",
            "compute the expected value of {topic} under these conditional probabilities, show the equation",
        ),
        600,
        {"nano": 0.12, "mini": 0.35, "coder": 0.45, "max": 0.88},
    ),
}


def simulated_models(rng: np.random.Generator) -> SimulatedModels:
    """Return the four simulated models with the skills of `KINDS`."""
    skill = {name: {kind: spec.skill[name] for kind, spec in KINDS.items()} for name in PRICES}
    return SimulatedModels(PRICES, skill, {kind: spec.output_tokens for kind, spec in KINDS.items()}, rng)


def make_table(n_queries: int, rng: np.random.Generator) -> Table:
    """Return `n_queries` prompts with the score and cost of every model.

    Examples
    --------
    >>> make_table(3, np.random.default_rng(0)).reward.shape
    (3, 4)
    """
    kinds = rng.choice(list(KINDS), size=n_queries, p=[kind.share for kind in KINDS.values()])
    models = simulated_models(rng)
    prompts = [_prompt(kind, rng) for kind in kinds]
    reward, cost = np.empty((n_queries, len(PRICES))), np.empty((n_queries, len(PRICES)))
    for i, (kind, prompt) in enumerate(zip(kinds, prompts, strict=True)):
        for k, (name, price) in enumerate(PRICES.items()):
            reward[i, k], usage = models.call(name, kind, input_tokens=60 + len(prompt) // 4)
            cost[i, k] = cost_usd(price, usage)
    return Table(prompts, reward, cost, tuple(PRICES))


def _prompt(kind: str, rng: np.random.Generator) -> str:
    template = str(rng.choice(KINDS[kind].templates))
    return template.format(topic=rng.choice(_TOPICS))
