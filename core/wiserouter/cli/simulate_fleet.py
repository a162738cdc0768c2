"""`wiserouter simulate --environment fleet`: many workers that share a budget through one or several Redis servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from wiserouter.cli.output import out, print_json, table
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.fleet import FleetOutcome, FleetTerms, simulate_fleet
from wiserouter.pricing.amounts import usd

ENVIRONMENT = "fleet"

_OWN_OPTIONS = ("shards", "limit")
_COLUMNS = (
    "shards",
    "exchanges\nper s",
    "busiest\nserver",
    "answer\np50",
    "\np99",
    "served",
    "over-\nspend",
    "leased,\nidle",
    "left\nover",
)


def compare_fleets(shards: Sequence[int], limit: str, settings: Sequence[str], *, seed: int, as_json: bool) -> None:
    """Simulate the same fleet with each number of servers, and print a table or JSON."""
    named = _settings(settings)
    fleets = [FleetTerms(**{**named, "shards": n, "limit": limit}) for n in shards]
    outcomes = [simulate_fleet(fleet, np.random.default_rng(seed)) for fleet in fleets]
    if as_json:
        found = [{"shards": fleet.shards, **one._asdict()} for fleet, one in zip(fleets, outcomes, strict=True)]
        print_json({"environment": ENVIRONMENT, "fleets": found})
        return
    rows = [_row(fleet, one) for fleet, one in zip(fleets, outcomes, strict=True)]
    out.print(table(_title(fleets[0]), _COLUMNS, rows), "")
    if fleets[0].lost_at_s is not None:
        for fleet, one in zip(fleets, outcomes, strict=True):
            out.print(_loss(fleet, one), highlight=False)


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a fleet that pairs NAME=VALUE state."""
    kinds = {field.name: type(field.default) for field in fields(FleetTerms) if field.name not in _OWN_OPTIONS}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in kinds:
            raise InvalidInput(f"--set must be NAME=VALUE with a name of {', '.join(kinds)}, got {pair!r}", value=pair)
        try:
            found[name] = int(text) if kinds[name] is int else float(text)
        except ValueError as error:
            raise InvalidInput(f"--set {name} must be a number, got {text!r}", value=pair) from error
    return found


def _title(fleet: FleetTerms) -> str:
    return (
        f"{fleet.workers:,} workers x {fleet.requests_per_s:,.0f} requests/s for {fleet.horizon_s:g} s, "
        f"{usd(fleet.amount_usd)}, {fleet.limit} limit"
    )


def _row(fleet: FleetTerms, one: FleetOutcome) -> tuple[str, ...]:
    return (
        f"{fleet.shards}",
        f"{one.exchanges_per_s:,.0f}",
        f"{one.busy:.0%}",
        f"{1e3 * one.reply_p50_s:,.1f} ms",
        f"{1e3 * one.reply_p99_s:,.1f} ms",
        f"{one.served / max(one.requests, 1):.1%}",
        f"{one.overspend_usd / one.amount_usd:.2%}",
        f"{one.idle_usd / one.amount_usd:.1%}",
        f"{one.stranded_usd / one.amount_usd:.1%}",
    )


def _loss(fleet: FleetTerms, one: FleetOutcome) -> str:
    return (
        f"{fleet.shards} shards: the first is lost at {fleet.lost_at_s:g} s for {fleet.outage_s:g} s: "
        f"{one.refused_away:,} requests are refused meanwhile; charges of {usd(one.forgotten_usd)} are lost with it."
    )
