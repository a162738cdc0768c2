"""The history that policies are fitted on, and the truth that the oracle knows: every conversation with every model."""

from __future__ import annotations

from typing import NamedTuple

from wiserouter.conversations.call_estimates import CallEstimates
from wiserouter.conversations.conversation import Conversation
from wiserouter.evaluation.conversations.caching_provider import CachingProvider, CallBill
from wiserouter.evaluation.conversations.workload import Answered, Closing, Script, SimulatedCall, Workload
from wiserouter.learning.estimates import Estimates
from wiserouter.pricing.pool import Model


class ServedAlone(NamedTuple):
    """One conversation that one model served from its first call to its last.

    Attributes
    ----------
    calls : list of SimulatedCall
        Its calls.
    bills : list of CallBill
        Their bills.
    times_s : list of float, seconds
        Their times.
    answers : list of Answered
        Their outcomes.
    closing : Closing
        Its outcome.
    """

    calls: list[SimulatedCall]
    bills: list[CallBill]
    times_s: list[float]
    answers: list[Answered]
    closing: Closing

    @property
    def contexts(self) -> list[int]:
        """The context of each call: that of the last one that asked for something."""
        contexts = [self.calls[0].context]
        for call in self.calls[1:]:
            contexts.append(call.context if call.asks else contexts[-1])
        return contexts

    @property
    def costs_usd(self) -> list[float]:
        """Cost of each call."""
        return [bill.cost_usd for bill in self.bills]

    @property
    def cost_usd(self) -> float:
        """Cost of the whole conversation."""
        return sum(self.costs_usd)


def served_alone(workload: Workload) -> list[list[ServedAlone]]:
    """Return each conversation of a workload with each model, none of which shares it with another."""
    models = range(len(workload.terms))
    return [[_served(workload, script, model) for model in models] for script in workload.scripts]


def call_estimates(workload: Workload, alone: list[list[ServedAlone]], *, carries_context: bool) -> Estimates:
    """Return the sums per call.

    Parameters
    ----------
    workload : Workload
        The conversations.
    alone : list of list of ServedAlone
        Their costs and scores. A call without a score of its own has that of its conversation.
    carries_context : bool
        Whether a call that asks for nothing has the context of the one before, instead of one of its own.
    """
    estimates = Estimates(workload.n_contexts, len(workload.terms))
    for row in alone:
        for model, one in enumerate(row):
            contexts = one.contexts if carries_context else [call.context for call in one.calls]
            for context, usd, answer in zip(contexts, one.costs_usd, one.answers, strict=True):
                estimates.add_cost(context, model, usd)
                estimates.add_reward(context, model, one.closing.reward if answer.reward is None else answer.reward)
    return estimates


def run_estimates(workload: Workload, alone: list[list[ServedAlone]], *, with_contexts: bool = True) -> Estimates:
    """Return the sums per conversation, in the context of its first call, or all in one."""
    estimates = Estimates(workload.n_contexts if with_contexts else 1, len(workload.terms))
    for row in alone:
        for model, one in enumerate(row):
            context = one.calls[0].context if with_contexts else 0
            estimates.add_cost(context, model, one.cost_usd)
            estimates.add_reward(context, model, one.closing.reward)
    return estimates


def call_sums(workload: Workload, alone: list[list[ServedAlone]], *, one_context: bool = False) -> CallEstimates:
    """Return the tokens, cache hits and numbers of calls that a router learns from serving these conversations."""
    models = [Model(one.model, one.price) for one in workload.terms]
    learned = CallEstimates(models, 1 if one_context else workload.n_contexts)
    for row in alone:
        for model, one in enumerate(row):
            state = Conversation("", "", "run")
            for i, context in enumerate(one.contexts):
                usage, at_s = one.bills[i].usage, one.times_s[i]
                learned.learn(state, 0 if one_context else context, model, usage, at_s)
                learned.calls_left.made(model, i + 1)
                state = state._replace(prompt_tokens=usage.input_tokens)
                state = state.warmed(models[model].name, usage.input_tokens, at_s)
            learned.end(model, len(one.calls))
    return learned


def _served(workload: Workload, script: Script, model: int) -> ServedAlone:
    provider = CachingProvider(workload.terms, workload.shared_tokens)
    session, now_s = script.open(), script.start_s
    one = ServedAlone([], [], [], [], Closing(0.0, 0.0))
    while not session.is_over:
        now_s += session.gap_s if one.calls else 0.0
        call = session.next_call()
        answered = session.answer(model)
        one.calls.append(call)
        one.bills.append(provider.call(script.key, model, call.prompt_tokens, answered.output_tokens, now_s))
        one.times_s.append(now_s)
        one.answers.append(answered)
    return one._replace(closing=session.closing())
