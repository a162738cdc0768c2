"""Questions that cost money: each is paid within a budget, bounded in time, and asked again where it may pass."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from math import isclose
from typing import Any, Protocol, TypeVar

from wiserouter.errors import InvalidInput, WiseRouterError
from wiserouter.judging.settings import JudgeSettings
from wiserouter.judging.verdict import NoVerdict
from wiserouter.parallel.forks import import_between_forks
from wiserouter.validation import check_amount

logger = logging.getLogger("wiserouter")

MOST_GIVEN_UP = 32
"""Threads of questions that were given up and have not ended, from which on no function is called in another one."""

GIVEN_UP = "wiserouter-judgement-given-up"
"""The name of such a thread."""

Value = TypeVar("Value")

Reader = Callable[[Any], tuple[Value, float | None]]
"""Takes a result to its value and its cost in USD, None where that is unknown."""


class Payment(Protocol):
    """Pays an amount in USD, or takes it back where it is negative.

    Raises `BudgetError` where the budget is used up, unless the amount is billed already.
    """

    def __call__(self, cost_usd: float, *, billed: bool = False) -> Awaitable[object]: ...  # noqa: D102


class PaidQuestions:
    """Asks functions of any kind, and pays for what they cost.

    Parameters
    ----------
    settings : JudgeSettings
        The limits of a question.
    pay : Payment
        Pays from the judge's budget.
    sleep : callable, default asyncio.sleep
        Waits before another attempt.

    Attributes
    ----------
    spent_usd : float, USD
        Cost of all questions so far.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        pay: Payment,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings, self._pay, self._sleep = settings, pay, sleep
        self.spent_usd = 0.0

    async def answered(
        self, ask: Callable[..., Any], *texts: str, read: Reader[Value], bound_usd: float | None = None
    ) -> Value:
        """Return the result of a question, after at most `attempts` attempts.

        Parameters
        ----------
        ask : callable
            A function or coroutine function of the texts.
        *texts : str
            Its arguments.
        read : callable
            Takes its result to the value and its cost.
        bound_usd : float, optional, USD
            The most that an attempt costs; by default what its `bound_usd` says, or the settings.
        """
        import_between_forks("tenacity")
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

        attempts = AsyncRetrying(
            stop=stop_after_attempt(self._settings.attempts),
            wait=wait_random_exponential(multiplier=self._settings.pause_s, max=60.0),
            retry=retry_if_exception(_may_pass),
            sleep=self._sleep,
            reraise=True,
        )
        value: Value = await attempts(self._paid, ask, texts, read, bound_usd)
        return value

    async def _paid(
        self, ask: Callable[..., Any], texts: tuple[str, ...], read: Reader[Value], bound_usd: float | None
    ) -> Value:
        """Return the result of one attempt, whose bound is paid before, and the rest returned afterwards.

        A question that failed at an unknown cost is presumed to have cost its bound.
        """
        bound_usd = most_usd(ask, texts, self._settings.cost_usd) if bound_usd is None else bound_usd
        if bound_usd:
            await self._pay(bound_usd)
        cost_usd: float | None = None
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                result = await result_of(ask, texts)
            value, cost_usd = read(result)
            return value
        except Exception as error:
            cost_usd = _stated_usd(error)
            raise
        finally:
            cost_usd = bound_usd if cost_usd is None else cost_usd
            self.spent_usd += cost_usd
            await self._settle(cost_usd, bound_usd)

    async def _settle(self, cost_usd: float, bound_usd: float) -> None:
        """Return the rest of a bound; a cost beyond it is spent, whether or not the budget bears it."""
        rest_usd = cost_usd - bound_usd
        if rest_usd:
            await self._pay(rest_usd, billed=True)
        if cost_usd > bound_usd > 0.0 and not isclose(cost_usd, bound_usd):
            logger.warning(
                "%s cost %.3g USD more than its bound: give cost_usd, the most that one judgement costs",
                self._settings.source,
                rest_usd,
            )


def most_usd(ask: Callable[..., Any], texts: tuple[str, ...], otherwise_usd: float) -> float:
    """Return the most that a question costs, as the `bound_usd` of its function says, where it has one."""
    bound = getattr(ask, "bound_usd", None)
    return otherwise_usd if bound is None else float(bound(*texts))


class EndedByJudge(Exception):
    """A judge ended itself: it raised `SystemExit`, or `CancelledError` where no one had cancelled it."""


async def result_of(ask: Callable[..., Any], texts: tuple[str, ...]) -> Any:
    """Return the result of a function of any kind, called in a thread of its own unless it is a coroutine function.

    What it raises to end itself ends the question alone, and not the task or the event loop that asks.
    """
    try:
        return await _called(ask, texts)
    except (asyncio.CancelledError, SystemExit) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise EndedByJudge(type(error).__name__) from error


async def _called(ask: Callable[..., Any], texts: tuple[str, ...]) -> Any:
    given = {"inputs": texts[0], "outputs": texts[1]} if len(texts) == 2 and takes_names(ask) else {}
    positional = () if given else texts
    if inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(getattr(ask, "__call__", None)):  # noqa: B004
        return await ask(*positional, **given)
    result = await _called_in_own_thread(ask, *positional, **given)
    return await result if inspect.isawaitable(result) else result


async def _called_in_own_thread(ask: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a function, called in a thread for which neither a process nor an event loop waits to end.

    Those of an executor are waited for: a judge that hangs would keep a program from its end.
    """
    _check_given_up()
    future, context = Future[Any](), copy_context()
    future.set_running_or_notify_cancel()

    def call() -> None:
        try:
            future.set_result(context.run(ask, *args, **kwargs))
        except StopIteration as error:  # which no future of an event loop takes
            future.set_exception(RuntimeError(f"a judge raised {error!r}"))
        except BaseException as error:  # whatever it raises is raised where it is awaited
            future.set_exception(error)

    thread = threading.Thread(target=call, name="wiserouter-judgement", daemon=True)
    thread.start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        thread.name = GIVEN_UP
        raise


def _check_given_up() -> None:
    """Refuse a question, at no cost, while too many that were given up have not ended."""
    given_up = sum(thread.name == GIVEN_UP for thread in threading.enumerate())
    if given_up >= MOST_GIVEN_UP:
        raise NoVerdict(
            f"a judge must end: {given_up} judgements that were given up have not; give its calls a timeout below "
            "timeout_s",
            cost_usd=0.0,
        )


def takes_names(ask: Callable[..., Any]) -> bool:
    """Return True if a function takes its texts by the names `inputs` and `outputs`, as evaluators of openevals do."""
    try:
        return {"inputs", "outputs"} <= set(inspect.signature(ask).parameters)
    except (TypeError, ValueError):
        return False


def described(error: Exception) -> str:
    """Return an error of our own as it is, and any other by its type: its text may quote the prompt."""
    return str(error) if isinstance(error, WiseRouterError) else type(error).__name__


def _stated_usd(error: Exception) -> float | None:
    """Return the cost that an error states; None where it states none, or no amount."""
    cost_usd: Any = getattr(error, "cost_usd", None)
    try:
        return check_amount("cost_usd", cost_usd)
    except InvalidInput:
        return None


def _may_pass(error: BaseException) -> bool:
    """Return True if another attempt may succeed: not after a cancellation, a refusal of the budget, or nonsense."""
    return isinstance(error, Exception) and not isinstance(error, WiseRouterError)
