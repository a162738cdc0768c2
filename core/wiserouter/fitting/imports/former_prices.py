"""Prices by date: those of models before they changed, so that a past call is priced as it was billed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wiserouter.pricing.prices import Price


class FormerPrice(NamedTuple):
    """A price that held before a time.

    Attributes
    ----------
    before_s : float, seconds since 1970
        The time of the change.
    price : Price
        The price until then.
    """

    before_s: float
    price: Price


FormerPrices = Mapping[str, Sequence[FormerPrice]]
"""The former prices of each model."""


def price_at(price: Price, former: Sequence[FormerPrice], at_s: float | None) -> Price:
    """Return the price of a call at a time; of a call without one the present price.

    Examples
    --------
    >>> now, former = Price(1e-6, 4e-6), [FormerPrice(200.0, Price(2e-6, 8e-6)), FormerPrice(100.0, Price(3e-6, 9e-6))]
    >>> [price_at(now, former, at_s).input for at_s in (50.0, 100.0, 200.0, None)]
    [3e-06, 2e-06, 1e-06, 1e-06]
    """
    held = [one for one in former if at_s is not None and at_s < one.before_s]
    return min(held, key=lambda one: one.before_s).price if held else price
