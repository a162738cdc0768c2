"""The simulated methods by name: each is a policy with the estimates that it starts from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.simulation.environment import Environment
from wiserouter.evaluation.simulation.epsilon_greedy import EpsilonGreedy
from wiserouter.evaluation.simulation.known_costs import KnownCosts
from wiserouter.evaluation.simulation.linucb import LinUcb
from wiserouter.evaluation.simulation.oracle import Oracle
from wiserouter.evaluation.simulation.random_policy import RandomChoice
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.policies import EpsilonFirst, Optimistic, Policy, open_policy

LENGTHS_PER_PAIR = (1, 2, 4, 8)
"""Default exploration lengths of epsilon-first, in requests per (context, model)."""


class SimulatedMethod(NamedTuple):
    """A policy with its initial estimates."""

    policy: Policy
    estimates: Estimates


_BASELINES: dict[str, Callable[[Environment], Policy]] = {
    "random": lambda environment: RandomChoice(environment.cost_usd),
    "epsilon-greedy": lambda environment: EpsilonGreedy(environment.cost_usd),
    "linucb": lambda environment: LinUcb(environment.cost_usd),
    "oracle": lambda environment: Oracle(environment.plan),
}

_OURS = (Optimistic.name,)
_KNOWN, _UNKNOWN = "epsilon-first-known-", "epsilon-first-"


def default_methods(n_pairs: int) -> tuple[str, ...]:
    """Return all methods, epsilon-first with 1, 2, 4 and 8 exploration requests per (context, model).

    Examples
    --------
    >>> [name for name in default_methods(121) if name.endswith("-484")]
    ['epsilon-first-484', 'epsilon-first-known-484']
    """
    lengths = [each * n_pairs for each in LENGTHS_PER_PAIR]
    first = [f"{prefix}{length}" for prefix in (_UNKNOWN, _KNOWN) for length in lengths]
    return (*_OURS, *first, *_BASELINES)


def open_method(name: str, environment: Environment) -> SimulatedMethod:
    """Return the method of this name, ready for one run.

    Raises
    ------
    InvalidInput
        If no method has this name.
    """
    if name.startswith(_KNOWN):
        return SimulatedMethod(_epsilon_first(name, _KNOWN), KnownCosts(environment.cost_usd))
    estimates = Estimates(*environment.cost_usd.shape)
    if name in _BASELINES:
        return SimulatedMethod(_BASELINES[name](environment), estimates)
    if name.startswith(_UNKNOWN):
        return SimulatedMethod(_epsilon_first(name, _UNKNOWN), estimates)
    if name in _OURS:
        return SimulatedMethod(open_policy(name, {}), estimates)
    raise _unknown(name)


def _epsilon_first(name: str, prefix: str) -> EpsilonFirst:
    """Return Algorithm 2 as in the paper."""
    length = name.removeprefix(prefix)
    if not length.isdecimal():
        raise _unknown(name)
    return EpsilonFirst(int(length), accounting="paper")


def _unknown(name: str) -> InvalidInput:
    known = ", ".join((*_OURS, *_BASELINES, f"{_UNKNOWN}<length>", f"{_KNOWN}<length>"))
    return InvalidInput(f"method must be one of {known}, got {name!r}", value=name)
