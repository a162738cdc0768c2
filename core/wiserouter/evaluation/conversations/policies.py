"""The policies: routers with a unit of decision, called as in production: decide, charge, reward, end.

- `call`: each call is decided alone, in the context of its own text;
- `pinned`: the same router decides the first call, and its model keeps the conversation, as session affinity does;
- `conversation`: each call is decided with what is in the caches, in the context of the last text that asks for
  something;
- `run`: one decision per conversation, planned with the cost and the reward of whole conversations;
- `never-switch`: one decision per conversation that does not read its text: the best mixture of models.

The bound, `oracle`, is in `oracle.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pvariance
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np

from wiserouter.artifacts.parts import RouterParts
from wiserouter.artifacts.save_load import save
from wiserouter.budgets.budget import Budget
from wiserouter.conversations.settings import Conversations
from wiserouter.evaluation.conversations.history import ServedAlone, call_estimates, call_sums, run_estimates
from wiserouter.evaluation.conversations.workload import SimulatedCall, Workload
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.policies import Offline
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Usage
from wiserouter.prompts.contexts import Contexts
from wiserouter.router import WiseRouter
from wiserouter.stores.memory import MemoryStore
from wiserouter.types import Decision, FloatArray

PolicyName = Literal["call", "pinned", "conversation", "run", "never-switch"]
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)

PRIOR_CONVERSATIONS = 20.0
"""Number of conversations that the history's mean number of calls counts for."""


class ConversationPolicy(Protocol):
    """A policy as the simulation calls it."""

    def choose(self, key: str, call: SimulatedCall) -> int:
        """Return the model for the next call of a conversation."""
        ...

    def charge(self, key: str, usage: Usage, cost_usd: float, reward: float | None) -> None:
        """Take the bill of that call, and its score if it has one of its own."""
        ...

    def end(self, key: str, reward: float) -> None:
        """Take the end of a conversation, and its score."""
        ...


class History:
    """The sums that the routers of one seed start from."""

    def __init__(self, workload: Workload, alone: list[list[ServedAlone]]) -> None:
        models = [Model(one.model, one.price) for one in workload.terms]
        self.mean_calls = float(np.mean([len(one.calls) for row in alone for one in row]))
        shared, single = (call_sums(workload, alone, one_context=one).sums() for one in (False, True))
        self._parts = {
            "call": _parts(models, call_estimates(workload, alone, carries_context=False)),
            "conversation": _parts(models, call_estimates(workload, alone, carries_context=True), shared),
            "run": _parts(models, run_estimates(workload, alone), shared),
            "never-switch": _parts(models, run_estimates(workload, alone, with_contexts=False), single),
        }

    def router(self, name: PolicyName, clock: Callable[[], float], seed: int) -> WiseRouter:
        """Return the router of a policy, as one that was saved and is loaded again."""
        store = MemoryStore(clock, max_decisions=1_000_000)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "history.wise"
            save(self._parts["call" if name == "pinned" else name], path)
            router = WiseRouter.load(path, store=store, seed=seed)
        if name not in {"call", "pinned"}:
            router.keep_conversations(Conversations(unit="conversation" if name == "conversation" else "run"))
        return router


def open_policy(
    name: PolicyName, history: History, budget_usd: float, n_conversations: int, clock: Callable[[], float], seed: int
) -> ConversationPolicy:
    """Return a policy with a fresh budget."""
    router = history.router(name, clock, seed)
    if name in {"run", "never-switch"}:
        return RunPolicy(router, budget_usd, n_conversations, with_contexts=name == "run")
    return CallPolicy(router, budget_usd, n_conversations, history.mean_calls, unit=name)


class Rest(NamedTuple):
    """What an open conversation still needs: mean number of calls, and mean and variance of their cost in USD."""

    calls: float
    mean_usd: float
    variance_usd2: float


