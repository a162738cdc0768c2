"""Blind pairs: two answers to one prompt, in random order and without the names of their models."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from wiserouter.judging.paid_questions import PaidQuestions
from wiserouter.judging.verdict import read_verdict
from wiserouter.validation import check_amount


async def preferred(
    questions: PaidQuestions,
    ask: Callable[..., Any],
    texts: tuple[str, str, str],
    rng: random.Random,
    bound_usd: float | None = None,
) -> float:
    """Return 1 where the first of two answers is better, 0 where the second is, 0.5 for a tie.

    Parameters
    ----------
    questions : PaidQuestions
        Asks and pays.
    ask : callable
        The judge, a function of a prompt and two answers.
    texts : tuple of str
        The prompt and the two answers.
    rng : random.Random
        Draws the order in which the judge gets them.
    bound_usd : float, optional, USD
        The most that the judgement costs, as in `PaidQuestions.answered`.
    """
    prompt, one, other = texts
    swapped = rng.random() < 0.5
    pair = (other, one) if swapped else (one, other)
    score = await questions.answered(ask, prompt, *pair, read=read_verdict, bound_usd=bound_usd)
    return 1.0 - score if swapped else score


def read_answer(result: Any) -> tuple[str, float | None]:
    """Return an answer and its cost in USD, None where that is unknown, of a text or of a pair of both.

    Examples
    --------
    >>> read_answer("Paris."), read_answer(("Paris.", 0.001))
    (('Paris.', None), ('Paris.', 0.001))
    """
    if isinstance(result, tuple):
        text, cost_usd = result
        return str(text), None if cost_usd is None else check_amount("cost_usd", cost_usd)
    return str(result), None
