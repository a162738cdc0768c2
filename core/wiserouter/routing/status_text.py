"""The status of a budget as a few lines of text, a router as one, and both as small tables for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Protocol

from wiserouter.pricing.amounts import usd, usd_per_1000
from wiserouter.pricing.pool import Pool
from wiserouter.prompts.contexts import Contexts


def rows_of(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the status of a scope, a dictionary of `Status.as_dict`, as names and texts."""
    rows = [("budget", _budget(status)), ("calls", _calls(status)), ("ahead", _requests(status))]
    if status["expected_reward"] is not None:
        rows.append(("plan", _plan(status)))
    if status.get("unspent"):
        rows.append(("unspent", status["unspent"]))
    if status.get("conversations"):
        rows.append((f"{status['conversations']['unit']}s", _conversations(status["conversations"])))
    if status.get("judge"):
        rows.append(("judge", _judge(status["judge"])))
    rows += [("limit", _limit(one)) for one in status.get("limits", ())]
    rows += [("warning", line) for line in status.get("warnings", ())]
    if len(status["windows"]) > 1:
        rows += [(_name(window), _budget(window) + _renewal(window)) for window in status["windows"]]
    return rows


def text_of(status: Mapping[str, Any]) -> str:
    """Return the status of a scope on a few lines."""
    rows = rows_of(status)
    width = max(len(name) for name, _ in rows)
    return "\n".join([f"scope {status['scope']}", *(f"  {name:<{width}}  {text}" for name, text in rows)])


def html_of(status: Mapping[str, Any]) -> str:
    """Return the status of a scope as an HTML table."""
    return _table(f"scope {status['scope']}", rows_of(status))


class DescribedRouter(Protocol):
    """What is said of a router."""

    @property
    def pool(self) -> Pool:
        """The models."""

    @property
    def contexts(self) -> Contexts:
        """The contexts."""

    @property
    def policy(self) -> object:
        """The rule that chooses."""

    @property
    def durable(self) -> bool:
        """True if budgets are in a shared store."""


def text_of_router(router: DescribedRouter) -> str:
    """Return one line about a router."""
    models, contexts, policy, store = _parts(router)
    return f"<{type(router).__name__}: {models}; {contexts}, {policy}, budgets in {store}>"


def html_of_router(router: DescribedRouter) -> str:
    """Return an HTML table about a router."""
    names = ("models", "contexts", "policy", "budgets in")
    return _table(type(router).__name__, list(zip(names, _parts(router), strict=True)))


def _parts(router: DescribedRouter) -> tuple[str, str, str, str]:
    names, n_contexts = router.pool.names, router.contexts.n_contexts
    models = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    contexts = "1 context" if n_contexts == 1 else f"{n_contexts} contexts"
    return models, contexts, type(router.policy).__name__, "a shared store" if router.durable else "memory"


def _table(caption: str, rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table><caption>{escape(caption)}</caption>{cells}</table>"


def _name(window: Mapping[str, Any]) -> str:
    return "in all" if window["every"] is None else f"every {window['every']}"


def _renewal(account: Mapping[str, Any]) -> str:
    return "" if account["renews_at"] is None else f", renews {_time(account['renews_at'])}"


def _budget(account: Mapping[str, Any]) -> str:
    used = f" ({account['spent_usd'] / account['amount_usd']:.1%})" if account["amount_usd"] else ""
    parts = [
        f"{usd(account['spent_usd'])} of {usd(account['amount_usd'])} spent{used}",
        f"{usd(account['left_usd'])} left",
        *_unless_zero(account, "presumed_usd", "of it presumed"),
        *_unless_zero(account, "reserved_usd", "reserved by calls in flight"),
        *_unless_zero(account, "leased_usd", "leased by workers"),
        *_unless_zero(account, "carried_usd", "carried over"),
    ]
    return ", ".join(parts)


def _unless_zero(account: Mapping[str, Any], field: str, meaning: str) -> list[str]:
    amount = account[field]
    return [f"{usd(amount)} {meaning}"] if amount else []


def _calls(account: Mapping[str, Any]) -> str:
    states = {state: account[state] for state in ("charged", "in_flight", "presumed", "released")}
    counts = [f"{n:,} {state.replace('_', ' ')}" for state, n in states.items() if n]
    return ", ".join([f"{account['decided']:,} decided", *counts])


def _requests(account: Mapping[str, Any]) -> str:
    interval = (
        "" if account["horizon_low"] is None else f" (80 %: {account['horizon_low']:,} to {account['horizon_high']:,})"
    )
    requests = f"{account['horizon_left']:,} of {account['horizon']:,} requests{interval}"
    return f"{requests} at {usd_per_1000(account['rate_usd'])}{_renewal(account)}"


def _plan(status: Mapping[str, Any]) -> str:
    price = "" if status["shadow_price"] is None else f", {status['shadow_price']:,.4g} more per extra USD"
    mix = ", ".join(f"{name} {share:.0%}" for name, share in status["mix"].items() if share >= 0.005)
    return f"expected reward {status['expected_reward']:.4f}{price}: {mix}"


def _conversations(figures: Mapping[str, Any]) -> str:
    visits = f"{figures['stays']:,} stays, {figures['first_visits']:,} first visits, {figures['returns']:,} returns"
    hits = ", ".join(f"{name} {rate:.0%}" for name, rate in figures["hit_rate"].items())
    parts = [f"{figures['calls']:,} calls: {visits}", *([f"read from caches: {hits}"] if hits else [])]
    if figures["charged_usd"]:
        parts.append(
            f"{usd(figures['missed_usd'])} of {usd(figures['charged_usd'])} lost to misses (always staying "
            f"{usd(figures['always_stay_usd'])}, never staying {usd(figures['never_stay_usd'])})"
        )
    return "; ".join(parts)


def _judge(figures: Mapping[str, Any]) -> str:
    states = {state: figures[state] for state in ("waiting", "dropped", "failed", "unpaid", "kept_back")}
    counts = [f"{n:,} {state.replace('_', ' ')}" for state, n in states.items() if n]
    paid = [f"{usd(figures['spent_usd'])} spent"] if figures["spent_usd"] else []
    agreed = [f"agrees {figures['agreement']:.0%} with people on {figures['pairs']:,}"] if figures["pairs"] else []
    judged = f"{figures['source']}: {figures['judged']:,} of {figures['offered']:,} judged"
    return ", ".join([judged, *counts, *paid, *agreed])


def _limit(limit: Mapping[str, Any]) -> str:
    """Return one limit: its bound, what the calls have used so far, and its price."""
    total = "" if limit["total"] is None else f" of {limit['total']:,.4g} in all"
    parts = [f"{limit['name']} {limit['bound']:.4g}" if limit["bound"] is not None else limit["name"] + total]
    if limit["calls"]:
        parts.append(f"{limit['mean']:.4g} on average so far, {limit['used']:,.4g} in all")
    if limit["planned"] is not None:
        parts.append(f"planned {limit['planned']:.4g} of {limit['rate']:.4g}, price {limit['price']:.4g}")
    return ", ".join(parts)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%MZ")
