"""Synthetic chats: turns of five kinds, of which many follow-ups say nothing of their own.

All figures are invented, in the range of public ones: each model has a mean quality on each kind of turn, and answers
are scored one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wiserouter.evaluation.conversations.provider_terms import provider_terms
from wiserouter.evaluation.conversations.workload import Answered, Closing, SimulatedCall, Workload
from wiserouter.types import FloatArray, IntArray

KINDS = ("code", "math", "writing", "facts", "small talk")


class ChatModel(NamedTuple):
    """The behaviour of one model in chats.

    Attributes
    ----------
    quality : tuple of float
        Mean score of an answer on each kind of turn.
    output_tokens : float
        Mean billed tokens of an answer.
    """

    quality: tuple[float, ...]
    output_tokens: float


MODELS = {
    "deepseek-chat": ChatModel((0.78, 0.80, 0.74, 0.75, 0.86), 350.0),
    "gemini-2.5-flash": ChatModel((0.76, 0.82, 0.78, 0.80, 0.88), 600.0),
    "gpt-5-mini": ChatModel((0.84, 0.91, 0.66, 0.76, 0.84), 700.0),
    "claude-haiku-4-5": ChatModel((0.85, 0.80, 0.83, 0.78, 0.90), 350.0),
    "claude-sonnet-4-5": ChatModel((0.93, 0.88, 0.92, 0.87, 0.91), 400.0),
}

FOLLOW_UP = len(KINDS)
"""The context of texts that say nothing of their own."""

STAYS, FOLLOW_UP_SHARE = 0.75, 0.4
"""Probability that a turn is of the kind of the last one, and that it is such a follow-up, which always is."""

MIN_TURNS, MAX_TURNS = 3, 8
SYSTEM_TOKENS, FIRST_TOKENS, TURN_TOKENS, TOKENS_SIGMA = 2_500, 900.0, 250.0, 0.8
VISIBLE_TOKENS = 350
OUTPUT_SIGMA, SCORE_SD = 0.5, 0.15
GAP_S, GAP_SIGMA, MAX_GAP_S = 70.0, 1.2, 3_000.0
BETWEEN_CHATS_S = 60.0


class ChatScript(NamedTuple):
    """All draws of one chat; arrays with one entry per turn."""

    key: str
    start_s: float
    kinds: list[int]
    asks: list[bool]
    added_tokens: IntArray
    gaps_s: FloatArray
    output_factor: FloatArray
    noise: FloatArray

    def open(self) -> ChatSession:
        """Return the chat before its first turn."""
        return ChatSession(self)


_QUALITY = tuple(model.quality for model in MODELS.values())
_OUTPUT_TOKENS = tuple(model.output_tokens for model in MODELS.values())


@dataclass(slots=True)
class ChatSession:
    """A chat in progress."""

    script: ChatScript
    made: int = 0
    prompt_tokens: int = SYSTEM_TOKENS
    quality: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """True after its last turn."""
        return self.made == len(self.script.kinds)

    @property
    def gap_s(self) -> float:
        """Seconds from the last turn to the next one."""
        return float(self.script.gaps_s[self.made - 1])

    def next_call(self) -> SimulatedCall:
        """Return the next turn."""
        asks = self.script.asks[self.made]
        context = self.script.kinds[self.made] if asks else FOLLOW_UP
        return SimulatedCall(context, asks, self.prompt_tokens + int(self.script.added_tokens[self.made]))

    def answer(self, model: int) -> Answered:
        """Let a model serve the next turn."""
        i, script = self.made, self.script
        self.prompt_tokens += int(script.added_tokens[i]) + VISIBLE_TOKENS
        mean = _QUALITY[model][script.kinds[i]]
        self.quality.append(mean)
        self.scores.append(min(max(mean + float(script.noise[i]), 0.0), 1.0))
        self.made += 1
        output_tokens = max(round(_OUTPUT_TOKENS[model] * float(script.output_factor[i])), 1)
        return Answered(output_tokens, self.scores[-1], mean)

    def closing(self) -> Closing:
        """Return the sum of the mean qualities, and the mean score."""
        return Closing(sum(self.quality), sum(self.scores) / len(self.scores))


def chat_workload(seed: int, n_chats: int) -> Workload:
    """Return a workload of chats.

    Examples
    --------
    >>> workload = chat_workload(seed=0, n_chats=2)
    >>> len(workload.scripts), workload.n_contexts
    (2, 6)
    """
    rng = np.random.default_rng([2, seed])
    starts = np.concatenate([[0.0], np.cumsum(rng.exponential(BETWEEN_CHATS_S, n_chats - 1))])
    scripts = [_script(rng, f"chat-{i}", float(at)) for i, at in enumerate(starts)]
    return Workload(
        provider_terms(list(MODELS)), scripts, len(KINDS) + 1, SYSTEM_TOKENS, sum(len(one.kinds) for one in scripts)
    )


def _script(rng: np.random.Generator, key: str, start_s: float) -> ChatScript:
    n = int(rng.integers(MIN_TURNS, MAX_TURNS + 1))
    kinds, asks = [int(rng.integers(len(KINDS)))], [True]
    for _ in range(n - 1):
        follows = bool(rng.random() < FOLLOW_UP_SHARE)
        stays = follows or rng.random() < STAYS
        others = [kind for kind in range(len(KINDS)) if kind != kinds[-1]]
        kinds.append(kinds[-1] if stays else int(rng.choice(others)))
        asks.append(not follows)
    mean_tokens = np.array([FIRST_TOKENS, *[TURN_TOKENS] * (n - 1)])
    tokens = mean_tokens * np.exp(TOKENS_SIGMA * rng.normal(size=n) - 0.5 * TOKENS_SIGMA**2)
    return ChatScript(
        key,
        start_s,
        kinds,
        asks,
        np.maximum(np.rint(tokens), 1.0).astype(np.int64),
        np.minimum(GAP_S * np.exp(GAP_SIGMA * rng.normal(size=n)), MAX_GAP_S),
        np.exp(OUTPUT_SIGMA * rng.normal(size=n) - 0.5 * OUTPUT_SIGMA**2),
        rng.normal(0.0, SCORE_SD, n),
    )
