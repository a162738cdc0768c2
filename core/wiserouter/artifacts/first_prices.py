"""The prices that models came with, which a policy that expects more of expensive models keeps beyond a price cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from wiserouter.artifacts.parts import RouterParts
from wiserouter.errors import InvalidInput
from wiserouter.planning.policies import Optimistic, Policy
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price


def saved_first_prices(parts: RouterParts) -> dict[str, dict[str, Any]]:
    """Return the first prices of models whose price has changed, for a manifest."""
    if not isinstance(parts.policy, Optimistic):
        return {}
    first = parts.policy.first_prices
    return {one.name: asdict(first[one.name]) for one in parts.models if first.get(one.name, one.price) != one.price}


def take_first_prices(policy: Policy, models: Sequence[Model], saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Hand a policy the first prices of a manifest, and the present ones of all other models.

    Raises
    ------
    InvalidInput
        If a first price is that of no model.
    """
    first = {one.name: one.price for one in models if one.price is not None}
    first |= {name: Price(**price) for name, price in saved.items()}
    unknown = sorted(first.keys() - {one.name for one in models})
    if unknown:
        raise InvalidInput(f"first_prices must be those of models of the pool, got {unknown[0]!r}")
    if isinstance(policy, Optimistic):
        policy.first_prices.update(first)


def add_first_prices(policy: Policy, routers: Sequence[RouterParts]) -> None:
    """Hand a policy the first prices of several routers, the highest of each model where they differ."""
    if not isinstance(policy, Optimistic):
        return
    for parts in routers:
        for name, saved in saved_first_prices(parts).items():
            met = policy.first_prices.get(name)
            policy.first_prices[name] = max([one for one in (met, Price(**saved)) if one], key=_level)


def _level(price: Price) -> tuple[float, float]:
    return price.input + price.output, price.input
