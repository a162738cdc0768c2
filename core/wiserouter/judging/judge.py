"""A judge in the loop: it scores a share of the answers in the background, on a budget of its own.

A request only offers its texts: they are queued, or dropped where the queue is full, and never awaited. Tasks on an
event loop, that of the caller or one in a thread of its own, ask the judge and hand its scores on. Texts are kept in
memory until they are judged, and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from threading import RLock, Thread, get_ident
from typing import Any, NamedTuple

from wiserouter.errors import BudgetError, BudgetExhausted
from wiserouter.judging.blind_pairs import preferred, read_answer
from wiserouter.judging.paid_questions import PaidQuestions, Payment, described
from wiserouter.judging.sampling import SystematicSample
from wiserouter.judging.settings import JudgeSettings
from wiserouter.judging.verdict import read_verdict
from wiserouter.parallel.forks import held_at_fork
from wiserouter.pricing.amounts import usd
from wiserouter.types import NO_CONTEXT, Decision

logger = logging.getLogger("wiserouter")

Text = str | Callable[[], str]
"""A text, or a function that makes it in the background."""


class JudgedCall(NamedTuple):
    """A call that waits for the judge."""

    decision_id: str
    model: str
    prompt: Text
    answer: Text


@dataclass(slots=True)
class JudgeCounts:
    """What has become of the calls that a judge was offered.

    Attributes
    ----------
    offered, judged : int
        Calls that the judge could have been asked about, and those that it scored.
    dropped : int
        Calls that were not judged since too many waited.
    failed : int
        Calls about which the judge failed, or gave no score that can be read, after all attempts.
    unpaid : int
        Calls that were not judged since the judge's budget was used up.
    kept_back : int
        Scores that are not learned yet, since there are fewer than `first_scores`.
    spent_usd : float, USD
        Cost of the judgements of this process.
    """

    offered: int = 0
    judged: int = 0
    dropped: int = 0
    failed: int = 0
    unpaid: int = 0
    kept_back: int = 0
    spent_usd: float = 0.0


class Judge:
    """Asks a judge about a share of the calls, and hands its scores on; made by `WiseRouter.judge_with`.

    Parameters
    ----------
    ask : callable
        The judge.
    settings : JudgeSettings
        Its name, share, concurrency and limits.
    score : callable
        Takes a decision id and a score; a coroutine function.
    pay : Payment
        Pays from the judge's budget.
    rng : random.Random
        Draws starts of the sample, the order of two answers, and pauses before another attempt.
    sleep : callable, default asyncio.sleep
        Waits before another attempt.
    passed : callable, optional
        Returns the share of the horizon that has passed.
    learned : callable, optional
        Returns the number of its scores that were learned before, by any worker.

    Attributes
    ----------
    counts : JudgeCounts
        What has become of the calls.
    """

    def __init__(
        self,
        ask: Callable[..., Any],
        settings: JudgeSettings,
        score: Callable[[str, float], Awaitable[object]],
        pay: Payment,
        rng: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        passed: Callable[[], float] | None = None,
        learned: Callable[[], int] = int,
    ) -> None:
        self.settings, self.counts = settings, JudgeCounts()
        self._ask, self._score, self._rng = ask, score, rng
        self._learned, self._kept_back = learned, list[tuple[str, float]]()
        self._questions = PaidQuestions(settings, pay, sleep)
        self._sample = SystematicSample(settings.share, rng, passed)
        self._waiting: deque[JudgedCall] = deque()
        self._held: OrderedDict[str, JudgedCall] = OrderedDict()
        self._lock = held_at_fork(RLock())
        self._tasks: set[asyncio.Task[None]] = set()
        self._active: set[object] = set()
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: int | None = None
        self._stops: Callable[[], object] = _nothing_to_stop
        self._closed = False

    def offer(self, decision: Decision, prompt: Text, answer: Text) -> bool:
        """Let a call be judged if it falls into the share; return at once, True if it waits for the judge.

        Parameters
        ----------
        decision : Decision
            The decision of the call; one without a context teaches nothing and is not judged.
        prompt, answer : str or callable
            What was asked and answered; a function is called in the background, if at all.
        """
        if self._closed or decision.context == NO_CONTEXT or not decision.model:
            return False
        call = JudgedCall(decision.id, decision.model, prompt, answer)
        with self._lock:
            self.counts.offered += 1
            if self._sample.takes(decision.context, decision.model):
                return self._enqueue(call)
            if self.settings.held:
                self._held[decision.run_id or decision.id] = call  # a person scores the run
                if len(self._held) > self.settings.held:
                    self._held.popitem(last=False)
        return False

    def offer_scored(self, decision_id: str) -> bool:
        """Let a call be judged that a person has scored, if its texts are still held, so that the two compare."""
        with self._lock:
            call = self._held.pop(decision_id, None)
            return call is not None and not self._closed and self._enqueue(call)

    def waits(self) -> int:
        """Return the number of calls that wait for the judge or are with it."""
        return len(self._waiting) + len(self._active)

    def run_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask the judge on this event loop from now on; by default it runs in a thread of its own."""
        with self._lock:
            if loop is not self._loop:
                self._begin_on(loop, get_ident())

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Wait until no call waits, unless called on the judge's own event loop; return True if that was in time."""
        ends_s = time.monotonic() + timeout_s
        while self.waits() and time.monotonic() < ends_s:
            time.sleep(0.002)
        return not self.waits()

    async def aflush(self, timeout_s: float = 30.0) -> bool:
        """Wait until no call waits; return True if that was in time."""
        return await asyncio.to_thread(self.flush, timeout_s)

    def forget_waiting(self) -> None:
        """Forget the calls that wait; those that are with the judge are scored."""
        with self._lock:
            self._waiting.clear()

    def close(self) -> None:
        """Judge no further call: those that wait are forgotten, and those under way are cancelled."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._held.clear()
            loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._cancel)
        self._stops()

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _enqueue(self, call: JudgedCall) -> bool:
        if len(self._waiting) >= self.settings.max_waiting:
            self.counts.dropped += 1
            if self.counts.dropped == 1:
                logger.warning(
                    "%s cannot keep up: %d calls wait, further ones are not judged",
                    self.settings.source,
                    len(self._waiting),
                )
            return False
        loop = self._running_loop()
        self._waiting.append(call)
        if len(self._active) < self.settings.concurrency:
            self._active.add(place := object())
            if self._loop_thread == get_ident():
                self._start(place)
            else:
                loop.call_soon_threadsafe(self._start, place)
        return True

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that the judge runs on; where there is none, or it has ended, one in a new thread."""
        if self._loop is None or self._loop.is_closed() or self._pid != os.getpid():
            loop = asyncio.new_event_loop()
            thread = Thread(target=_run, args=(loop,), name=self.settings.source, daemon=True)
            thread.start()
            self._begin_on(loop, thread.ident)
            self._stops = weakref.finalize(self, _stop, loop, thread)
        return self._loop  # type: ignore[return-value]

    def _begin_on(self, loop: asyncio.AbstractEventLoop, thread: int | None) -> None:
        """Run on a new loop; calls that one which runs no more, or the parent of this process, had are lost here."""
        forked = self._pid != os.getpid()
        if forked or self._loop is None or not self._loop.is_running():
            self._active.clear()
        self._loop, self._loop_thread, self._tasks = loop, thread, set()
        if forked:
            self._pid = os.getpid()
            self._waiting.clear()  # the parent judges them

    def _start(self, place: object) -> None:
        """Start a task for the calls that wait, in one of the `concurrency` places; on the loop."""
        task = asyncio.get_running_loop().create_task(self._judge_waiting(place), context=Context())  # not the caller's
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _judge_waiting(self, place: object) -> None:
        """Judge calls until none waits, and give the place back."""
        try:
            while True:
                with self._lock:
                    if not self._waiting:
                        self._active.discard(place)
                        return
                    call = self._waiting.popleft()
                await self._judge(call)
        finally:
            self._active.discard(place)

    async def _judge(self, call: JudgedCall) -> None:
        """Judge one call; no failure of the judge ends the task."""
        try:
            score = await self._asked(_text(call.prompt), _text(call.answer), call.model)
            await self._hand_on(call.decision_id, score)
        except BudgetError as error:
            self.counts.unpaid += 1
            if self.counts.unpaid == 1:
                logger.warning("%s", self._unpaid_line(error))
        except Exception as error:  # whatever a judge raises, requests go on
            self.counts.failed += 1
            level = logging.WARNING if self.counts.failed == 1 else logging.DEBUG
            logger.log(level, "%s failed: %s", self.settings.source, described(error))
        else:
            self.counts.judged += 1
        finally:
            self.counts.spent_usd = self._questions.spent_usd

    def _unpaid_line(self, error: BudgetError) -> str:
        """Return a line on a budget that is used up, and on the scores that are then not learned."""
        settings, kept = self.settings, len(self._kept_back)
        if isinstance(error, BudgetExhausted) and error.needed_usd > error.amount_usd + error.carried_usd:
            rule = f"a judgement by {settings.source} may cost {usd(error.needed_usd)}, more than its whole budget"
            return f"{rule} of {usd(error.amount_usd)}, and is not made: raise the budget, or limit the judge's output"
        line = f"{settings.source} has used up its budget: further calls are not judged"
        if not kept:
            return line
        rule = f"{line}, and {kept:,} scores are not learned, fewer than first_scores={settings.first_scores:,}"
        return f"{rule}: give it a larger budget, or smaller first_scores"

    async def _hand_on(self, decision_id: str, score: float) -> None:
        """Hand a score on; the first ones together, once there are enough to show a preference for cheap models."""
        self._kept_back.append((decision_id, score))
        if self._learned() + len(self._kept_back) >= self.settings.first_scores:
            scores, self._kept_back = self._kept_back, []
            for one in scores:
                await self._score(*one)
        self.counts.kept_back = len(self._kept_back)

    async def _asked(self, prompt: str, answer: str, model: str) -> float:
        """Return the score of an answer; with an incumbent 1 where it is better than the incumbent's, 0 where worse."""
        settings = self.settings
        if settings.incumbent is None:
            return await self._questions.answered(self._ask, prompt, answer, read=read_verdict)
        if model == settings.incumbent_model:
            return 0.5
        other = await self._questions.answered(settings.incumbent, prompt, read=read_answer)
        return await preferred(self._questions, self._ask, (prompt, answer, other), self._rng)


def _text(text: Text) -> str:
    return text if isinstance(text, str) else text()


def _nothing_to_stop() -> None:
    """Stop no thread: none was started."""


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped; what is under way then is cancelled."""
    asyncio.set_event_loop(loop)
    loop.run_forever()
    under_way = asyncio.all_tasks(loop)
    for task in under_way:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*under_way, return_exceptions=True))
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: Thread) -> None:
    if loop.is_closed():
        return
    loop.call_soon_threadsafe(loop.stop)
    if thread.ident != get_ident():  # in which a judge may be collected, too
        thread.join(timeout=5.0)
