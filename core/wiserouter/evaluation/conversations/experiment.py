"""The experiment: every policy on the same conversations, at several budgets, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.conversations.agents import Credit, agent_workload
from wiserouter.evaluation.conversations.chats import chat_workload
from wiserouter.evaluation.conversations.history import served_alone
from wiserouter.evaluation.conversations.oracle import ScoredUnits
from wiserouter.evaluation.conversations.policies import POLICIES, History, PolicyName, open_policy
from wiserouter.evaluation.conversations.session_loop import Served, SimulatedClock, serve
from wiserouter.evaluation.conversations.workload import Workload
from wiserouter.parallel.tasks import count_workers, run_in_order
from wiserouter.validation import check_count

ConversationEnvironment = Literal["agents", "chats"]
ORACLE = "oracle"
NAMES = ("call", "pinned", "never-switch", "conversation", "run", ORACLE)

FRACTIONS = (0.05, 0.1, 0.2, 0.35, 0.6)
"""Budgets between the cost of the cheapest model of each context (0) and of the best one of each (1)."""

HISTORY_CONVERSATIONS = 200
"""Number of past conversations, each served by every model, that the policies are fitted on; as many as are served,
where those are fewer."""

HISTORY_SEED = 1_000_003
"""Added to the seed of a workload, so that no past conversation is served again."""


class ConversationStudy(NamedTuple):
    """The specification of an experiment.

    Attributes
    ----------
    environment : {"agents", "chats"}
        The kind of conversation.
    policies : tuple of str
        Names in `NAMES`.
    conversations : int
        Number of conversations per seed.
    credit : {"linear", "worst"}
        The worth of an agent run that several models share.
    fractions : tuple of float
        The budgets, in rising order.
    """

    environment: ConversationEnvironment = "agents"
    policies: tuple[str, ...] = NAMES
    conversations: int = 400
    credit: Credit = "linear"
    fractions: tuple[float, ...] = FRACTIONS

    def checked(self) -> ConversationStudy:
        """Return the study without repetitions; raise `InvalidInput` if a setting or a policy is unknown."""
        _check_choices("environment", [self.environment], get_args(ConversationEnvironment))
        _check_choices("policies", self.policies, NAMES)
        _check_choices("credit", [self.credit], get_args(Credit))
        check_count("conversations", self.conversations, least=10)
        if not self.fractions or min(self.fractions) < 0.0 or list(self.fractions) != sorted(set(self.fractions)):
            raise InvalidInput(f"fractions must rise from at least 0, got {self.fractions!r}", value=self.fractions)
        return self._replace(policies=tuple(dict.fromkeys(self.policies)))

    def workload(self, seed: int, n: int) -> Workload:
        """Return n conversations of a seed."""
        return agent_workload(seed, n, self.credit) if self.environment == "agents" else chat_workload(seed, n)


class ConversationScore(NamedTuple):
    """The outcome of one policy at one budget and seed.

    Attributes
    ----------
    policy : str
        Its name.
    seed : int
        The seed.
    fraction : float
        The position of the budget.
    budget_usd : float, USD
        The budget per conversation.
    n_conversations : int
        Their number.
    served : Served
        Quality, spend and waste.
    """

    policy: str
    seed: int
    fraction: float
    budget_usd: float
    n_conversations: int
    served: Served

    @property
    def usd_per_conversation(self) -> float:
        """Spend per conversation."""
        return self.served.spend_usd / self.n_conversations

    @property
    def spend_ratio(self) -> float:
        """Spend over budget."""
        return self.usd_per_conversation / self.budget_usd

    @property
    def waste(self) -> float:
        """Waste over spend."""
        return self.served.wasted_usd / self.served.spend_usd


def simulate_conversations(
    study: ConversationStudy, seeds: Iterable[int], *, jobs: int | None = 1, tick: Callable[[int], None] | None = None
) -> list[ConversationScore]:
    """Run every policy at every budget on every seed.

    Parameters
    ----------
    study : ConversationStudy
        Environment, policies and settings.
    seeds : iterable of int
        Each determines the conversations, the history and the draws of the routers.
    jobs : int or None, default 1
        Number of workers, -1 for all; None is that of `joblib.parallel_config`. The scores are the same for any.
    tick : callable, optional
        Called with 1 after each policy and budget.

    Returns
    -------
    list of ConversationScore
        By seed, budget and policy.

    Raises
    ------
    InvalidInput
        If a setting, a policy or a number is not allowed.

    Examples
    --------
    >>> [one] = simulate_conversations(ConversationStudy(policies=("oracle",), conversations=20, fractions=(0.2,)), [0])
    >>> one.policy, round(one.spend_ratio, 3), one.waste
    ('oracle', 1.0, 0.0)
    """
    checked = study.checked()
    work = [check_count("seed", seed) for seed in seeds]
    scores: list[ConversationScore] = []
    if count_workers(jobs) == 1:
        for seed in work:
            for score in _scores(checked, seed):
                scores.append(score)
                _tick(tick, 1)
        return scores
    tasks = [(checked._replace(fractions=(fraction,)), seed) for seed in work for fraction in checked.fractions]
    for done in run_in_order(_all_scores, tasks, n_jobs=jobs):
        scores += done
        _tick(tick, len(done))
    return scores


def _tick(tick: Callable[[int], None] | None, n: int) -> None:
    if tick is not None:
        tick(n)


def _all_scores(task: tuple[ConversationStudy, int]) -> list[ConversationScore]:
    return list(_scores(*task))


def _scores(study: ConversationStudy, seed: int) -> Iterator[ConversationScore]:
    """Yield the scores of all policies at all budgets on one seed."""
    n = study.conversations
    history, workload, truth = _of_seed(study._replace(fractions=(), policies=()), seed)
    least_usd, most_usd = truth.range_usd()
    for fraction in study.fractions:
        budget_usd = least_usd + fraction * (most_usd - least_usd)
        for policy in study.policies:
            if policy == ORACLE:
                served = truth.best_possible(budget_usd)
            else:
                clock = SimulatedClock()
                served = serve(workload, open_policy(_named(policy), history, budget_usd, n, clock, seed), clock)
            yield ConversationScore(policy, seed, fraction, budget_usd / n, n, served)


@lru_cache(maxsize=1)
def _of_seed(study: ConversationStudy, seed: int) -> tuple[History, Workload, ScoredUnits]:
    """Return the history and the workload of a seed; all of its budgets share them, and reach a process in a row."""
    n = study.conversations
    past = study.workload(HISTORY_SEED + seed, min(n, HISTORY_CONVERSATIONS))
    workload = study.workload(seed, n)
    return History(past, served_alone(past)), workload, ScoredUnits.of(served_alone(workload))


def _named(policy: str) -> PolicyName:
    return next(name for name in POLICIES if name == policy)


def _check_choices(name: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    for one in given:
        if one not in known:
            raise InvalidInput(f"{name} must be among {', '.join(known)}, got {one!r}", value=one)
    if not list(given):
        raise InvalidInput(f"{name} must name at least one of {', '.join(known)}, got none", value=given)
