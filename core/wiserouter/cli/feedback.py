"""`wiserouter feedback pull`: new scores of a platform, handed to the running router."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import Annotated

import typer

from wiserouter.cli.log_options import ScaleOption
from wiserouter.cli.output import check_writable, out, print_json
from wiserouter.errors import AlreadySettled, InvalidInput, UnknownDecision
from wiserouter.fitting.log.scores import UNIT, Scale
from wiserouter.integration.feedback_pull import (
    FeedbackPull,
    PullState,
    Rate,
    platform_of,
    pulled_fields,
    rate_at_proxy,
)
from wiserouter.operating.since import start_s
from wiserouter.router import WiseRouter

app = typer.Typer(help="Hand scores to a running router.", no_args_is_help=True)

DEFAULT_SINCE_S = 86_400.0
KEY = "WISEROUTER_PROXY_KEY"


@app.callback()
def _feedback() -> None:
    """Hand scores to a running router."""


@app.command()
def pull(
    platform: Annotated[str, typer.Argument(help="langfuse, langsmith or mlflow; keys come from its own variables.")],
    to: Annotated[str, typer.Option("--to", help=f"The LiteLLM proxy, whose key is in {KEY}, or the URL of a store.")],
    artifact: Annotated[
        Path | None, typer.Option(help="With a store: the artifact that its workers have loaded.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="The earliest score of the first pull: a date, or an age; by default 1d.")
    ] = None,
    score: Annotated[str | None, typer.Option("--score", help="The metric, where people gave several.")] = None,
    scale: ScaleOption = None,
    state: Annotated[
        Path | None, typer.Option(help="A file that keeps the place, so that the next pull goes on.")
    ] = None,
    url: Annotated[str, typer.Option(help="The address of the platform, where its variable does not say it.")] = "",
    project: Annotated[str, typer.Option(help="The experiment of MLflow, or the project id of LangSmith.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Pull the scores that are new on a platform, and hand them to the running router by the ids of its calls.

    Example: wiserouter feedback pull langfuse --to http://localhost:4000 --score helpful --state pull.json
    """
    check_writable(state)
    now_s = time.time()
    begin = PullState.read(state, now_s - DEFAULT_SINCE_S if since is None else start_s(since, now_s))
    found, router = platform_of(platform, os.environ, url, project), _router(to, artifact)
    pulling = FeedbackPull(
        found,
        _rate(to, router),
        score,
        UNIT if scale is None else Scale.parse(scale),
        state,
    )
    try:
        counts = pulling.run(begin)
    finally:
        if router is not None:
            router.close()
    if as_json:
        return print_json({**pulled_fields(counts), "platform": platform})
    out.print(
        f"{counts.taken:,} scores handed over; {counts.unknown:,} of unknown calls, {counts.refused:,} not on the "
        f"scale, {counts.other:,} of other metrics, {counts.older:,} older than another of the same call",
        highlight=False,
        soft_wrap=True,
    )
    return None


def _router(to: str, artifact: Path | None) -> WiseRouter | None:
    """Return a router on a store; None for a proxy."""
    if to.startswith(("http://", "https://")):
        return None
    if artifact is None:
        raise InvalidInput("a store needs --artifact, the file that its workers have loaded: scores are learned by it")
    return WiseRouter.load(artifact, store=to)


def _rate(to: str, router: WiseRouter | None) -> Rate:
    if router is None:
        key = os.environ.get(KEY)
        if not key:
            raise InvalidInput(f"the environment variable {KEY} must hold a key of the proxy")
        return rate_at_proxy(to, key)

    return partial(_rated, router)


def _rated(router: WiseRouter, ids: Sequence[str], reward: float, source: str) -> bool:
    """Reward the decision of the first id that is known, or all decisions of the first run that is."""
    for id_ in ids:
        if _is_rewarded(router, id_, reward, source):
            return True
        known = takewhile(lambda name: _is_rewarded(router, name, reward, source), _names_of_run(id_))
        if sum(1 for _ in known):
            return True
    return False


def _names_of_run(run_id: str) -> Iterator[str]:
    """Yield the names that LangChain's router gives the decisions of a run."""
    return (f"run {run_id} {position}" for position in count())


def _is_rewarded(router: WiseRouter, name: str, reward: float, source: str) -> bool:
    try:
        router.reward(name, reward, source=source)
    except (UnknownDecision, AlreadySettled):
        return False
    return True
