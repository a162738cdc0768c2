"""`wiserouter shadow report`: what the router would have spent and gained, from the journal of shadow mode."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from wiserouter.cli.judge import function_named
from wiserouter.cli.output import check_writable, err, out, print_json, table
from wiserouter.cli.shadow_judging import judged_figures, judged_lines, texts_of
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.off_policy.estimators import Estimate
from wiserouter.evaluation.off_policy.observed_calls import observed_calls
from wiserouter.evaluation.off_policy.shadow_calls import UNNAMED, ShadowCalls, read_shadow_calls
from wiserouter.evaluation.off_policy.shadow_gain import Gain, estimated_gain, gain, incumbents
from wiserouter.evaluation.off_policy.shadow_judging import ShadowJudging
from wiserouter.evaluation.off_policy.steady_shares import shares_are_steady
from wiserouter.routing.journal_reader import JournalReader

app = typer.Typer(help="Report on shadow mode, where the router decides but does not act.", no_args_is_help=True)

MOST_SHOWN = 20
"""Most models of the table."""

LEAST_UNSEEN = 0.005
"""Share of what runs without the router that too few calls show, from which on the report says so."""


@app.callback()
def _shadow() -> None:
    """Report on shadow mode, where the router decides but does not act."""


@app.command()
def report(
    journal: Annotated[Path, typer.Argument(help="The journal of a router in shadow mode.")],
    judge: Annotated[
        str | None,
        typer.Option(help="Compares would-be answers: a function of a prompt and two answers, module:function."),
    ] = None,
    answers: Annotated[
        str | None, typer.Option(help="Makes them: a function of model and prompt, as module:function.")
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="Prompts and answers of the calls, by id.")] = None,
    budget: Annotated[float | None, typer.Option(help="The most to spend on answers and judge, in USD.")] = None,
    answer_cost: Annotated[float | None, typer.Option(help="The most that one answer costs, in USD.")] = None,
    judge_cost: Annotated[float | None, typer.Option(help="The most that one judgement costs, in USD.")] = None,
    share: Annotated[float, typer.Option(help="The share of the would-be answers to judge.")] = 1.0,
    verdicts: Annotated[
        Path | None, typer.Option(help="A .jsonl file that keeps the verdicts, so that a next run goes on.")
    ] = None,
    prompt: Annotated[str, typer.Option(help="Column of the prompts.")] = "prompt",
    answer: Annotated[str, typer.Option(help="Column of the answers.")] = "answer",
    concurrency: Annotated[int, typer.Option(help="Calls judged at once.")] = 4,
    seed: Annotated[int, typer.Option(help="Seeds the sample.", min=0)] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="State what judging costs, and ask nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what the router would have spent and gained, and how much of that the calls show.

    Example: wiserouter shadow report decisions.jsonl
    """
    reader = JournalReader(journal)
    figures = {"journal": str(journal), **report_of(read_shadow_calls(reader))}
    figures["skipped_lines"] = reader.skipped
    if judge is not None:
        if answers is None or texts is None or budget is None:
            raise InvalidInput("--judge needs --answers, --texts and --budget: would-be answers are made and judged")
        check_writable(verdicts)
        calls = observed_calls(JournalReader(journal))
        made, compared = function_named(answers, "--answers"), function_named(judge, "--judge")
        judging = ShadowJudging(made, compared, budget, answer_cost, judge_cost, share, concurrency, seed)
        known = texts_of(texts, prompt, answer, calls)
        figures["judged"] = judged_figures(judging, calls, known, verdicts, dry_run=dry_run)
    elif answers or texts or budget is not None or dry_run:
        raise InvalidInput("--answers, --texts, --budget and --dry-run need --judge, got none")
    if as_json:
        return print_json(figures)
    if reader.skipped:
        err.print(f"{journal}: skipped {reader.skipped} lines that are truncated or damaged", highlight=False)
    return _show(figures)


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


def _show(figures: dict[str, Any]) -> None:
    n, acted = figures["calls"], figures["acted"]
    rows = [(one["model"], f"{one['incumbent']:.1%}", f"{one['would_be']:.1%}") for one in figures["models"]]
    title = f"{n:,} calls, {acted:,} of them acted on; {figures['spent_usd']:,.4g} USD spent"
    out.print(table(title, ("model", "without the router", "with it"), rows[:MOST_SHOWN]))
    for line in lines_of(figures):
        out.print(line, highlight=False, soft_wrap=True)


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
    return lines + (judged_lines(figures["judged"]) if "judged" in figures else [])
