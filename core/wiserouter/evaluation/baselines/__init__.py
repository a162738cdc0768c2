"""The methods of the bench by name; each file holds one method and names its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.baselines.always import AlwaysBest, AlwaysCheapest
from wiserouter.evaluation.baselines.avengers_pro import AvengersPro
from wiserouter.evaluation.baselines.barouter import BaRouter
from wiserouter.evaluation.baselines.base import Method
from wiserouter.evaluation.baselines.cascade_routing import CascadeRouting, NoisyTruthCascade, Routing
from wiserouter.evaluation.baselines.constrained_bandit import ConstrainedBandit
from wiserouter.evaluation.baselines.frugalgpt import FrugalGpt
from wiserouter.evaluation.baselines.metallm import MetaLlm
from wiserouter.evaluation.baselines.one_answer import barouter_once, pareto_bandit_once, pilot_once
from wiserouter.evaluation.baselines.orca_router import OrcaRouter
from wiserouter.evaluation.baselines.pareto_bandit import ParetoBandit
from wiserouter.evaluation.baselines.pilot import Pilot
from wiserouter.evaluation.baselines.port import PooledPort, Port
from wiserouter.evaluation.baselines.shrunk_neighbors import ShrunkNeighbors
from wiserouter.evaluation.baselines.single_best import SingleBest
from wiserouter.evaluation.baselines.static_mixtures import StaticLp, ZeroRouter
from wiserouter.evaluation.baselines.variants import Values, Variant, parse_variant
from wiserouter.evaluation.baselines.wiserouter_methods import OWN_METHODS

PUBLISHED_ROUTERS: tuple[type[Method], ...] = (
    MetaLlm,
    CascadeRouting,
    Routing,
    FrugalGpt,
    BaRouter,
    Pilot,
    ParetoBandit,
    PooledPort,
    Port,
    OrcaRouter,
    AvengersPro,
    ConstrainedBandit,
    NoisyTruthCascade,
)
"""Published routers."""

_MAKERS: tuple[Callable[[], Method], ...] = (
    *OWN_METHODS,
    *PUBLISHED_ROUTERS,
    pareto_bandit_once,
    barouter_once,
    pilot_once,
    ShrunkNeighbors,
    StaticLp,
    SingleBest,
    ZeroRouter,
    AlwaysCheapest,
    AlwaysBest,
)

METHODS: dict[str, Callable[[], Method]] = {make().name: make for make in _MAKERS}
"""The methods by name, in the order of the tables."""


def open_methods(names: Iterable[str] | None = None) -> list[Method]:
    """Return the methods of these names, in the order of `METHODS`, each before its variants; all methods by default.

    Raises
    ------
    InvalidInput
        If a name is unknown, or no name is given.

    Examples
    --------
    >>> [method.name for method in open_methods(["always-best"])]
    ['always-best']
    """
    asked = tuple(METHODS) if names is None else tuple(dict.fromkeys(names))
    parsed = {name: parse_variant(name) for name in asked}
    unknown = [method for method, _ in parsed.values() if method not in METHODS]
    if unknown or not asked:
        got = ", ".join(map(repr, unknown)) or "none"
        raise InvalidInput(f"methods must be among {', '.join(METHODS)}; got {got}", value=unknown)
    order = sorted(asked, key=lambda name: (list(METHODS).index(parsed[name][0]), "@" in name))
    return [_open(name, *parsed[name]) for name in order]


def _open(name: str, method: str, values: Values) -> Method:
    made = METHODS[method]()
    return Variant(made, name, values) if values else made


def module_of(name: str) -> str:
    """Return the module that makes a method, or a variant of it.

    Examples
    --------
    >>> module_of("port")
    'wiserouter.evaluation.baselines.port'
    """
    make = METHODS[parse_variant(name)[0]]
    return str((make.func if isinstance(make, partial) else make).__module__)


__all__ = ["METHODS", "PUBLISHED_ROUTERS", "Method", "module_of", "open_methods"]
