"""A chat model as a judge: it scores a share of the answers in the background, in threads of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage

from wiserouter import Decision, Price, WiseRouter
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter.integration import (
    CallRequest,
    Judge,
    JudgeReply,
    PromptedJudge,
    UnbilledFailure,
    proves_unbilled,
)
from wiserouter_langchain.billing.settlement import bill_of_run
from wiserouter_langchain.billing.usage_observer import ModelRun, UsageObserver
from wiserouter_langchain.pool.pool_member import PoolMember, pool_member
from wiserouter_langchain.requests.limits import CallLimits
from wiserouter_langchain.requests.request import request_of

MAX_OUTPUT_TOKENS = 1_000
"""The limit of a reply that a judge with a budget and without a limit is sent by default; its verdict is a number."""

_CHAT_MODEL_TERMS = ("price", "max_output_tokens")
"""The terms that only a chat model has."""


class ChatModelJudge:
    """Prompts a chat model, synchronously: its asynchronous client may belong to another event loop.

    Parameters
    ----------
    member : PoolMember
        The chat model, with its prices.
    max_output_tokens : int or None
        The limit of a reply, which is sent with it.
    """

    def __init__(self, member: PoolMember, max_output_tokens: int | None) -> None:
        self._member, self._max_output_tokens = member, max_output_tokens
        self._model, _ = member.bounded(CallLimits(max_output_tokens), None, {})

    def reply(self, prompt: str) -> JudgeReply:
        """Return the model's reply to a prompt, and its cost."""
        try:
            message: Any = self._model.invoke(prompt)
        except Exception as error:
            if proves_unbilled(error):
                raise UnbilledFailure(type(error).__name__) from error
            raise
        return JudgeReply(str(message.text), self._cost_usd(message, _request_of(prompt)))

    def most_usd(self, prompt: str) -> float:
        """Return the most that the reply to a prompt can cost; infinite where nothing bounds it."""
        request = _request_of(prompt)._replace(output_tokens=self._max_output_tokens)
        return self._member.worst_case_usd(request, request.input_bound_tokens, None)

    def _cost_usd(self, message: BaseMessage, request: CallRequest) -> float | None:
        """Return the cost of a reply, as that of any call; None where it states none, so that its bound counts."""
        bill = bill_of_run(ModelRun(message), self._member.present_card(), request, hard=True).bill
        return None if bill is None else bill.cost_usd


def _request_of(prompt: str) -> CallRequest:
    return request_of([HumanMessage(prompt)], {}, reads_question=False)


def start_judge(
    router: WiseRouter,
    judge: BaseChatModel | Callable[..., Any] | None,
    share: float,
    budget_usd: float | None,
    terms: dict[str, Any],
) -> None:
    """Start the judge of a router, where there is one.

    Parameters
    ----------
    router : WiseRouter
        The router.
    judge : BaseChatModel or callable, optional
        A chat model, which is prompted; or a function as in `WiseRouter.judge_with`.
    share, budget_usd : float and float, optional
        The share of the calls to judge, and the judge's own budget.
    terms : dict
        Further terms of `WiseRouter.judge_with`; and of a chat model its `price`, and `max_output_tokens`, the limit of
        a reply (1,000 where there is a budget).

    Raises
    ------
    InvalidInput
        If a term is out of range, or there are terms and no judge that has them.
    UnknownPrice
        If there is a budget, and the chat model has no price, or nothing bounds what a reply costs.
    """
    if judge is None:
        if terms or budget_usd is not None:
            raise InvalidInput("judge_budget_usd and judge_terms need a judge, got none")
        return
    others = {name: value for name, value in terms.items() if name not in _CHAT_MODEL_TERMS}
    ask: Any = judge
    if isinstance(judge, BaseChatModel):
        ask = _prompted(judge, terms.get("price"), terms.get("max_output_tokens"), has_budget=budget_usd is not None)
    elif own := [name for name in _CHAT_MODEL_TERMS if name in terms]:
        raise InvalidInput(f"{own[0]} is a term of a chat model as a judge, got a function: give it cost_usd instead")
    router.judge_with(ask, share=share, budget_usd=budget_usd, **others)


def _prompted(
    model: BaseChatModel, price: Price | None, max_output_tokens: int | None, *, has_budget: bool
) -> PromptedJudge:
    """Return a judge that prompts a chat model; without a budget and a price its replies count as free."""
    try:
        member = pool_member("judge", model, price if has_budget or price else Price(0.0, 0.0))
    except UnknownPrice:
        raise UnknownPrice("judge", "price: give judge_terms={'price': Price(input=..., output=...)}") from None
    limit = _limit(member, max_output_tokens, has_budget=has_budget)
    judge = ChatModelJudge(member, limit)
    if not has_budget:
        return PromptedJudge(judge.reply)
    if judge.most_usd("") == float("inf"):
        told = member.unbounded or (
            f"{type(model).__name__} has no field that limits its output, and no profile that says how long it can be: "
            "judge with a model that has one, or with a function and judge_terms={'cost_usd': ...}"
        )
        raise UnknownPrice("judge", f"bound on the cost of a reply, which judge_budget_usd needs: {told}")
    return PromptedJudge(judge.reply, judge.most_usd)


def _limit(member: PoolMember, stated: int | None, *, has_budget: bool) -> int | None:
    """Return the limit of a reply that a judge is sent; None where it has one of its own, or no field for one."""
    if stated is None:
        return MAX_OUTPUT_TOKENS if has_budget and member.can_be_capped else None
    if not isinstance(stated, int) or isinstance(stated, bool) or stated < 1:
        raise InvalidInput(f"max_output_tokens must be a whole number of at least 1, got {stated!r}", value=stated)
    if member.limit_field is None:
        told = f"got {stated} for {type(member.model).__name__}: leave it out"
        raise InvalidInput(f"max_output_tokens needs a judge with a field that limits its output, {told}", value=stated)
    return stated


def offer_answer(judge: Judge, decision: Decision, messages: Sequence[BaseMessage], observer: UsageObserver) -> None:
    """Offer a call to the judge, with texts that are read in the background; one without an answer is not judged."""
    last = observer.runs[-1] if observer.runs else None
    if last is not None and last.error is None and last.message is not None and not decision.would_be:
        judge.offer(decision, partial(_question, messages), partial(_answer, last.message))


def _question(messages: Sequence[BaseMessage]) -> str:
    return _readable("\n\n".join(f"{message.type}: {_said(message)}" for message in messages))


def _answer(message: BaseMessage) -> str:
    return _readable(_said(message))


def _said(message: BaseMessage) -> str:
    """Return the text of a message, and the calls of tools in it."""
    calls = [f"calls {call['name']} with {call['args']}" for call in getattr(message, "tool_calls", None) or ()]
    return "\n".join([str(message.text), *calls])


def _readable(text: str) -> str:
    if not text.strip():
        raise InvalidInput("a call is judged by its text, got none")
    return text
