"""A model of LiteLLM as a judge: it scores a share of the answers in the background, on the event loop of the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

from wiserouter import WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.integration import Judge, JudgeReply, PromptedJudge, RateCard, UnbilledFailure, proves_unbilled
from wiserouter_litellm.billing.bill import usage_of
from wiserouter_litellm.billing.redacted_texts import REDACTED
from wiserouter_litellm.deployments.price_map import may_reason, rate_card_of
from wiserouter_litellm.deployments.registry import Deployment
from wiserouter_litellm.groups.attempts import OpenAttempt
from wiserouter_litellm.requests.origin import metadata_of
from wiserouter_litellm.settings.budget_settings import JudgeBlock
from wiserouter_litellm.settlement.judged_texts import answer_text, instructions_of, question_text

FRAME_TOKENS = 64
"""Tokens that a provider may add to a prompt of one message; its own are at most its bytes."""

REPLY_TOKENS, REASONED_TOKENS = 1_000, 4_000
"""Limits of a reply, and of one of a model that reasons: GPT-5 mini spends some hundreds of tokens before a number."""

JUDGEMENT = {"wiserouter_judgement": uuid4().hex}
"""The metadata of a judge's own calls; no client knows the value."""


class LiteLLMJudge:
    """Prompts a model group of a LiteLLM router.

    Parameters
    ----------
    model : str
        The model group.
    router : callable returning litellm.Router or None
        Called at each judgement, since the proxy makes its router after its callbacks.
    rate_cards : sequence of RateCard
        The prices of its deployments.
    max_output_tokens : int
        The limit of a reply.
    """

    def __init__(
        self, model: str, router: Callable[[], Any], rate_cards: Sequence[RateCard], max_output_tokens: int
    ) -> None:
        self._model, self._router, self._rate_cards = model, router, rate_cards
        self._max_output_tokens = max_output_tokens

    async def reply(self, prompt: str) -> JudgeReply:
        """Return the model's reply to a prompt, and its cost; no fallback answers, which `most_usd` would not bound."""
        router = self._router()
        if router is None:
            raise UnbilledFailure("the proxy has no router yet")
        try:
            response = await router.acompletion(
                model=self._model,
                messages=[{"role": "user", "content": prompt}],
                max_tokens=self._max_output_tokens,
                num_retries=0,
                disable_fallbacks=True,
                metadata=dict(JUDGEMENT),
            )
        except Exception as error:
            if proves_unbilled(error):
                raise UnbilledFailure(type(error).__name__) from error
            raise
        reported_usd = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
        return JudgeReply(answer_text(response), reported_usd or self._cost_usd(response))

    def most_usd(self, prompt: str) -> float:
        """Return the most that the reply to a prompt can cost, whichever deployment gives it."""
        tokens = len(prompt.encode("utf-8", "replace")) + FRAME_TOKENS
        return max(card.worst_case_usd(tokens, self._max_output_tokens) for card in self._rate_cards)

    def _cost_usd(self, response: object) -> float | None:
        """Return the cost of a reply by its tokens; None where it states none, so that its bound counts."""
        usage = usage_of(getattr(response, "usage", None), {})
        known = usage.input_tokens + usage.output_tokens
        return max(card.cost_usd(usage) for card in self._rate_cards) if known else None


def start_judge(
    router: WiseRouter,
    settings: JudgeBlock,
    deployments: Sequence[Deployment],
    litellm_router: Callable[[], Any],
    share: float = 1.0,
) -> None:
    """Start the judge of a router, with a share of its budget.

    Raises
    ------
    InvalidInput
        If the model has no deployment, or a setting is out of range.
    UnknownPrice
        If a deployment has no price.
    """
    if not deployments:
        raise InvalidInput(f"judge.model must be a model of the proxy, got {settings.model!r}", value=settings.model)
    cards = [rate_card_of(deployment) for deployment in deployments]
    limit = settings.max_output_tokens or _output_limit(deployments, cards)
    model = LiteLLMJudge(settings.model, litellm_router, cards, limit)
    router.judge_with(
        PromptedJudge(model.reply, model.most_usd),
        share=settings.share,
        budget_usd=settings.budget_usd * share,
        every=settings.every,
        name=settings.model,
        concurrency=settings.concurrency,
        max_waiting=settings.max_waiting,
        attempts=settings.attempts,
        timeout_s=settings.timeout_s,
        **settings.model_dump(include={"weight", "first_scores"}, exclude_none=True),
    )


def _output_limit(deployments: Iterable[Deployment], cards: Iterable[RateCard]) -> int:
    """Return the limit of a reply where none is stated; thoughts are part of a reply."""
    wanted = REASONED_TOKENS if any(map(may_reason, deployments)) else REPLY_TOKENS
    return min([wanted, *(card.max_output_tokens for card in cards if card.max_output_tokens)])


def offer_answer(judge: Judge, attempt: OpenAttempt | None, kwargs: Mapping[str, Any], response: object) -> None:
    """Offer a call to the judge, with texts that are read in the background; not one of a judge, or from a cache."""
    if attempt is None or kwargs.get("cache_hit") or is_judgement(kwargs):
        return
    with suppress(RuntimeError):  # a synchronous call may run on a thread without an event loop
        judge.run_on(asyncio.get_running_loop())
    messages = kwargs.get("messages") or kwargs.get("input")
    question = partial(_readable, question_text, messages, instructions_of(kwargs))
    judge.offer(attempt.decision, question, partial(_readable, answer_text, response))


def is_judgement(kwargs: Mapping[str, Any]) -> bool:
    """Return True if a log event is that of a judge's own call, which has reached a judged group."""
    return JUDGEMENT.items() <= metadata_of(kwargs.get("litellm_params") or {}).items()


def _readable(text_of: Callable[..., str], *sources: object) -> str:
    """Return a text to judge; raise `InvalidInput` where there is none, or it must not be read."""
    text = text_of(*sources)
    if not text.strip() or REDACTED in text:
        raise InvalidInput("a call is judged by its text, got none, or one that LiteLLM has redacted")
    return text
