r"""Synthetic agent runs: a task, and for each model the calls that it would need and the probability that it succeeds.

The parameters follow published figures of runs on SWE-bench Verified: success rates and distributions of the number of
calls by model; no outcome of any real run is copied. A run of task :math:`i` of kind :math:`j` with model :math:`k` has

.. math:: \mathrm{logit}\, p_{ik} = a_k + e_j + d_{jk} + x_i + y_{ik}, \qquad \log n_{ik} = m_k + l_j + s_k z_{ik},

with an ease :math:`e_j` and an affinity :math:`d_{jk}` of the kind that routing can learn, and normal :math:`x, y, z`
that it cannot. A call by model :math:`k` is :math:`1 / n_{ik}` of the run. Where several models share one, it succeeds
with the mean of their probabilities by share ("linear"), or with the least of those that did a tenth of it ("worst").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from wiserouter.evaluation.conversations.provider_terms import provider_terms
from wiserouter.evaluation.conversations.workload import Answered, Closing, SimulatedCall, Workload
from wiserouter.types import FloatArray, IntArray

Credit = Literal["linear", "worst"]


class AgentModel(NamedTuple):
    """The behaviour of one model on runs.

    Attributes
    ----------
    logit : float
        Log odds of success on a task of mean ease.
    median_calls, sigma_calls : float
        The lognormal distribution of the number of calls.
    output_tokens : float
        Mean billed tokens of an answer.
    """

    logit: float
    median_calls: float
    sigma_calls: float
    output_tokens: float


MODELS = {
    "gpt-5-nano": AgentModel(-0.90, 17.0, 1.00, 1_500.0),
    "o4-mini": AgentModel(-0.28, 18.5, 0.66, 900.0),
    "gemini-2.5-pro": AgentModel(0.21, 16.5, 0.62, 700.0),
    "gpt-5": AgentModel(0.86, 12.0, 0.44, 1_100.0),
    "claude-sonnet-4": AgentModel(0.86, 33.0, 0.46, 200.0),
    "claude-opus-4": AgentModel(1.03, 28.0, 0.43, 200.0),
}

EASE = (1.6, 0.9, 0.3, -0.3, -0.9, -1.6)
"""Log odds of the six kinds of task, beyond the mean."""

AFFINITY_SEED, AFFINITY_SD = 17, 0.5
"""The table of 6 x 6 affinities is one draw, the same for every workload."""

LENGTH = (0.75, 0.85, 0.95, 1.05, 1.15, 1.25)
"""Calls of the six kinds, relative to the mean."""

TASK_SD, TASK_MODEL_SD = 0.8, 0.6
CALLS_CORRELATION = 0.45
"""Correlation of the log number of calls between two models on one task."""

MAX_CALLS = 250
SYSTEM_TOKENS, TASK_TOKENS, TASK_SIGMA = 5_000, 1_800.0, 0.5
OBSERVATION_TOKENS, OBSERVATION_SIGMA = 650.0, 0.9
VISIBLE_TOKENS = 150
"""Tokens of each answer that stay in the history."""

OUTPUT_SIGMA = 0.6
GAP_S, GAP_SIGMA, LONG_GAP_SHARE, LONG_GAP_S = 12.0, 0.8, 0.01, 900.0
"""Median seconds between calls, their spread, and the share of pauses that outlive most caches."""

BETWEEN_RUNS_S = 60.0
WORST_SHARE = 0.1


class AgentTask(NamedTuple):
    """All draws of one run; arrays of shape (n_models,) or (MAX_CALLS,)."""

    key: str
    start_s: float
    kind: int
    success: FloatArray
    calls: IntArray
    luck: float
    first_tokens: int
    observed_tokens: IntArray
    gaps_s: FloatArray
    output_factor: FloatArray
    credit: Credit

    def open(self) -> AgentRun:
        """Return the run before its first call."""
        return AgentRun(self, self.first_tokens, [0.0] * len(self.calls))


_MEAN_OUTPUT = tuple(model.output_tokens for model in MODELS.values())


@dataclass(slots=True)
class AgentRun:
    """A run in progress."""

    task: AgentTask
    prompt_tokens: int
    shares: list[float]
    made: int = 0

    @property
    def is_over(self) -> bool:
        """True after its last call."""
        return self.made >= MAX_CALLS or sum(self.shares) > 1.0 - 1e-9

    @property
    def gap_s(self) -> float:
        """Seconds from the last call to the next one."""
        return float(self.task.gaps_s[self.made - 1])

    def next_call(self) -> SimulatedCall:
        """Return the next call; all of a run ask for the task."""
        return SimulatedCall(self.task.kind, self.made == 0, self.prompt_tokens)

    def answer(self, model: int) -> Answered:
        """Let a model serve the next call."""
        task, shares = self.task, self.shares
        output = max(round(_MEAN_OUTPUT[model] * float(task.output_factor[self.made])), 1)
        shares[model] += 1.0 / float(task.calls[model])
        self.prompt_tokens += VISIBLE_TOKENS + int(task.observed_tokens[self.made])
        self.made += 1
        return Answered(output)

    def closing(self) -> Closing:
        """Return the probability of success, and the outcome."""
        probability = self._probability()
        return Closing(probability, float(self.task.luck < probability))

    def _probability(self) -> float:
        share = np.array(self.shares) / sum(self.shares)
        if self.task.credit == "worst":
            return float(self.task.success[share >= min(WORST_SHARE, float(share.max()))].min())
        return float(share @ self.task.success)


def agent_workload(seed: int, n_runs: int, credit: Credit = "linear") -> Workload:
    """Return a workload of agent runs.

    Parameters
    ----------
    seed : int
        Seeds all draws.
    n_runs : int
        Number of runs.
    credit : {"linear", "worst"}, default "linear"
        The worth of a run that several models share.

    Examples
    --------
    >>> workload = agent_workload(seed=0, n_runs=3)
    >>> len(workload.scripts), workload.n_contexts, workload.scripts[0].start_s
    (3, 6, 0.0)
    """
    rng = np.random.default_rng([1, seed])
    starts = np.concatenate([[0.0], np.cumsum(rng.exponential(BETWEEN_RUNS_S, n_runs - 1))])
    tasks = [_task(rng, f"run-{i}", float(at), credit) for i, at in enumerate(starts)]
    return Workload(provider_terms(list(MODELS)), tasks, len(EASE), SYSTEM_TOKENS, n_runs)


def _task(rng: np.random.Generator, key: str, start_s: float, credit: Credit) -> AgentTask:
    kind = int(rng.integers(len(EASE)))
    models = MODELS.values()
    logit = np.array([model.logit for model in models]) + EASE[kind] + _affinity()[kind]
    logit = logit + rng.normal(0.0, TASK_SD) + rng.normal(0.0, TASK_MODEL_SD, len(MODELS))
    common, own = rng.normal(), rng.normal(size=len(MODELS))
    z = np.sqrt(CALLS_CORRELATION) * common + np.sqrt(1.0 - CALLS_CORRELATION) * own
    calls = LENGTH[kind] * np.array([m.median_calls for m in models]) * np.exp(z * [m.sigma_calls for m in models])
    pauses = rng.random(MAX_CALLS) < LONG_GAP_SHARE
    return AgentTask(
        key,
        start_s,
        kind,
        1.0 / (1.0 + np.exp(-logit)),
        np.clip(np.rint(calls), 3, MAX_CALLS).astype(np.int64),
        float(rng.random()),
        SYSTEM_TOKENS + round(TASK_TOKENS * float(np.exp(TASK_SIGMA * rng.normal()))),
        _lognormal(rng, OBSERVATION_TOKENS, OBSERVATION_SIGMA, MAX_CALLS).astype(np.int64),
        np.where(pauses, LONG_GAP_S, GAP_S * np.exp(GAP_SIGMA * rng.normal(size=MAX_CALLS))),
        _lognormal(rng, 1.0, OUTPUT_SIGMA, MAX_CALLS),
        credit,
    )


def _lognormal(rng: np.random.Generator, mean: float, sigma: float, n: int) -> FloatArray:
    """Return draws of a lognormal distribution of this mean."""
    draws: FloatArray = mean * np.exp(sigma * rng.normal(size=n) - 0.5 * sigma**2)
    return draws


def _affinity() -> FloatArray:
    """Return the log odds by which models differ on the kinds of task; they even out over the kinds."""
    table: FloatArray = np.random.default_rng(AFFINITY_SEED).normal(0.0, AFFINITY_SD, (len(EASE), len(MODELS)))
    even: FloatArray = table - table.mean(axis=0)
    return even
