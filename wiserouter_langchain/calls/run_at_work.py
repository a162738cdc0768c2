"""The run whose tool is at work: what the tool calls through the same router draws on the budget of that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from wiserouter import WiseRouter
from wiserouter_langchain.calls.call_environment import CallEnvironment
from wiserouter_langchain.decisions.conversation_call import NamedRun


@dataclass(frozen=True, slots=True)
class RunAtWork:
    """A run whose tool is at work.

    Attributes
    ----------
    core : WiseRouter
        Keeps its budget.
    id : str
        Its id.
    payer : str or None
        The scope that the program lets pay for it; None where the configuration says so.
    """

    core: WiseRouter
    id: str
    payer: str | None = None


_at_work: ContextVar[tuple[RunAtWork, ...]] = ContextVar("wiserouter_at_work", default=())
"""The runs at work, at most one of each router: a tool may call an agent of another one."""


@contextmanager
def tool_at_work(run: RunAtWork) -> Iterator[None]:
    """Let the calls within the block work for a run."""
    others = tuple(each for each in _at_work.get() if each.core is not run.core)
    token = _at_work.set((*others, run))
    try:
        yield
    finally:
        _at_work.reset(token)


def run_at_work(core: WiseRouter) -> RunAtWork | None:
    """Return the run of a router whose tool is at work; None outside of tools."""
    return next((run for run in _at_work.get() if run.core is core), None)


def within_run(environment: CallEnvironment) -> CallEnvironment:
    """Return the environment of a call: within a tool, that of the run at work, unless the program has named another.

    Parameters
    ----------
    environment : CallEnvironment
        That of the router which is called.
    """
    run = run_at_work(environment.core)
    if run is None or environment.unit != "run":
        return environment
    named = environment.named_run if environment.named_run.id else NamedRun(run.id)
    return replace(environment, named_run=named, payer=environment.payer or run.payer)
