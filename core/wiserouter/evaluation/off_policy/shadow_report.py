"""The report on shadow mode: what the router would have spent and gained, as figures and as sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from wiserouter.evaluation.off_policy.estimators import Estimate
from wiserouter.evaluation.off_policy.shadow_calls import UNNAMED, ShadowCalls, read_shadow_calls
from wiserouter.evaluation.off_policy.shadow_gain import Gain, estimated_gain, gain, incumbents
from wiserouter.evaluation.off_policy.steady_shares import shares_are_steady
from wiserouter.routing.journal_reader import JournalReader

LEAST_UNSEEN = 0.005
"""Share of what runs without the router that too few calls show, from which on the report says so."""


def report_of_journal(path: Path) -> dict[str, Any]:
    """Return the figures of the report on a journal, and the lines of it that could not be read.

    Raises
    ------
    InvalidInput
        If it holds no call of shadow mode with its cost.
    FileNotFoundError
        If there is no journal.
    """
    reader = JournalReader(path)
    figures = {"journal": str(path), **report_of(read_shadow_calls(reader))}
    return {**figures, "skipped_lines": reader.skipped}


def report_of(calls: ShadowCalls) -> dict[str, Any]:
    """Return the figures of the report, for JSON."""
    cost, reward = gain(calls, "cost_usd"), gain(calls, "reward")
    ran, would_be = incumbents(calls).mean(axis=0), calls.would_be.mean(axis=0)
    shares = sorted(zip(calls.models, ran.tolist(), would_be.tolist(), strict=True), key=lambda one: -one[2])
    return {
        "calls": calls.n,
        "scored": int((~np.isnan(calls.reward)).sum()),
        "acted": int(calls.acted.sum()),
        "named_incumbent": bool((calls.incumbent != UNNAMED).all()),
        "steady_shares": shares_are_steady(calls),
        "level": 0.95,
        "spent_usd": float(calls.cost_usd.sum()),
        "models": [{"model": name, "incumbent": one, "would_be": other} for name, one, other in shares],
        "cost_usd": None if cost is None else _fields(cost, calls.n),
        "reward": None if reward is None else _fields(reward, calls.n),
        "estimated_gain": estimated_gain(calls),
    }


def _fields(one: Gain, n: int) -> dict[str, Any]:
    return {
        "known": one.known,
        "difference": _interval(one.total, n),
        "baseline": _interval(one.baseline, n),
        "shown_by_calls": {
            "share": one.share,
            "baseline_share": one.baseline_share,
            "effective": one.effective,
            **_interval(one.identified, n),
        },
        "by_estimate": {"share": 1.0 - one.share, "mean": one.by_estimate, "where": one.where},
    }


def _interval(one: Estimate, n: int) -> dict[str, float]:
    total = one.total(n)
    return {"mean": one.mean, "low": one.low, "high": one.high, "total": total.mean}


def lines_of(figures: dict[str, Any]) -> list[str]:
    """Return the sentences of the report."""
    lines = []
    shows = "acting for longer, or on a larger share," if figures["acted"] else "acting on a share (share: 0.1)"
    for name, unit in (("cost_usd", " USD"), ("reward", "")):
        one = figures[name]
        if one is None:
            continue
        change, base, rest = one["difference"], one["baseline"], one["by_estimate"]
        bound = "the interval allows 0 to 1 for it" if name == "reward" else "it has no interval"
        what = "Spend" if name == "cost_usd" else f"Reward ({one['known']:,} scores)"
        lines.append(
            f"{what} per call: {base['mean']:.4g}{unit} without the router, "
            f"{base['mean'] + change['mean']:.4g}{unit} with it: {change['mean']:+.4g}, "
            f"95 % interval {change['low']:+.4g} to {change['high']:+.4g}; all calls {change['total']:+,.4g}{unit}"
        )
        if rest["share"] > 0.0:
            models = ", ".join(list(rest["where"])[:3])
            lines.append(
                f"  {rest['share']:.0%} of the choices ({models}) no call shows: they count by the router's own "
                f"estimates, and {bound}; {shows} shows them"
            )
        unseen = 1.0 - one["shown_by_calls"]["baseline_share"]
        if unseen > LEAST_UNSEEN:
            lines.append(
                f"  {unseen:.0%} of what runs without the router no call shows, or too few: it counts by the router's "
                f"own estimates, and {bound}; acting on fewer calls, and scoring more, shows it"
            )
    if figures["reward"] is None:
        alone = "All calls begin alike or are of one conversation, which is one draw and shows nothing"
        lines.append(
            f"{alone if figures['scored'] else 'No call has a score'}: by its own estimates the router gains "
            f"{figures['estimated_gain']:+.4g} per call"
        )
    if not figures["named_incumbent"]:
        lines.append("What runs without the router was not named: it is taken as drawn at random in each context")
    if not figures["steady_shares"]:
        lines.append(
            "  Its shares have changed with the time by more than chance: where calls of these times differ in cost or "
            "score, the figures above may be wrong beyond their intervals; name it, or report on a time without change"
        )
    return lines
