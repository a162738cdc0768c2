"""The terms of the simulated providers: prices of a dated snapshot of LiteLLM's map, and how long caches live."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from wiserouter.errors import UnknownModel
from wiserouter.pricing.prices import Price

SNAPSHOT = "list_prices.json"
"""Next to this module: the date, the source, and the terms of each model."""


class ProviderTerms(NamedTuple):
    """The terms of one model.

    Attributes
    ----------
    model : str
        Its name.
    price : Price
        List prices; writes cost more than input only where the provider bills them.
    cache_ttl_s : float, seconds
        Time after its last use for which a prefix is kept.
    min_cacheable_tokens : int
        The least length of a cached prefix.
    """

    model: str
    price: Price
    cache_ttl_s: float
    min_cacheable_tokens: int


def provider_terms(models: Sequence[str] | None = None) -> tuple[ProviderTerms, ...]:
    """Return the terms of these models, or of all of the snapshot.

    Raises
    ------
    UnknownModel
        If the snapshot has no such model.

    Examples
    --------
    >>> [terms] = provider_terms(["claude-sonnet-4-5"])
    >>> terms.price.cache_read, terms.cache_ttl_s
    (3e-07, 300.0)
    """
    known = _snapshot()["models"]
    names = tuple(known) if models is None else tuple(models)
    for name in names:
        if name not in known:
            raise UnknownModel(name, tuple(known))
    return tuple(_terms(name, known[name]) for name in names)


def snapshot_date() -> str:
    """Return the date of the prices, such as "2026-11-22"."""
    return str(_snapshot()["date"])


def _terms(name: str, entry: dict[str, Any]) -> ProviderTerms:
    price = Price(entry["input"], entry["output"], entry["cache_read"], entry["cache_write"])
    return ProviderTerms(name, price, float(entry["cache_ttl_s"]), int(entry["min_cacheable_tokens"]))


@cache
def _snapshot() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files(__package__).joinpath(SNAPSHOT).read_text(encoding="utf-8"))
    return content
