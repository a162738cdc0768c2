"""`wiserouter report`: what a router saves, from a shared store, a running proxy or a journal."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from wiserouter.cli.output import check_no_input, check_writable, err, out, print_json, table
from wiserouter.errors import InvalidInput
from wiserouter.operating.savings import presumed_calls, savings_of
from wiserouter.operating.savings_journal import calls_of, sums_of_journal
from wiserouter.operating.savings_terms import days_of, read_shares
from wiserouter.operating.savings_text import COLUMNS, html_of, lines_of, rows_of
from wiserouter.router import WiseRouter
from wiserouter.routing.journal_reader import JournalReader
from wiserouter.routing.pool_figures import PoolFigures
from wiserouter.stores.inspection import read_days
from wiserouter.validation import write_whole

KEY = "WISEROUTER_PROXY_KEY"

Reports = dict[str, dict[str, Any]]


def report(
    source: Annotated[
        str,
        typer.Argument(
            help=f"The URL or the file of a store, a LiteLLM proxy, whose key is in {KEY}, or a journal.",
            metavar="STORE|PROXY|JOURNAL",
        ),
    ],
    since: Annotated[str, typer.Option(help="The first day (2026-11-01), or how many: 30d, 4w, 1m.")] = "30d",
    scope: Annotated[str | None, typer.Option(help="Only this scope, such as a team.")] = None,
    group: Annotated[str | None, typer.Option(help="Only this group of a proxy.")] = None,
    before: Annotated[str | None, typer.Option(help="The traffic of before: large, or large=0.7,small=0.3.")] = None,
    artifact: Annotated[Path | None, typer.Option(help="With a journal: the router, which has the prices.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write one page of HTML.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what a router saves: against always the best model, always the cheapest, and the traffic of before.

    Example: wiserouter report --since 30d --before gpt-4o sqlite:///budget.db
    """
    check_writable(html)
    if source.startswith(("http://", "https://")):
        reports = _of_proxy(source, {"since": since, "scope": scope, "group": group, "before": before})
    elif "://" not in source and not Path(source).is_file():
        raise InvalidInput(f"a source must be a URL or an existing file, got {source!r}: correct it", value=source)
    elif "://" not in source and not _is_database(Path(source)):
        check_no_input(html, [Path(source)])
        reports = _of_journal(Path(source), since, scope, before, artifact)
    else:
        reports = _of_store(source if "://" in source else f"sqlite:///{source}", since, scope, before)
    if html is not None:
        write_whole(html, html_of("What the router saves", reports))
    if as_json:
        return print_json({"groups": reports})
    for name, one in reports.items():
        _show(name, one)
    return None


def _of_store(url: str, since: str, scope: str | None, before: str | None) -> Reports:
    shares = None if before is None else read_shares(before)
    found = read_days(url, lambda now_s: days_of(since, now_s), scope)
    if found.models is None:
        raise InvalidInput(
            f"{found.store} holds no figures of models yet: a router adds them within seconds", value=url
        )
    figures = PoolFigures.of_dict(json.loads(found.models))
    of_scope = found.accounts.get(scope or "default")
    presumed = None if of_scope is None else presumed_calls(of_scope.account, whole=scope is None)
    return {found.store: savings_of(found.cells, figures, scope=scope, before=shares, presumed=presumed).as_dict()}


def _of_journal(path: Path, since: str, scope: str | None, before: str | None, artifact: Path | None) -> Reports:
    shares = None if before is None else read_shares(before)
    models = () if artifact is None else WiseRouter.load(artifact).pool.models
    prices = {model.name: model.price for model in models if model.price is not None}
    reader = JournalReader(path)
    calls = calls_of(reader)
    if not calls:
        damaged = f"; {reader.skipped:,} lines are damaged, or the file is compressed" if reader.skipped else ""
        raise InvalidInput(
            f"{path} must be a store or a journal with charged calls, got none{damaged}; calls of shadow mode are "
            "shown by `wiserouter shadow report`",
            value=path,
        )
    if reader.skipped:
        err.print(f"{path}: skipped {reader.skipped} lines that are truncated or damaged", highlight=False)
    cells, figures = sums_of_journal(calls, lambda latest_s: days_of(since, latest_s), scope, prices)
    return {path.name: savings_of(cells, figures, scope=scope, before=shares).as_dict()}


def _is_database(path: Path) -> bool:
    """Return True for a file of SQLite."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _of_proxy(url: str, query: Mapping[str, str | None]) -> Reports:
    from wiserouter.fitting.platforms.http import request_json

    key = os.environ.get(KEY)
    if not key:
        raise InvalidInput(f"the environment variable {KEY} must hold the key of an administrator of the proxy")
    headers = {"authorization": f"Bearer {key}"}
    found: Reports = request_json(f"{url.rstrip('/')}/wiserouter/savings", query=query, headers=headers)["groups"]
    return found


def _show(name: str, one: Mapping[str, Any]) -> None:
    scope = "" if one["scope"] is None else f", scope {one['scope']}"
    out.print(table(f"Savings of {name}{scope}", COLUMNS, rows_of(one)))
    for line in lines_of(one):
        out.print(line, highlight=False, soft_wrap=True)
