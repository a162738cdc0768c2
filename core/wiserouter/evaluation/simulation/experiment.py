"""The simulation experiment: every method on the same requests, seed by seed, over several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Literal, NamedTuple, get_args

from wiserouter.budgets.budget import Debit, Limit
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.simulation.environment import Environment, Stream
from wiserouter.evaluation.simulation.episode import EpisodeTrace, play, play_hard
from wiserouter.evaluation.simulation.methods import default_methods, open_method
from wiserouter.evaluation.simulation.paper_environment import paper_environment
from wiserouter.evaluation.simulation.routerbench_environment import routerbench_like
from wiserouter.evaluation.simulation.score import RunScore, score_of
from wiserouter.parallel.tasks import run_in_order
from wiserouter.validation import check_count

EnvironmentName = Literal["paper", "routerbench"]

_MAKERS: dict[str, Callable[..., Environment]] = {"paper": paper_environment, "routerbench": routerbench_like}


class Study(NamedTuple):
    """The specification of a simulation.

    Attributes
    ----------
    environment : {"paper", "routerbench"}
        The kind of environment; each seed has its own.
    methods : tuple of str, or None
        Names as `open_method` takes them; None for all.
    limit : {"expected", "hard"}
        Limit of the budget.
    accounting : {"actual", "paper"}
        "actual": true costs. "paper": mean costs, as in the paper's simulation; for an expected limit only.
    fraction : float or None
        Position of the budget between always the cheapest (0) and always the most expensive model (1); by default 0.5
        in the paper's environment and 0.02 in that of RouterBench.
    """

    environment: EnvironmentName = "paper"
    methods: tuple[str, ...] | None = None
    limit: Limit = "expected"
    accounting: Debit = "actual"
    fraction: float | None = None

    def make_environment(self, seed: int, horizon: int) -> Environment:
        """Return the environment of a seed."""
        given = {} if self.fraction is None else {"fraction": self.fraction}
        return _MAKERS[self.environment](seed, horizon, **given)

    def checked(self) -> Study:
        """Return the study with all its methods named.

        Raises
        ------
        InvalidInput
            If a setting or a method is unknown, no method is named, or the settings contradict each other.
        """
        for name, kind in (("environment", EnvironmentName), ("limit", Limit), ("accounting", Debit)):
            _check_one_of(name, getattr(self, name), get_args(kind))
        if self.limit == "hard" and self.accounting == "paper":
            raise InvalidInput("accounting must be 'actual' under a hard limit, got 'paper': only true costs bind it")
        environment = self.make_environment(0, 1)
        asked = default_methods(environment.cost_usd.size) if self.methods is None else self.methods
        if not asked:
            raise InvalidInput("methods must name at least one, got none", value=asked)
        for name in asked:
            open_method(name, environment)
        return self._replace(methods=tuple(dict.fromkeys(asked)))


def simulate(
    study: Study,
    horizons: Sequence[int],
    seeds: Iterable[int],
    *,
    jobs: int | None = 1,
    tick: Callable[[int], None] | None = None,
) -> list[RunScore]:
    """Run every method on every seed and horizon.

    Parameters
    ----------
    study : Study
        Environment, methods and settings.
    horizons : sequence of int
        Numbers of requests.
    seeds : iterable of int
        Each determines an environment, its requests and the draws of the methods.
    jobs : int or None, default 1
        Number of workers, -1 for all; None is that of `joblib.parallel_config`. The scores are the same for any.
    tick : callable, optional
        Called with 1 each time all methods have run on one seed and horizon.

    Returns
    -------
    list of RunScore
        By horizon, then seed, then method.

    Raises
    ------
    InvalidInput
        If a setting, a method or a number is not allowed.

    Examples
    --------
    >>> [one] = simulate(Study(methods=("oracle",)), horizons=[500], seeds=[0])
    >>> one.method, one.served, 0.9 < one.reward_ratio < 1.1
    ('oracle', 1.0, True)
    """
    named = study.checked()
    for horizon in horizons:
        check_count("horizon", horizon, least=1)
    work = list(product(horizons, (check_count("seed", seed) for seed in seeds)))
    scores: list[RunScore] = []
    for done in run_in_order(partial(_scores, named), work, n_jobs=jobs):
        scores += done
        if tick is not None:
            tick(1)
    return scores


def _scores(study: Study, work: tuple[int, int]) -> list[RunScore]:
    """Return the scores of all methods on one horizon and seed."""
    horizon, seed = work
    environment = study.make_environment(seed, horizon)
    stream = Stream.of(environment, seed)
    return [
        score_of(name, seed, environment, stream, _run(study, name, environment, stream, seed))
        for name in study.methods or ()
    ]


def _run(study: Study, name: str, environment: Environment, stream: Stream, seed: int) -> EpisodeTrace:
    method = open_method(name, environment)
    if study.limit == "hard":
        return play_hard(environment, stream, method, seed)
    return play(environment, stream, method, seed, accounting=study.accounting)


def _check_one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(choices)}, got {value!r}", value=value)
