"""How WR-Offline stands against the best of all others, budget by budget."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wiserouter.evaluation.plots import dress, line_of, new_figure
from wiserouter.evaluation.report.exhibit import Exhibit, figure, with_error
from wiserouter.evaluation.report.findings import Findings
from wiserouter.evaluation.report.standings import judged_of, kept_of, standard_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "wr-offline"

VERDICT = f"""
`{OURS}` against the best other method at each budget, mean over seeds; lead: its quality less the other's, ± the
standard error of the paired difference. Who spends more than the budget (†) is judged at equal spend. **Bold**: ahead,
or behind by at most one standard error."""


class Match(NamedTuple):
    """One budget: where the best other method stands in the arrays, and the lead over it, seed by seed."""

    rate_usd: float
    rival: int
    lead: np.ndarray


def verdict(findings: Findings) -> Exhibit:
    """Return the lead over the best other method at every budget."""
    head = ("USD per query", OURS, "spend/budget", "best other", "quality", "spend/budget", "lead")
    rows = [_row(findings, at, match) for at, match in enumerate(matches(findings))]
    return Exhibit("verdict", "Against the best other method", VERDICT, head, rows, partial(_draw, findings))


def matches(findings: Findings) -> list[Match]:
    """Return the best other method at every budget."""
    grid, judged = findings.grid, judged_of(findings.grid)
    ours = findings.place(OURS)
    others = [i for i, name in enumerate(grid.methods) if name in findings.about.rivals and i != ours]
    best = [others[i] for i in judged[others].mean(axis=-1).argmax(axis=0)]
    return [
        Match(rate, rival, judged[ours, at] - judged[rival, at])
        for at, (rate, rival) in enumerate(zip(grid.rates_usd, best, strict=True))
    ]


def _row(findings: Findings, at: int, match: Match) -> list[str]:
    grid, judged = findings.grid, judged_of(findings.grid)
    cells = [f"{match.rate_usd:.4g}"]
    for method in (findings.place(OURS), match.rival):
        spend = grid.figures["spend_ratio"][method, at].mean()
        over = "" if kept_of(grid)[method, at] else " †"
        name = [] if method == findings.place(OURS) else [f"`{grid.methods[method]}`"]
        cells += [*name, figure(judged[method, at].mean()), f"{spend:.4f}{over}"]
    error = float(np.nan_to_num(standard_error(match.lead)))
    lead = with_error(match.lead.mean(), float(standard_error(match.lead)), "+")
    return [*cells, f"**{lead}**" if match.lead.mean() >= -error else lead]


def _draw(findings: Findings) -> Figure:
    picture = new_figure(height=4.2)
    axes = picture.subplots()
    found = matches(findings)
    error = [np.nan_to_num(standard_error(match.lead)) for match in found]
    lead = [match.lead.mean() for match in found]
    axes.errorbar([match.rate_usd for match in found], lead, yerr=error, marker="o", **line_of(0))
    axes.axhline(0.0, color="black", linestyle="--", linewidth=1)
    axes.set_xscale("log")
    dress(axes, f"{OURS} on {findings.about.table}", "budget, USD per query (log scale)", "lead over the best other")
    return picture
