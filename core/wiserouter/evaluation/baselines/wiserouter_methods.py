"""The methods of this project and those of the paper's simulation, as methods of the bench.

WR-Offline is the paper's Algorithm 1, WR-Online its Algorithm 2, epsilon-first with known costs that of Wu et al.
(2015); random, epsilon-greedy and LinUCB are made aware of the budget as in its Appendix "Simulation Experiment".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from wiserouter.evaluation.baselines.base import LearnsFrom, Method, Training
from wiserouter.evaluation.baselines.histories import blank
from wiserouter.evaluation.baselines.router_methods import Routed, as_the_table
from wiserouter.evaluation.simulation.budget_aware import BudgetAware
from wiserouter.evaluation.simulation.epsilon_greedy import EpsilonGreedy
from wiserouter.evaluation.simulation.known_costs import KnownCosts
from wiserouter.evaluation.simulation.linucb import LinUcb
from wiserouter.evaluation.simulation.random_policy import RandomChoice
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.policies import EpsilonFirst, Offline, Optimistic, Policy
from wiserouter.planning.policy import Accounting
from wiserouter.types import FloatArray

_KNOWS_COSTS = "is given the mean cost of every context and model"
_PASS = "learns from 1 call per training query"  # noqa: S105


def wr_offline() -> Method:
    """Return Algorithm 1 as in this project: true costs are debited, means are shrunk, a reserve is kept."""
    return Routed("wr-offline", lambda _: Offline(), estimator="smoothed")


def wr_offline_ridge() -> Method:
    """Return WR-Offline with estimates of single queries."""
    return Routed("wr-offline-ridge", lambda _: Offline(), estimator="ridge")


def wr_offline_paper() -> Method:
    """Return Algorithm 1 as in the paper: plain means, which are also debited, and the null action."""
    return Routed("wr-offline-paper", lambda _: Offline(accounting="paper", allow_skip=True))


def wr_online(passes: int, accounting: Accounting) -> Method:
    """Return Algorithm 2: explore the training half `passes` times, then follow the plan on the test half."""
    name = f"wr-online-{passes}x" if accounting == "actual" else f"wr-online-paper-{passes}x"
    return Routed(
        name,
        partial(_explorer, passes, accounting),
        blank,
        passes,
        as_the_table,
        f"learns from {passes} call{'s' * (passes > 1)} per training query",
        "one answer" if passes == 1 else "several answers",
    )


def optimistic() -> Method:
    """Return the policy that learns online, after practice on the training half at the same rate."""
    return Routed(
        "optimistic",
        lambda training: Optimistic(alpha=2.0, practice_for=training.n_queries),
        blank,
        passes=1,
        afterwards=Optimistic,
        note=_PASS,
        learns_from="one answer",
    )


def optimistic_cold() -> Method:
    """Return the policy that learns online, without practice on the training half."""
    note = "learns nothing from the training half"
    return Routed("optimistic-cold", lambda _: Optimistic(), blank, note=note, learns_from="nothing")


def epsilon_first_once() -> Method:
    """Return Algorithm 2 that pays for its exploration at the rate of the budget, as the other learners do.

    Where the money of the practice is used up, or the training half, it follows the plan.
    """
    return Routed(
        "epsilon-first-1x",
        partial(_explorer, 1, "actual"),
        blank,
        passes=1,
        afterwards=lambda: EpsilonFirst(1),  # which is over
        note=_PASS,
        learns_from="one answer",
    )


def epsilon_first_known() -> Method:
    """Return Algorithm 2 with the true mean costs."""
    return Routed(
        "epsilon-first-known",
        partial(_explorer, 1, "paper"),
        _known,
        1,
        as_the_table,
        f"{_PASS}; {_KNOWS_COSTS}",
        "one answer",
    )


def budget_aware(kind: Callable[[FloatArray], BudgetAware], passes: int) -> Method:
    """Return a bandit that chooses among the models whose expected cost is at most b / tau."""
    name = str(kind.name)  # type: ignore[attr-defined]
    note = f"{_PASS}; {_KNOWS_COSTS}" if passes else _KNOWS_COSTS
    learns_from: LearnsFrom = "one answer" if passes else "nothing"
    return Routed(name, partial(_knowing_costs, kind), blank, passes, note=note, learns_from=learns_from)


def _knowing_costs(kind: Callable[[FloatArray], BudgetAware], training: Training) -> Policy:
    return kind(training.known_costs_usd())


def _explorer(passes: int, accounting: Accounting, training: Training) -> Policy:
    return EpsilonFirst(passes * training.n_queries, accounting=accounting, allow_skip=accounting == "paper")


def _known(training: Training) -> Estimates:
    return KnownCosts(training.known_costs_usd())


OWN_METHODS: tuple[Callable[[], Method], ...] = (
    wr_offline,
    wr_offline_ridge,
    wr_offline_paper,
    *(partial(wr_online, passes, "actual") for passes in (1, 2, 3, 4)),
    *(partial(wr_online, passes, "paper") for passes in (1, 4)),
    optimistic,
    optimistic_cold,
    epsilon_first_once,
    epsilon_first_known,
    partial(budget_aware, RandomChoice, 0),
    partial(budget_aware, EpsilonGreedy, 1),
    partial(budget_aware, LinUcb, 1),
)
