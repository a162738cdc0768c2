"""A chat model as a judge: it scores a share of the answers in the background, in threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from wiserouter import Decision, Price, Usage, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.integration import (
    Judge,
    JudgeReply,
    PromptedJudge,
    RateCard,
    UnbilledFailure,
    proves_unbilled,
)
from wiserouter_langchain.price_catalogue import rate_card_of
from wiserouter_langchain.usage_observer import UsageObserver

FRAME_TOKENS = 64
"""Tokens that a provider may add to a prompt of one message; its own are at most its bytes."""

MAX_OUTPUT_TOKENS = 1_000
"""The longest reply of a judge, for the bound on its cost; its verdict is a number."""


class ChatModelJudge:
    """Prompts a chat model, synchronously in a thread: its asynchronous client may belong to another event loop.

    Parameters
    ----------
    model : BaseChatModel
        The chat model.
    rate_card : RateCard, optional
        Its prices; without them its replies count as free.
    """

    def __init__(self, model: BaseChatModel, rate_card: RateCard | None) -> None:
        self._model, self._rate_card = model, rate_card

    async def reply(self, prompt: str) -> JudgeReply:
        """Return the model's reply to a prompt, and its cost."""
        try:
            message: Any = await asyncio.to_thread(self._model.invoke, prompt)
        except Exception as error:
            if proves_unbilled(error):
                raise UnbilledFailure(type(error).__name__) from error
            raise
        return JudgeReply(str(message.text), self._cost_usd(message))

    def most_usd(self, prompt: str) -> float:
        """Return the most that the reply to a prompt can cost."""
        tokens = len(prompt.encode("utf-8", "replace")) + FRAME_TOKENS
        return 0.0 if self._rate_card is None else self._rate_card.worst_case_usd(tokens, MAX_OUTPUT_TOKENS)

    def _cost_usd(self, message: BaseMessage) -> float | None:
        """Return the cost of a reply by its tokens; None where it states none, so that its bound counts."""
        usage = getattr(message, "usage_metadata", None)
        if self._rate_card is None or not usage:
            return None
        tokens: Usage = Usage.clamped(usage["input_tokens"], usage["output_tokens"], 0, 0, 0)
        return self._rate_card.cost_usd(tokens)


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
        Further terms of `WiseRouter.judge_with`, and `price` for that of a chat model.

    Raises
    ------
    InvalidInput
        If a term is out of range, or there are terms and no judge.
    UnknownPrice
        If there is a budget, and the chat model has no price.
    """
    if judge is None:
        if terms or budget_usd is not None:
            raise InvalidInput("judge_budget_usd and judge_terms need a judge, got none")
        return
    price: Price | None = terms.get("price")
    others = {name: value for name, value in terms.items() if name != "price"}
    ask: Any = judge
    if isinstance(judge, BaseChatModel):
        card = None if budget_usd is None and price is None else rate_card_of("judge", judge, price)
        model = ChatModelJudge(judge, card)
        ask = PromptedJudge(model.reply, model.most_usd)
    router.judge_with(ask, share=share, budget_usd=budget_usd, **others)


def offer_answer(judge: Judge, decision: Decision, messages: Sequence[BaseMessage], observer: UsageObserver) -> None:
    """Offer a call to the judge, with texts that are read in the background; one without an answer is not judged."""
    last = observer.runs[-1] if observer.runs else None
    if last is not None and last.error is None and last.message is not None and not decision.would_be:
        judge.offer(decision, partial(_question, messages), partial(_answer, last.message))


def _question(messages: Sequence[BaseMessage]) -> str:
    return _readable("\n\n".join(f"{message.type}: {message.text}" for message in messages))


def _answer(message: BaseMessage) -> str:
    calls = [f"calls {call['name']} with {call['args']}" for call in getattr(message, "tool_calls", None) or ()]
    return _readable("\n".join([str(message.text), *calls]))


def _readable(text: str) -> str:
    if not text.strip():
        raise InvalidInput("a call is judged by its text, got none")
    return text
