"""A chat model as a judge: the prompts that it gets, and its replies read strictly."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from wiserouter.judging.paid_questions import result_of
from wiserouter.judging.prompts import comparing_prompt, grading_prompt, preference_of_reply, score_of_reply
from wiserouter.judging.verdict import NoVerdict, Verdict, read_verdict


class JudgeReply(NamedTuple):
    """The reply of a chat model, and its cost in USD, None where that is unknown."""

    text: str
    cost_usd: float | None = None


class PromptedJudge:
    """A judge that prompts a chat model: for the score of one answer, or for the better of two.

    Parameters
    ----------
    reply : callable
        Returns the `JudgeReply` to a prompt; a function, called in a thread of its own, or a coroutine function.
    most_usd : callable, optional
        The most that the reply to a prompt can cost, in USD; 0 by default.

    Examples
    --------
    >>> import asyncio
    >>> async def reply(prompt: str) -> JudgeReply:
    ...     return JudgeReply("0.5", 0.001)
    >>> asyncio.run(PromptedJudge(reply)("What is 2 + 2?", "Perhaps 4."))
    Verdict(score=0.5, cost_usd=0.001)
    """

    def __init__(
        self, reply: Callable[[str], JudgeReply | Awaitable[JudgeReply]], most_usd: Callable[[str], float] | None = None
    ) -> None:
        self._reply, self._most_usd = reply, most_usd

    async def __call__(self, prompt: str, *answers: str) -> Verdict:
        """Return the score of an answer, or that of the first of two; raise `NoVerdict` after an unreadable reply."""
        text, cost_usd = await result_of(self._reply, (_asked(prompt, answers),))
        try:
            read = score_of_reply(text) if len(answers) == 1 else preference_of_reply(text)
        except NoVerdict as error:
            raise NoVerdict(str(error), cost_usd) from None
        return read_verdict(read)._replace(cost_usd=cost_usd)

    def bound_usd(self, prompt: str, *answers: str) -> float:
        """Return the most that a judgement can cost."""
        return 0.0 if self._most_usd is None else self._most_usd(_asked(prompt, answers))


def _asked(prompt: str, answers: tuple[str, ...]) -> str:
    mark = f"#{secrets.token_hex(8)}#"
    if len(answers) == 1:
        return grading_prompt(prompt, answers[0], mark)
    first, second = answers
    return comparing_prompt(prompt, first, second, mark)
