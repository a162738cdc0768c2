"""`wiserouter explain`: the explanation of a decision from a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wiserouter.cli.output import err, out, print_json, table
from wiserouter.pricing.amounts import usd, usd_per_1000
from wiserouter.router import WiseRouter
from wiserouter.routing.journal_reader import JournalReader, find_explanation
from wiserouter.types import NO_CONTEXT


def explain(
    decision: Annotated[str, typer.Argument(help="The decision's id, or last.", metavar="ID")],
    journal: Annotated[Path, typer.Option(help="A journal written by `journal_to`.")] = Path("decisions.jsonl"),
    artifact: Annotated[Path | None, typer.Option(help="The router's artifact, to describe the context.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explain a decision: context, account, and every model with its figures or the rule that excluded it.

    Example: wiserouter explain last --journal decisions.jsonl --artifact support.wise
    """
    reader = JournalReader(journal)
    found = find_explanation(reader, decision)
    if artifact is not None:
        found["context"] = {**found["context"], **about(WiseRouter.load(artifact), found["context"]["id"])}
    if reader.skipped:
        err.print(f"{journal}: skipped {reader.skipped} lines that are truncated or damaged", highlight=False)
    if as_json:
        return print_json(found)
    return _show(found)


def about(router: WiseRouter, context: int) -> dict[str, list[str]]:
    """Return the characteristic words and typical prompts of a context."""
    summary = router.contexts.summary(context)
    return {"terms": list(summary.terms), "typical_prompts": list(summary.prompts)}


def _show(found: dict[str, Any]) -> None:
    """Print an explanation as a table and text."""
    rows = [
        (
            model["name"] + (" *" if model["name"] == found["model"] else ""),
            f"{model['probability']:.1%}",
            _reward(model),
            _per_1000(model["expected_cost_usd"]),
            _figure(model["worth"]),
            f"{model['labels']:,}/{model['calls']:,}",
            _per_1000(model["worst_case_usd"]),
            model["excluded_by"] or ("on the envelope" if model["on_envelope"] else "candidate"),
        )
        for model in sorted(found["models"], key=_order)
    ]
    columns = ("model", "drawn", "reward", "cost", "worth", "seen", "at most", "rule")
    out.print(table(f"Decision {found['id']}: {found['model'] or 'skipped'}", columns, rows))
    out.print("cost and at most: for 1,000 calls; seen: rewards/costs observed", highlight=False, soft_wrap=True)
    out.print("\n" + "\n".join(_lines(found)), highlight=False)


def _order(model: dict[str, Any]) -> tuple[float, bool, float]:
    return -model["probability"], model["excluded_by"] is not None, model["expected_cost_usd"] or 0.0


def _lines(found: dict[str, Any]) -> list[str]:
    price = found["shadow_price"]
    at_margin = "the cheapest models only" if price is None else f"{price:,.4g} reward per extra USD"
    room = "" if found["room_usd"] is None else f", room for a worst case of {usd(found['room_usd'])}"
    return [
        f"context   {_context(found['context'])}",
        f"rule      {_RULES[found['rule']]}",
        f"account   {found['scope']}: {_usd(found['left_usd'])} for {found['requests_left']:,} requests, a rate of "
        f"{usd_per_1000(found['rate_usd'])}; {at_margin}{room}",
        f"reserved  {usd(found['reserved_usd'])}, expected cost {usd_per_1000(found['expected_cost_usd'])}, expected "
        f"reward {found['expected_reward']:.4f}",
        *_conversation(found),
        *_unspent(found),
        f"since     {_since(found)}",
    ]


def _conversation(found: dict[str, Any]) -> list[str]:
    """Return the line on the conversation of the call, where it has one; journals of calls alone lack its fields."""
    if not found.get("conversation"):
        return []
    run_id, visit = found.get("run_id"), _VISITS.get(str(found.get("visit")), "a call")
    return [f"run       {run_id}: {visit}" if run_id else f"session   {found['conversation'][:12]}: {visit}"]


def _unspent(found: dict[str, Any]) -> list[str]:
    """Return the line on money that is left; earlier journals lack it."""
    return [f"unspent   {found['unspent']}"] if found.get("unspent") else []


_RULES = {
    "plan": "the plan's mix at that rate",
    "explore": "exploration of the models tried least in this context",
    "first": "the cheapest model, until a first call was paid for",
    "cheapest": "the budget is used up: the cheapest model continues",
    "hold": "the run goes on with the model that holds it",
}
_VISITS = {
    "first": "first visit of the model",
    "stay": "the model of the call before stays",
    "return": "the model returns after another one",
}


def _context(context: dict[str, Any]) -> str:
    if context["id"] == NO_CONTEXT:
        return "none: decided by the estimates over all contexts"
    words, prompts = ", ".join(context.get("terms", ())), ", ".join(context.get("typical_prompts", ()))
    described = [f"about: {words}"] if words else []
    described += [f"typical prompts: {prompts}"] if prompts else []
    return "; ".join([f"{context['id']} ({context['share']:.1%} of the traffic)", *described])


def _since(found: dict[str, Any]) -> str:
    paid = "" if found["cost_usd"] is None else f" {usd(found['cost_usd'])} by {found['answered_by'] or 'no model'}"
    if found["state"] == "presumed":
        paid = f" to cost {usd(found['cost_usd'])}, since its outcome is unknown"
    rated = "" if found["reward"] is None else f", reward {found['reward']:.4g}"
    asked = ", feedback requested" if found["ask_feedback"] else ""
    return f"{found['state']}{paid}{rated}{asked}"


def _reward(model: dict[str, Any]) -> str:
    optimistic = model.get("optimistic_reward")
    return _figure(model["expected_reward"]) + ("" if optimistic is None else f", taken as {optimistic:.4f}")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _per_1000(value: float | None) -> str:
    return "" if value is None else usd(1_000 * value)


def _usd(value: float | None) -> str:
    return "" if value is None else usd(value)
