"""The conversations of a workload in the order of their calls, as they interleave in time."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from wiserouter.evaluation.conversations.caching_provider import CachingProvider
from wiserouter.evaluation.conversations.policies import ConversationPolicy
from wiserouter.evaluation.conversations.workload import Session, Workload


@dataclass(slots=True)
class SimulatedClock:
    """The time of the simulation, in seconds."""

    now_s: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


class Served(NamedTuple):
    """The outcome of a policy on a workload.

    Attributes
    ----------
    quality : float
        Mean expected reward per scored unit.
    spend_usd, wasted_usd : float, USD
        True cost, and the part of it that was paid for prefixes that another model had read.
    calls, switches : int
        Number of calls, and of those by another model than the call before.
    """

    quality: float
    spend_usd: float
    wasted_usd: float
    calls: int
    switches: int


def serve(workload: Workload, policy: ConversationPolicy, clock: SimulatedClock) -> Served:
    """Serve all conversations of a workload, call by call in the order of time."""
    provider = CachingProvider(workload.terms, workload.shared_tokens)
    due: list[tuple[float, int]] = [(script.start_s, i) for i, script in enumerate(workload.scripts)]
    heapify(due)
    sessions: dict[int, Session] = {}
    last_model: dict[int, int] = {}
    quality = spend_usd = wasted_usd = 0.0
    calls = switches = 0
    while due:
        clock.now_s, i = heappop(due)
        key = workload.scripts[i].key
        session = sessions.get(i) or sessions.setdefault(i, workload.scripts[i].open())
        call = session.next_call()
        model = policy.choose(key, call)
        answered = session.answer(model)
        bill = provider.call(key, model, call.prompt_tokens, answered.output_tokens, clock.now_s)
        policy.charge(key, bill.usage, bill.cost_usd, answered.reward)
        calls += 1
        switches += last_model.get(i, model) != model
        last_model[i] = model
        spend_usd += bill.cost_usd
        wasted_usd += bill.wasted_usd
        if not session.is_over:
            heappush(due, (clock.now_s + session.gap_s, i))
            continue
        closing = sessions.pop(i).closing()
        quality += closing.quality
        policy.end(key, closing.reward)
        provider.forget(key)
        del last_model[i]
    return Served(quality / workload.n_scored, spend_usd, wasted_usd, calls, switches)
