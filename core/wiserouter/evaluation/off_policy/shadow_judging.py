"""Blind judging of would-be answers: what the router's choices would have answered in shadow mode, on a bounded budget.

Of the calls whose choice differs from what ran, a sample is judged: the model of the choice answers the prompt, and a
judge compares both answers, in random order and without names. The sample is taken in an order drawn once, as far as
the budget surely pays: the most that each call can cost is known before the first one is made.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.off_policy.observed_calls import ObservedCall
from wiserouter.evaluation.off_policy.would_be_verdicts import VerdictFile, WouldBeVerdict
from wiserouter.judging.blind_pairs import preferred, read_answer
from wiserouter.judging.paid_questions import PaidQuestions, Payment, described, most_usd
from wiserouter.judging.prompts import MOST_CHARS
from wiserouter.judging.settings import JudgeSettings
from wiserouter.validation import check_amount, check_count

logger = logging.getLogger("wiserouter")

LONGEST = chr(0x10FFFF) * MOST_CHARS
"""The answer that costs a judge most, for the bound on a judgement of one that is not known yet."""


class CallTexts(NamedTuple):
    """What was asked, and what the model that ran has answered."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class ShadowJudging:
    """How would-be answers are made and judged.

    Parameters
    ----------
    answers : callable
        Returns the answer of a model to a prompt, `answers(model, prompt)`: a text, or a text and its cost in USD.
    judge : callable
        Compares two answers to a prompt, as in `WiseRouter.judge_with` with an incumbent.
    budget_usd : float
        The most to spend, verdicts of former runs included.
    answer_usd, judge_usd : float, optional, USD
        The most that one answer and one judgement cost; by default what `bound_usd` of the functions says.
    share : float, default 1
        The share of the calls to judge, where the budget pays for it.
    concurrency : int, default 4
        Calls judged at once.
    seed : int, default 0
        Draws the sample and the order of the answers.
    """

    answers: Callable[..., Any]
    judge: Callable[..., Any]
    budget_usd: float
    answer_usd: float | None = None
    judge_usd: float | None = None
    share: float = 1.0
    concurrency: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise InvalidInput(f"share must be above 0 and at most 1, got {self.share!r}", value=self.share)
        for bound, ask, option in (
            (self.answer_usd, self.answers, "answer_usd (--answer-cost)"),
            (self.judge_usd, self.judge, "judge_usd (--judge-cost)"),
        ):
            if bound is None and not hasattr(ask, "bound_usd"):
                raise InvalidInput(f"the cost of judging must be bounded: give {option}, or a function with bound_usd")
        check_amount("budget_usd", self.budget_usd)
        check_count("concurrency", self.concurrency, least=1)

    def bounds_usd(self, call: ObservedCall, texts: CallTexts) -> tuple[float, float]:
        """Return the most that the answer and the judgement of a call can cost."""
        asked = call.would_be, texts.prompt
        answer = most_usd(self.answers, asked, 0.0) if self.answer_usd is None else self.answer_usd
        compared = texts.prompt, texts.answer, LONGEST
        return answer, most_usd(self.judge, compared, 0.0) if self.judge_usd is None else self.judge_usd


@dataclass(frozen=True, slots=True)
class JudgingPlan:
    """What is judged, and what that costs at most.

    Attributes
    ----------
    observed, differing, readable : int
        Number of calls that were only observed; of those whose choice differs from what ran; and of those whose texts
        are known.
    calls : tuple of ObservedCall
        The calls to judge.
    most_answers_usd, most_judgements_usd : float, USD
        The most that answers and judgements cost which no former run has paid for.
    expected_answers_usd : float, USD
        The router's estimate of the cost of these answers.
    """

    observed: int
    differing: int
    readable: int
    calls: tuple[ObservedCall, ...]
    most_answers_usd: float
    most_judgements_usd: float
    expected_answers_usd: float

    @property
    def most_usd(self) -> float:
        """The most that it costs."""
        return self.most_answers_usd + self.most_judgements_usd


