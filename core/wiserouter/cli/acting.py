"""`wiserouter budget`, `model` and `mode`: what the routes of the proxy's administrators do, on the URL of a store."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from wiserouter.budgets.changes import BudgetChange
from wiserouter.cli.output import minute_of, out, print_json
from wiserouter.errors import InvalidInput, NotStarted
from wiserouter.pricing.prices import Price
from wiserouter.routing.journal import Journal
from wiserouter.routing.orders import ModelOrder, OrderAnswer, Orders, keep_order
from wiserouter.routing.run_time_changes import change_line, hashed
from wiserouter.routing.shadow import Shadow
from wiserouter.stores.open import open_engine, url_of
from wiserouter.stores.shared import SharedStore


class LimitName(StrEnum):
    """The kinds of limits."""

    EXPECTED = "expected"
    HARD = "hard"


class ModeName(StrEnum):
    """The modes, and the one of the configuration."""

    ROUTE = "route"
    SHADOW = "shadow"
    CONFIGURED = "configured"


StoreUrl = Annotated[
    str,
    typer.Option(
        envvar="WISEROUTER_STORE",
        help="Its file or URL: budget.db, redis://host:6379/0?name=wise. LiteLLM names it after the group.",
        metavar="URL",
        show_envvar=True,
    ),
]
By = Annotated[str, typer.Option(help="Who orders it, for the journal; by default the user of this machine.")]
Key = Annotated[str, typer.Option(help="An idempotency key: a second order with it changes nothing.")]
JournalFile = Annotated[Path | None, typer.Option("--journal", help="The journal to write the line of this change to.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def budget(
    store: StoreUrl,
    scope: Annotated[str, typer.Option(help="The scope, such as a team; `wiserouter status` shows them.")] = "default",
    every: Annotated[str | None, typer.Option(help="The period of the budget, where the scope has several.")] = None,
    amount: Annotated[float | None, typer.Option(help="The amount in USD from now on; ends increases.")] = None,
    add: Annotated[float | None, typer.Option(help="An increase in USD.")] = None,
    windows: Annotated[int | None, typer.Option(help="Windows that the increase lasts; 1 by default.")] = None,
    requests: Annotated[int | None, typer.Option(help="The number of requests that it is for.")] = None,
    limit: Annotated[LimitName | None, typer.Option(help="hard only while paused, with no call in flight.")] = None,
    pause: Annotated[bool | None, typer.Option("--pause/--resume", help="Refuse all calls, or go on.")] = None,
    reason: Annotated[str, typer.Option(help="Why it is paused, for those who are refused.")] = "",
    pause_s: Annotated[float | None, typer.Option(help="Seconds after which the pause ends by itself.")] = None,
    end: Annotated[bool, typer.Option("--end", help="End the budget for good.")] = False,
    by: By = "",
    key: Key = "",
    journal: JournalFile = None,
    as_json: AsJson = False,
) -> None:
    """Change a running budget in a shared store; all workers follow within a second.

    A change that would break a hard limit, and a scope without a budget, is one line on stderr and exit code 2.

    Example: wiserouter budget --store sqlite:///budget.db --scope team:research --add 100 --windows 2
    """
    if not end and all(one is None for one in (amount, add, requests, limit, pause)):
        raise InvalidInput("budget needs --amount, --add, --requests, --limit, --pause, --resume or --end, got none")
    change = BudgetChange(
        amount_usd=amount,
        add_usd=add,
        windows=windows,
        horizon=requests,
        limit=None if limit is None else limit.value,
        paused=pause,
        reason=reason,
        pause_s=pause_s,
        ended=end,
        every=every,
    )
    with _open_journal(journal) as file:
        with _opened(store) as opened:
            request = hashed(repr((scope, change)))
            try:
                answer = opened.change(scope, change, token=hashed(key) if key else "", request=request)
            except NotStarted as error:
                rule = f"--scope must have a budget in this store, got {scope!r}"
                raise InvalidInput(f"{rule}: wiserouter status shows those that have", value=scope) from error
            account = {"scope": scope, "account": answer.account}
            line = change_line("budget", opened.now(), by or _user(), answer.before, answer.after, **account)
        _report(line, file, as_json=as_json, replayed=answer.replayed)


def model(
    store: StoreUrl,
    name: Annotated[str, typer.Argument(help="The model, as the status of the router names it.")],
    retire: Annotated[bool | None, typer.Option("--retire/--bring-back", help="Send it no more queries.")] = None,
    max_share: Annotated[float | None, typer.Option(help="The most of the decisions that it receives.")] = None,
    input_usd: Annotated[float | None, typer.Option(help="Its price of an input token.")] = None,
    output_usd: Annotated[float | None, typer.Option(help="Its price of an output token.")] = None,
    cache_read_usd: Annotated[float | None, typer.Option(help="Of an input token read from a cache.")] = None,
    cache_write_usd: Annotated[float | None, typer.Option(help="Of an input token written to a cache.")] = None,
    reasoning_usd: Annotated[float | None, typer.Option(help="Of a reasoning token.")] = None,
    no_max_share: Annotated[bool, typer.Option("--no-max-share", help="Take the order for its share back.")] = False,
    no_price: Annotated[bool, typer.Option("--no-price", help="Take the order for its price back.")] = False,
    configured: Annotated[bool, typer.Option("--configured", help="Take all orders for it back.")] = False,
    by: By = "",
    key: Key = "",
    journal: JournalFile = None,
    as_json: AsJson = False,
) -> None:
    """Retire a model or bring it back, set its price or its largest share, in all workers of a shared store.

    The store does not know the models: a name that no worker has changes nothing, and workers leave an order alone that
    retires the last of their models.

    Example: wiserouter model large --store 'redis://host:6379/0?name=wise' --max-share 0.3
    """
    price = _price(input_usd, output_usd, cache_read_usd, cache_write_usd, reasoning_usd)
    given = _given(retired=retire, max_share=max_share, price=price)
    back = _given(max_share=no_max_share or None, price=no_price or None)
    if both := given.keys() & back.keys():
        raise InvalidInput(f"an order is given or taken back, got both for {', '.join(sorted(both))}")
    given |= dict.fromkeys(back)
    if configured == bool(given):
        kinds = "--retire, --bring-back, --max-share, a price, --no-max-share, --no-price"
        raise InvalidInput(f"model needs {kinds}, or --configured alone")

    def ordered(orders: Orders) -> tuple[Orders, OrderAnswer]:
        former = orders.models.get(name, ModelOrder())
        order = ModelOrder() if configured else replace(former, **given)
        before, after = ({"model": name, **asdict(one)} for one in (former, order))
        return orders.with_model(name, order), OrderAnswer("model", before, after)

    _give(store, ordered, repr(("model", name, given)), by, key, journal, as_json=as_json)


def mode(
    store: StoreUrl,
    name: Annotated[ModeName, typer.Argument(help="configured takes an order back.")],
    share: Annotated[float, typer.Option(help="In shadow mode: the share of the traffic that it acts on.")] = 0.0,
    by: By = "",
    key: Key = "",
    journal: JournalFile = None,
    as_json: AsJson = False,
) -> None:
    """Let the routers of a shared store route, observe, or act on a share of the traffic.

    Each worker divides its budgets then, and leaves the order alone where a hard one does not bear it.

    Example: wiserouter mode shadow --share 0.1 --store 'redis://host:6379/0?name=wise'
    """
    if share and name is not ModeName.SHADOW:
        raise InvalidInput(f"--share is for the mode shadow, got {share!r} with {name.value}", value=share)
    shadow = Shadow(share) if name is ModeName.SHADOW else None

    def ordered(orders: Orders) -> tuple[Orders, OrderAnswer]:
        new = orders._replace(mode="route" if name is ModeName.ROUTE else shadow)
        return new, OrderAnswer("mode", _mode(orders), _mode(new))

    _give(store, ordered, repr(("mode", name.value, share)), by, key, journal, as_json=as_json)


def _given(**terms: Any) -> dict[str, Any]:
    """Return the terms that are given."""
    return {field: value for field, value in terms.items() if value is not None}


def _price(input_usd: float | None, output_usd: float | None, *kinds_usd: float | None) -> Price | None:
    """Return the price that is given, with those of cache reads, cache writes and reasoning; None without one."""
    if input_usd is not None and output_usd is not None:
        return Price(input_usd, output_usd, *kinds_usd)
    given = [one for one in (input_usd, output_usd, *kinds_usd) if one is not None]
    if given:
        raise InvalidInput("a price needs --input-usd and --output-usd, got one of them or other kinds alone")
    return None


def _mode(orders: Orders) -> dict[str, Any]:
    if isinstance(orders.mode, Shadow):
        return {"mode": "shadow", "share": orders.mode.share}
    return {"mode": orders.mode or "configured"}


def _give(store: str, ordered: Any, request: str, by: str, key: str, journal: Path | None, *, as_json: bool) -> None:
    """Keep an order in a store, and report it."""
    with _open_journal(journal) as file:
        with _opened(store) as opened:
            _, answer = keep_order(opened, ordered, hashed(request), hashed(key) if key else "")
            line = change_line(answer.what, opened.now(), by or _user(), answer.before, answer.after)
        _report(line, file, as_json=as_json, replayed=answer.replayed)


@contextmanager
def _opened(store: str) -> Iterator[SharedStore]:
    """Yield a shared store that exists; it is closed then."""
    if store.startswith("memory:"):
        raise InvalidInput(
            f"store must be one that several processes share, got {store!r}: ask the routes of its own proxy",
            value=store,
        )
    engine, name, _ = open_engine(url_of(store), create=False)
    opened = SharedStore(engine, name=name)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def _open_journal(path: Path | None) -> Iterator[Journal | None]:
    """Yield the journal of a change, opened before it is made: an error afterwards invites to make it again."""
    file = None if path is None else Journal(path)
    try:
        yield file
    finally:
        if file is not None:
            file.close()


def _report(line: dict[str, Any], journal: Journal | None, *, as_json: bool, replayed: bool) -> None:
    """Write the line of a change into the journal, unless it was made before, and print it."""
    if journal is not None and not replayed:
        journal.note(lambda: line)
        journal.flush()
    if as_json:
        print_json({**line, "replayed": replayed})
        return
    before, after = line["before"], line["after"]
    changed = [name for name in after if after[name] != before.get(name)]
    changes = [f"{name} {_term(name, before.get(name))} -> {_term(name, after[name])}" for name in changed]
    made = "made before" if replayed else "; ".join(changes) or "nothing new"
    what = " ".join(filter(None, [line["what"], str(line.get("scope") or after.get("model") or "")]))
    out.print(f"{what}: {made}", highlight=False, soft_wrap=True)


def _term(name: str, value: object) -> str:
    """Return a term of a change in words; a time is that of UTC."""
    if value is None or value == "":
        return "none"
    return minute_of(value) if name == "paused_until" and isinstance(value, float) else str(value)


def _user() -> str:
    return f"cli:{getpass.getuser()}"
