"""`wiserouter simulate --environment agents | chats`: units of decision on simulated conversations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from wiserouter.cli.output import out, print_json, progress, table
from wiserouter.evaluation.conversations.experiment import (
    FRACTIONS,
    NAMES,
    ConversationStudy,
    simulate_conversations,
)
from wiserouter.evaluation.conversations.provider_terms import snapshot_date
from wiserouter.evaluation.conversations.summary import PolicySummary, reference_of, summarise_policies

ENVIRONMENTS = ("agents", "chats")
CONVERSATIONS, SEEDS = 200, 3
"""By default."""


def compare_units(
    study: ConversationStudy, seeds: Sequence[int], *, jobs: int | None, plot: Path | None, as_json: bool
) -> None:
    """Run every policy, and print a table or JSON."""
    study = study.checked()
    with progress(quiet=as_json) as bars:
        bar = bars.add_task("simulating", total=len(seeds) * len(study.fractions) * len(study.policies))
        scores = simulate_conversations(study, seeds, jobs=jobs, tick=partial(bars.advance, bar))
    summaries = summarise_policies(scores)
    if plot is not None:
        from wiserouter.evaluation.conversations.picture import plot_policies

        plot_policies(summaries, plot, _title(study, len(seeds)))
    if as_json:
        print_json(_figures(study, summaries))
        return
    reference = reference_of(summaries)
    budgets = [f"{1_000 * budget:.3g}" for budget in summaries[0].budget_usd.mean(axis=0)]
    columns = ("policy", *budgets, f"- {reference.policy}", "s.e.", "spend/budget", "waste")
    rows = [_row(summary, reference) for summary in summaries]
    out.print(table(_title(study, len(seeds)), columns, rows), "")
    out.print(
        "Quality at a spend that equals the budget, by budget in USD per 1,000 conversations; its mean difference from "
        f"{reference.policy}; least and greatest mean spend over budget; greatest mean share of the spend that was "
        f"paid for prefixes which another model had read. Prices of {snapshot_date()}.",
        highlight=False,
    )
    if plot is not None:
        out.print(f"Picture: {plot}", highlight=False)


def study_of(
    environment: str, policies: Sequence[str] | None, conversations: int | None, credit: str, fraction: float | None
) -> ConversationStudy:
    """Return the study that the options of the command describe."""
    return ConversationStudy(
        environment,  # type: ignore[arg-type]
        NAMES if policies is None else tuple(policies),
        CONVERSATIONS if conversations is None else conversations,
        credit,  # type: ignore[arg-type]
        FRACTIONS if fraction is None else (fraction,),
    ).checked()


def _figures(study: ConversationStudy, summaries: Sequence[PolicySummary]) -> dict[str, object]:
    reference = reference_of(summaries)
    policies = [{**one.as_dict(), "gain": _gain(one, reference)} for one in summaries]
    return {**study._asdict(), "prices": snapshot_date(), "reference": reference.policy, "policies": policies}


def _gain(summary: PolicySummary, reference: PolicySummary) -> dict[str, object]:
    by_budget, mean, error = summary.gain_over(reference)
    return {"by_budget": by_budget.tolist(), "mean": mean, "se": error}


def _title(study: ConversationStudy, n_seeds: int) -> str:
    credit = f", credit {study.credit}" if study.environment == "agents" else ""
    seeds = f"{n_seeds} seed{'s' * (n_seeds > 1)}"
    return f"{study.environment}: {study.conversations:,} conversations{credit}, {seeds}"


def _row(summary: PolicySummary, reference: PolicySummary) -> tuple[str, ...]:
    _, gain, error = summary.gain_over(reference)
    spend = summary.spend_ratio.mean(axis=0)
    return (
        summary.policy,
        *(f"{quality:.3f}" for quality in summary.at_budget.mean(axis=0)),
        f"{gain:+.4f}",
        "" if error is None else f"{error:.4f}",
        f"{spend.min():.3f} {spend.max():.3f}",
        f"{summary.waste.mean(axis=0).max():.1%}",
    )
