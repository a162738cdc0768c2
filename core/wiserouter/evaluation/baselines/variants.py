"""A method with other values of constants, for benches that choose or test them.

A variant is named like `wr-offline@learning.shrinkage.UNIDENTIFIED_STRENGTH=4`; several constants follow each other,
each after `@`. While the method fits or serves, the constant has the other value in the module that defines it, in all
modules that import it, and where it is the default of an argument. Figures that are computed from it on import keep
their values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import isclass, isfunction
from pkgutil import walk_packages
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from wiserouter.errors import InvalidInput
from wiserouter.evaluation.baselines.base import (
    BenchQuery,
    CallModel,
    FittedMethod,
    Funds,
    Method,
    Server,
    Terms,
    Training,
)

ROOMS = ("learning", "planning", "budgets", "prompts", "fitting", "conversations", "routing", "pricing")
"""The rooms whose constants may be overridden, and may import them."""

Values = dict[str, float]
"""Values of constants by the constants' names, such as `learning.shrinkage.UNIDENTIFIED_STRENGTH`."""


def parse_variant(name: str) -> tuple[str, Values]:
    """Return the method and the values in the name of a variant.

    Examples
    --------
    >>> parse_variant("optimistic@planning.policies.optimistic.ALPHA=1.5")
    ('optimistic', {'planning.policies.optimistic.ALPHA': 1.5})
    """
    method, *settings = name.split("@")
    values: Values = {}
    for setting in settings:
        constant, _, value = setting.partition("=")
        try:
            values[constant] = float(value)
        except ValueError as error:
            raise InvalidInput(f"a variant must be METHOD@CONSTANT=NUMBER, got {name!r}", value=name) from error
    return method, values


def value_of(constant: str) -> float:
    """Return the value of a constant.

    Raises
    ------
    InvalidInput
        If there is no such number.
    """
    room, _, name = constant.rpartition(".")
    if constant.split(".", maxsplit=1)[0] in ROOMS:
        _load_rooms()
        value = getattr(sys.modules.get(f"wiserouter.{room}"), name, None)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    rule = f"a constant must be a number in a module of {', '.join(ROOMS)}, such as learning.shrinkage.PRIOR_COUNT"
    raise InvalidInput(f"{rule}; got {constant!r}", value=constant)


class Variant(Method):
    """A method with other values of constants."""

    def __init__(self, method: Method, name: str, values: Values) -> None:
        self.name, self.note, self.sees_truth = name, method.note, method.sees_truth
        self.learns_from = method.learns_from
        self._method, self._patches = method, [each for item in values.items() for each in _patches(*item)]

    def fit(self, training: Training, rng: np.random.Generator) -> FittedMethod:
        """Fit the method under the values."""
        with _applied(self._patches):
            return _FittedVariant(self._method.fit(training, rng), self._patches)


class _FittedVariant(FittedMethod):
    def __init__(self, fitted: FittedMethod, patches: list[_Patch]) -> None:
        self._fitted, self._patches = fitted, patches

    def start(self, terms: Terms, rng: np.random.Generator) -> Server:
        with _applied(self._patches):
            return _VariantServer(self._fitted.start(terms, rng), self._patches)


class _VariantServer(Server):
    def __init__(self, server: Server, patches: list[_Patch]) -> None:
        self._server, self._patches = server, patches

    def serve(self, query: BenchQuery, funds: Funds, call: CallModel) -> int:
        with _applied(self._patches):
            return self._server.serve(query, funds, call)

    def learn(self, query: BenchQuery, model: int, reward: float, cost_usd: float) -> None:
        with _applied(self._patches):
            self._server.learn(query, model, reward, cost_usd)


_Patch = tuple[Callable[[Any], None], Any, Any]
"""A function that sets a value, the other value and the usual one."""


@contextmanager
def _applied(patches: list[_Patch]) -> Iterator[None]:
    for assign, value, _ in patches:
        assign(value)
    try:
        yield
    finally:
        for assign, _, usual in patches:
            assign(usual)


def _patches(constant: str, value: float) -> Iterator[_Patch]:
    """Yield the places where a constant stands: names in modules, and defaults of arguments."""
    usual = value_of(constant)
    other = type(usual)(value)
    name = constant.rpartition(".")[2]
    for module in _load_rooms():
        if vars(module).get(name) is usual:
            yield _setter(vars(module), name), other, usual
            if isinstance(usual, float):  # equal small integers are one object
                yield from _default_patches(module, usual, other)


def _setter(names: dict[str, Any], name: str) -> Callable[[Any], None]:
    return lambda value: names.__setitem__(name, value)


def _default_patches(module: ModuleType, usual: float, other: float) -> Iterator[_Patch]:
    for function in _functions(module):
        if any(each is usual for each in function.__defaults__ or ()):
            defaults = function.__defaults__ or ()
            changed = tuple(other if each is usual else each for each in defaults)
            yield _defaults_setter(function), changed, defaults


def _defaults_setter(function: FunctionType) -> Callable[[Any], None]:
    return lambda value: setattr(function, "__defaults__", value)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions and methods that a module defines."""
    for each in vars(module).values():
        if getattr(each, "__module__", None) == module.__name__:
            inside = vars(each).values() if isclass(each) else [each]
            yield from (function for function in inside if isfunction(function))


def _load_rooms() -> list[ModuleType]:
    """Return all modules of the rooms, imported before anything is changed."""
    if not _LOADED:
        for room in ROOMS:
            package = import_module(f"wiserouter.{room}")
            names = [each.name for each in walk_packages(package.__path__, f"{package.__name__}.")]
            _LOADED.extend([package, *map(import_module, names)])
    return _LOADED


_LOADED: list[ModuleType] = []