class CallPolicy:
    """A router that decides every call, or of `pinned` conversations the first one.

    The horizon is in calls, whose number depends on the models. It is forecast after each conversation: the calls so
    far, for each open one the mean rest of those that ended later than it is, and for each one to come the mean of all.
    Conversations that keep their model are paid for first: what the longer ones with that model still cost at this
    point is held back from the budget, at the mean of all open ones and a standard deviation more.
    """

    def __init__(
        self, router: WiseRouter, budget_usd: float, n_conversations: int, mean_calls: float, *, unit: PolicyName
    ) -> None:
        self._router, self._unit = router, unit
        self._n_conversations, self._mean_calls, self._budget_usd = n_conversations, mean_calls, budget_usd
        self._spent_usd: defaultdict[str, list[float]] = defaultdict(lambda: [0.0])  # of each open one, after each call
        self._ended_usd: defaultdict[str, list[list[float]]] = defaultdict(
            list
        )  # the same of those that ended, by model
        self._open: dict[str, list[Decision]] = {}
        self._scored: set[str] = set()
        self._ended = self._calls = self._calls_of_ended = 0
        horizon = max(round(n_conversations * mean_calls), 1)
        router.start(Budget(budget_usd, horizon, on_exhausted="cheapest"))

    def choose(self, key: str, call: SimulatedCall) -> int:
        """Return the model for the next call of a conversation."""
        decisions = self._open.setdefault(key, [])
        decision = self._decide(key, call, decisions)
        decisions.append(decision)
        self._calls += 1
        return self._router.pool.index(decision.model)

    def charge(self, key: str, usage: Usage, cost_usd: float, reward: float | None) -> None:
        """Take the bill of that call, and its score if it has one of its own."""
        decision = self._open[key][-1]
        self._router.charge(decision, cost_usd, usage=usage)
        self._spent_usd[key].append(self._spent_usd[key][-1] + cost_usd)
        if reward is not None:
            self._router.reward(decision, reward)
            self._scored.add(key)

    def end(self, key: str, reward: float) -> None:
        """Take the end of a conversation, and its score, which is that of all its calls if they have none."""
        decisions = self._open.pop(key)
        if key not in self._scored:
            for decision in decisions:
                self._router.reward(decision, reward)
        if self._unit == "conversation":
            self._router.end(key)
        self._scored.discard(key)
        self._ended += 1
        self._calls_of_ended += len(decisions)
        self._ended_usd[self._group(decisions)].append(self._spent_usd.pop(key))
        self._forecast()

    def _decide(self, key: str, call: SimulatedCall, decisions: list[Decision]) -> Decision:
        if self._unit == "conversation":
            context = call.context if call.asks or not decisions else None
            return self._router.decide(context=context, conversation=key, input_tokens=call.prompt_tokens)
        pinned = [decisions[0].model] if self._unit == "pinned" and decisions else None
        return self._router.decide(context=call.context, eligible=pinned, input_tokens=call.prompt_tokens)

    def _forecast(self) -> None:
        """Set the horizon: the calls so far, and the mean number of those of the conversations not yet ended."""
        known = PRIOR_CONVERSATIONS + self._ended
        mean = (PRIOR_CONVERSATIONS * self._mean_calls + self._calls_of_ended) / known
        rests = [self._rest(key, decisions, mean) for key, decisions in self._open.items()]
        to_begin = mean * (self._n_conversations - self._ended - len(self._open))
        if self._unit == "pinned" and to_begin:
            held_usd = sum(rest.mean_usd for rest in rests) + math.sqrt(sum(rest.variance_usd2 for rest in rests))
            self._router.set_budget(
                amount_usd=self._budget_usd - held_usd, horizon=self._calls + max(round(to_begin), 1)
            )
        else:
            in_progress = sum(rest.calls for rest in rests)
            horizon = self._calls + max(round(in_progress + to_begin), 1)
            self._router.set_budget(amount_usd=self._budget_usd, horizon=horizon)

    def _rest(self, key: str, decisions: Sequence[Decision], mean_calls: float) -> Rest:
        """Return the rest of an open conversation: that of the longer ones that ended."""
        n = len(decisions)
        longer = [spent_usd for spent_usd in self._ended_usd[self._group(decisions)] if len(spent_usd) > n + 1]
        if longer:
            usd = [one[-1] - one[n] for one in longer]
            return Rest(fmean(len(one) - 1 - n for one in longer), fmean(usd), pvariance(usd))
        calls = max(mean_calls - n, 1.0)
        return Rest(calls, calls * self._spent_usd[key][-1] / n, 0.0)

    def _group(self, decisions: Sequence[Decision]) -> str:
        """Return the name that tells comparable conversations: the model that a pinned one keeps."""
        return decisions[0].model if self._unit == "pinned" else ""


class RunPolicy:
    """A router that decides once per conversation."""

    def __init__(self, router: WiseRouter, budget_usd: float, n_conversations: int, *, with_contexts: bool) -> None:
        self._router, self._with_contexts = router, with_contexts
        self._decisions: dict[str, Decision] = {}
        router.start(Budget(budget_usd, n_conversations, on_exhausted="cheapest"))

    def choose(self, key: str, call: SimulatedCall) -> int:
        """Return the model for the next call of a conversation."""
        context = call.context if self._with_contexts else 0
        decision = self._router.decide(context=context, conversation=key, input_tokens=call.prompt_tokens)
        self._decisions[key] = decision
        return self._router.pool.index(decision.model)

    def charge(self, key: str, usage: Usage, cost_usd: float, reward: float | None) -> None:
        """Take the bill of that call; its score is a part of that of the conversation."""
        self._router.charge(self._decisions[key], cost_usd, usage=usage)

    def end(self, key: str, reward: float) -> None:
        """Take the end of a conversation, and its score."""
        self._router.reward_conversation(key, reward)
        self._router.end(key)
        del self._decisions[key]


def _parts(models: Sequence[Model], estimates: Estimates, sums: Mapping[str, FloatArray] | None = None) -> RouterParts:
    """Return the parts of a fitted router, with contexts as frequent as in the history; no text is placed."""
    share = estimates.calls.sum(axis=1)
    contexts = Contexts(np.arange(len(share), dtype=np.float64)[:, np.newaxis], share / share.sum())
    return RouterParts(models, contexts, None, Offline(), estimates, call_sums=sums)