def plan_judging(
    judging: ShadowJudging, calls: Sequence[ObservedCall], texts: Mapping[str, CallTexts], former: VerdictFile
) -> JudgingPlan:
    """Return the calls to judge within the budget, and their bounds.

    Parameters
    ----------
    judging : ShadowJudging
        How it is judged.
    calls : sequence of ObservedCall
        The calls of the journal.
    texts : mapping of str to CallTexts
        The texts of calls by their ids.
    former : VerdictFile
        What former runs have judged, which costs nothing more, and spent.
    """
    differing = [call for call in calls if call.differs]
    known = sorted((call for call in differing if call.id in texts), key=lambda call: _draw(judging.seed, call.id))
    wanted = known[: math.ceil(judging.share * len(known))]
    free = (0.0, 0.0)
    bounds = [free if call.id in former.verdicts else judging.bounds_usd(call, texts[call.id]) for call in wanted]
    left_usd = judging.budget_usd - former.spent_usd
    paid = sum(1 for _ in takewhile(lambda total: total <= left_usd, accumulate(map(sum, bounds))))
    new = [call for call in wanted[:paid] if call.id not in former.verdicts]
    answers, judgements = (sum(bound[side] for bound in bounds[:paid]) for side in (0, 1))
    expected = sum(call.expected_usd or 0.0 for call in new)
    return JudgingPlan(len(calls), len(differing), len(known), tuple(wanted[:paid]), answers, judgements, expected)


async def judge_calls(
    judging: ShadowJudging,
    calls: Iterable[ObservedCall],
    texts: Mapping[str, CallTexts],
    pay: Payment,
    book: VerdictFile,
) -> None:
    """Judge calls, some at once, and keep each verdict as it comes.

    Parameters
    ----------
    judging, calls, texts
        As in `plan_judging`; the calls are those of the plan.
    pay : Payment
        Pays from the budget of the judge.
    book : VerdictFile
        Keeps the verdicts; calls that it has are not judged again.
    """
    settings = JudgeSettings(name="shadow")
    waiting = iter([call for call in calls if call.id not in book.verdicts])

    async def judge_waiting() -> None:
        for call in waiting:  # shared by the tasks: each call is taken once
            read = texts[call.id]
            book.begin(call, sum(judging.bounds_usd(call, read)))
            book.add(call, await _verdict(judging, call, read, PaidQuestions(settings, pay)))

    await asyncio.gather(*(judge_waiting() for _ in range(judging.concurrency)))


async def _verdict(
    judging: ShadowJudging, call: ObservedCall, texts: CallTexts, questions: PaidQuestions
) -> WouldBeVerdict:
    """Return the verdict on one call; no failure ends the others."""
    preference, answer_usd = None, None
    try:
        answer, answer_usd = await questions.answered(
            judging.answers, call.would_be, texts.prompt, read=_answer_with_cost, bound_usd=judging.answer_usd
        )
        rng = random.Random(_draw(judging.seed, "order " + call.id))  # noqa: S311
        compared = texts.prompt, answer, texts.answer
        preference = await preferred(questions, judging.judge, compared, rng, judging.judge_usd)
    except Exception as error:  # a call that fails has no verdict
        logger.warning("a would-be answer of %s is not judged: %s", call.would_be, described(error))
    return WouldBeVerdict(preference, answer_usd, questions.spent_usd)


def _answer_with_cost(result: Any) -> tuple[tuple[str, float | None], float | None]:
    text, cost_usd = read_answer(result)
    return (text, cost_usd), cost_usd


def _draw(seed: int, name: str) -> int:
    """Return a number drawn for a name, the same in every run of a seed."""
    return int.from_bytes(blake2b(f"{seed} {name}".encode("utf-8", "surrogatepass"), digest_size=8).digest())
