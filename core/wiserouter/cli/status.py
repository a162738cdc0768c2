"""`wiserouter status`: the accounts of all budgets in a shared store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from wiserouter.cli.output import minute_of, out, print_json, table
from wiserouter.errors import InvalidInput
from wiserouter.pricing.amounts import usd, usd_per_1000
from wiserouter.routing.status import status_of
from wiserouter.stores.inspection import AccountSnapshot, StoreSnapshot, inspect_store
from wiserouter.stores.open import url_of

_MOST_NAMED = 10
"""Scopes that an error names."""


def status(
    store: Annotated[
        str,
        typer.Option(
            envvar="WISEROUTER_STORE",
            help="Its file or URL: budget.db, redis://host:6379/0?name=wise. LiteLLM names it after the group.",
            metavar="URL",
            show_envvar=True,
        ),
    ],
    scope: Annotated[str | None, typer.Option(help="Only this scope, such as a team.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the account of every budget in a shared store, without changing the store or creating a file.

    A store that cannot be reached or read is one line on stderr and exit code 2.

    Example: wiserouter status --store sqlite:///budget.db
    """
    found = inspect_store(url_of(store))
    if scope is not None and scope not in found.accounts:
        known = ", ".join(list(found.accounts)[:_MOST_NAMED]) or "none has"
        if (others := len(found.accounts) - _MOST_NAMED) > 0:
            known += f" and {others:,} others"
        raise InvalidInput(f"scope must have a budget in {found.store} ({known}), got {scope!r}", value=scope)
    scopes = {name: one for name, one in found.accounts.items() if scope in (None, name)}
    if as_json:
        return print_json(as_dict(found, scopes))
    return _show(found, scopes)


def as_dict(found: StoreSnapshot, scopes: dict[str, AccountSnapshot]) -> dict[str, Any]:
    """Return the accounts for JSON."""
    return {
        "store": found.store,
        "as_of": found.now_s,
        "answered_in_ms": found.took_s * 1e3,
        "scopes": [
            {"scope": scope, "parent": account.parent, **pause_of(account), "windows": windows(scope, account)}
            for scope, account in scopes.items()
        ],
    }


def pause_of(account: AccountSnapshot) -> dict[str, Any]:
    """Return the pause or the end by which the budget of a scope, or one that encloses it, refuses calls."""
    stopped, pause = min(account.pauses, key=lambda one: not one[1].ended, default=(None, None))
    return {
        "paused": pause is not None and not pause.ended,
        "ended": pause is not None and pause.ended,
        "stopped_scope": stopped,
        "reason": "" if pause is None else pause.reason,
        "paused_until": None if pause is None else pause.until_s,
    }


def windows(scope: str, account: AccountSnapshot) -> list[dict[str, Any]]:
    """Return the account of each budget of a scope, the innermost first."""
    return [asdict(one) for one in status_of(scope, account.account, None, ()).windows[: account.own]]


def _show(found: StoreSnapshot, scopes: dict[str, AccountSnapshot]) -> None:
    """Print the accounts as a table."""
    if scopes:
        rows = [_row(scope, one, window) for scope, one in scopes.items() for window in windows(scope, one)]
        grid = table(f"Budgets in {found.store}", ("scope", "budget", "account", "requests"), rows, left=4)
        grid.show_lines = True
        out.print(grid, "")
    else:
        out.print("No budget runs there; if several routers share a server, add ?name= to the URL.", soft_wrap=True)
    line = f"{found.store} answered in {found.took_s * 1e3:.2g} ms, at {minute_of(found.now_s)}"
    out.print(line, highlight=False, soft_wrap=True)


_AMOUNTS = {
    "carried": "carried",
    "spent": "spent",
    "presumed": "of it presumed",
    "reserved": "reserved",
    "leased": "leased",
    "left": "left",
}
_ALWAYS = ("spent", "reserved", "leased", "left")


def _row(scope: str, account: AccountSnapshot, window: dict[str, Any]) -> tuple[str, ...]:
    parent = [] if account.parent is None else [f"within {account.parent}"]
    stopped = [_stopped(scope, pause_of(account))] if account.pauses else []
    renews = [] if window["every"] is None else [f"every {window['every']}", f"until {minute_of(window['renews_at'])}"]
    money = {state: window[f"{state}_usd"] for state in _AMOUNTS}
    calls = {state: window[state] for state in ("in_flight", "charged", "presumed", "released")}
    ahead = [f"{window['horizon_left']:,} left of {window['horizon']:,}", f"at {usd_per_1000(window['rate_usd'])}"]
    return (
        "\n".join([scope, *parent, *stopped]),
        "\n".join([f"{usd(window['amount_usd'])} {window['limit']}", *renews]),
        "\n".join(
            [f"{usd(amount)} {_AMOUNTS[state]}" for state, amount in money.items() if amount or state in _ALWAYS]
        ),
        "\n".join([*ahead, *[f"{n:,} {state.replace('_', ' ')}" for state, n in calls.items() if n]]),
    )


def _stopped(scope: str, pause: dict[str, Any]) -> str:
    """Return why the calls of a scope are refused."""
    state = "ENDED" if pause["ended"] else "PAUSED"
    of = "" if pause["stopped_scope"] == scope else f" in {pause['stopped_scope']}"
    until = "" if pause["paused_until"] is None else f" until {minute_of(pause['paused_until'])}"
    return f"{state}{of}{until}" + (f": {pause['reason']}" if pause["reason"] else "")
