"""A report on savings as people read it: a few lines of text, or one page of HTML without anything to load."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any

from wiserouter.pricing.amounts import usd

MOST_MODELS = 12
"""Most models that are named."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --paper: #fff; --line: #d5dbe1; --quiet: #52606d; --bar: #0b7285; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --paper: #15191e; --line: #3a434d; --quiet: #9aa5b1; --bar: #66d9e8; }
}
body { margin: 0 auto; max-width: 60rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1, h2 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; }
p { max-width: 48rem; color: var(--quiet); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child { text-align: left; }
tbody th { font-weight: normal; overflow-wrap: anywhere; }
svg { width: 100%; height: 9rem; }
rect { fill: var(--bar); }
polyline { fill: none; stroke: var(--ink); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
"""


def lines_of(report: Mapping[str, Any]) -> list[str]:
    """Return the sentences on one report.

    Parameters
    ----------
    report : mapping
        As `Savings.as_dict` returns it.
    """
    actual, coverage = report["actual"], report["coverage"]
    other = f", of it {usd(actual['other_usd'])} for embeddings and judges" if actual["other_usd"] else ""
    lines = [
        f"{actual['calls']:,} calls from {report['since']} to {report['until']} cost {usd(actual['cost_usd'])}{other}; "
        f"quality {_quality(actual)}"
    ]
    lines += [_against(name, one) for name, one in report["against"].items()]
    return [*lines, _coverage(coverage, actual)]


def rows_of(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table of what the compared calls cost and would have cost; see `COLUMNS`."""
    spent_usd = report["coverage"]["compared_usd"] + report["actual"]["other_usd"]
    own = ("router", usd(spent_usd), "", _quality(report["actual"]), "")
    return [own, *[_row(_name(name, one), one) for name, one in report["against"].items()]]


COLUMNS = ("with", "cost", "saved", "quality", "router's quality less this")


def html_of(title: str, reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one page on the reports of several budgets, which runs no script and loads nothing.

    Parameters
    ----------
    title : str
        Its heading.
    reports : mapping of str to mapping
        By the name of the budget, as `Savings.as_dict` returns them.
    """
    style = f"'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'"
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>',
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src {style}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>",
        *[_section(name, one) for name, one in reports.items()],
        "</main>\n</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _section(name: str, report: Mapping[str, Any]) -> str:
    days = [(day["date"], f"{day['calls']:,}", usd(day["cost_usd"] + day["other_usd"])) for day in report["days"]]
    models = [(model, f"{one['calls']:,}", usd(one["cost_usd"])) for model, one in _by_cost(report)]
    scope = "" if report["scope"] is None else f", scope {report['scope']}"
    return "\n".join(
        [
            f"<section>\n<h2>{escape(name + scope)}</h2>",
            *[f"<p>{escape(line)}</p>" for line in lines_of(report)],
            _table("The compared calls", COLUMNS, rows_of(report)),
            _chart(report["days"]),
            _table("Models", ("model", "calls", "cost"), models),
            _table("Days", ("day (UTC)", "calls", "cost"), days),
            "</section>",
        ]
    )


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in columns)
    body = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(one)}</td>" for one in row[1:])}</tr>'
        for row in rows
    )
    table = f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
    return f'<div class="wide"><table>{table}</table></div>'


def _chart(days: Sequence[Mapping[str, Any]]) -> str:
    """Return a picture of the cost of the compared calls per day as bars, and of always the best model as a line."""
    best = [day["against_usd"].get("best", 0.0) for day in days]
    spent = [day["compared_usd"] for day in days]
    top = max([*best, *spent, 0.0])
    if top <= 0.0:
        return ""
    bars = "".join(
        f'<rect x="{at + 0.1:g}" y="{100 - 100 * one / top:.3f}" width="0.8" height="{100 * one / top:.3f}"/>'
        for at, one in enumerate(spent)
    )
    line = " ".join(f"{at + 0.5:g},{100 - 100 * one / top:.3f}" for at, one in enumerate(best))
    what = "Cost per day: bars for the router, a line for always the best model; the tables have the figures"
    return (
        f'<svg role="img" aria-label="{what}" viewBox="0 0 {len(days)} 100" preserveAspectRatio="none">'
        f'{bars}<polyline points="{line}"/></svg>\n<p>{what}.</p>'
    )


def _against(name: str, one: Mapping[str, Any]) -> str:
    saved, share = one["saved_usd"], one["saved_share"]
    amount = f"{usd(abs(saved))} saved" if saved >= 0.0 else f"{usd(abs(saved))} lost"
    relative = "" if share is None else f" ({abs(share):.1%})"
    lengths = "" if one["length_calls"] else "; the lengths of its answers are not known, and taken as they were"
    return (
        f"Against {_name(name, one)}, which would have cost {usd(one['cost_usd'])}: {amount}{relative}; "
        f"quality {_quality(one)}{lengths}"
    )


def _row(name: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    return name, usd(one["cost_usd"]), usd(one["saved_usd"]), _quality(one), _difference(one)


def _name(name: str, one: Mapping[str, Any]) -> str:
    models = sorted(one["models"].items(), key=lambda item: -item[1])[:MOST_MODELS]
    if len(one["models"]) == 1:
        return f"always {models[0][0]} ({name})"
    return f"{name} ({', '.join(f'{model} {share:.0%}' for model, share in models)})"


def _quality(one: Mapping[str, Any]) -> str:
    if one["quality"] is None:
        return "unknown, no compared call has a score"
    low, high = one["quality_interval"]
    return f"{one['quality']:.3f} ({low:.3f} to {high:.3f}, {one['quality_scores']:,} scores)"


def _difference(one: Mapping[str, Any]) -> str:
    if one["quality_difference"] is None:
        return ""
    low, high = one["quality_difference_interval"]
    return f"{one['quality_difference']:+.3f} ({low:+.3f} to {high:+.3f})"


def _coverage(coverage: Mapping[str, Any], actual: Mapping[str, Any]) -> str:
    share = coverage["compared_share"]
    compared = "no call" if share is None else f"{coverage['compared_calls']:,} calls ({share:.1%})"
    left_out = {
        "without tokens": coverage["without_tokens"],
        "answered by a cache or given up": coverage["set_aside"],
    }
    presumed = coverage["presumed"]
    open_calls = (
        f"; {presumed['calls']:,} more are presumed to have cost {usd(presumed['cost_usd'])} since {presumed['since']}"
        if presumed and presumed["calls"]
        else ""
    )
    rest = "".join(f", {n:,} {what}" for what, n in left_out.items() if n)
    cached = actual["cached_share"]
    tokens = "" if cached is None else f"; {cached:.0%} of the prompt tokens were read from a provider's cache"
    return f"Compared: {compared}, which cost {usd(coverage['compared_usd'])}{rest}{tokens}{open_calls}"


def _by_cost(report: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return sorted(report["actual"]["by_model"].items(), key=lambda item: -item[1]["cost_usd"])
