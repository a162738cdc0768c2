"""The calls of Langfuse and LangSmith, page by page through their HTTP interfaces.

Langfuse: `GET /api/public/v2/observations` by cursor, and where that is not there the first version by page. LangSmith:
`POST /api/v2/runs/query` by cursor, and where that is not there the first version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.fitting.imports.calls import ImportedScore, Recorded, mapping_of
from wiserouter.fitting.platforms.http import HttpRefused, request_json
from wiserouter.fitting.platforms.score_pages import (
    PAGE,
    Fetch,
    Platform,
    answer_of,
    check_goes_on,
    iso_time,
    score_pages,
)

_FIELDS = "core,basic,time,io,metadata,model,usage"
_SELECTS = [
    *("ID", "NAME", "RUN_TYPE", "START_TIME", "END_TIME", "INPUTS", "ERROR", "EXTRA", "METADATA", "PARENT_RUN_IDS"),
    *("TRACE_ID", "THREAD_ID", "PROMPT_TOKENS", "COMPLETION_TOKENS", "PROMPT_TOKEN_DETAILS", "TOTAL_COST"),
]
_NOT_THERE = frozenset({404, 405, 501})


class CallPage(NamedTuple):
    """One page of records, and the cursor after it; None at the end."""

    records: list[Recorded]
    cursor: list[str] | None


def call_pages(
    platform: Platform, since_s: float, until_s: float, cursor: list[str] | None = None, fetch: Fetch = request_json
) -> Iterator[CallPage]:
    """Yield the records of the calls of a time.

    Parameters
    ----------
    platform : Platform
        Langfuse, or LangSmith with the id of a project.
    since_s, until_s : float
        The earliest and the latest start of a call, in seconds since 1970.
    cursor : list of str, optional
        Where an earlier reading stopped.
    fetch : callable
        Sends a request.

    Raises
    ------
    HttpRefused, OSError, InvalidInput
        As `fetch` does, or if the platform shows its calls in files only.
    """
    check_has_pages(platform.name)
    read = _langfuse if platform.name == "langfuse" else _langsmith
    while True:
        page = read(platform, since_s, until_s, cursor, fetch)
        yield page
        if page.cursor is None:
            return
        check_goes_on(platform, cursor, page.cursor)
        cursor = page.cursor


def check_has_pages(name: str) -> None:
    """Raise `InvalidInput` where the calls of a system are read from files alone."""
    if name not in {"langfuse", "langsmith"}:
        raise InvalidInput(f"calls of {name} are read from files, got an address: export them", value=name)


def scores_of_platform(platform: Platform, since_s: float, fetch: Fetch = request_json) -> Iterator[ImportedScore]:
    """Yield the scores since a time, each about the closest id that it names."""
    for page in score_pages(platform, since_s, fetch=fetch):
        for one in page.scores:
            yield ImportedScore(one.targets[0], one.name, one.value, one.at_s)


def _langfuse(platform: Platform, since_s: float, until_s: float, cursor: list[str] | None, fetch: Fetch) -> CallPage:
    base = platform.url.rstrip("/") + "/api/public"
    version, place, *began = cursor or ["v2", ""]
    until = began[0] if began else iso_time(until_s)  # pages by number are those of the latest calls first
    query = {"type": "GENERATION", "fromStartTime": iso_time(since_s), "toStartTime": until}
    if version == "v2":
        paged = {**query, "limit": 1_000, "fields": _FIELDS, "cursor": place or None}
        try:
            answer = fetch(f"{base}/v2/observations", query=paged, headers=platform.headers)
        except HttpRefused as error:
            if error.status != 404 or cursor is not None:
                raise
        else:
            answer = answer_of(platform, answer, dict)
            following = mapping_of(answer.get("meta")).get("cursor")
            return CallPage(_records(answer.get("data")), ["v2", following] if following else None)
    number = int(place or 1)
    numbered = {**query, "limit": PAGE, "page": number}
    answer = answer_of(platform, fetch(f"{base}/observations", query=numbered, headers=platform.headers), dict)
    last = mapping_of(answer.get("meta")).get("totalPages") or 0
    return CallPage(_records(answer.get("data")), ["v1", str(number + 1), until] if number < last else None)


def _langsmith(platform: Platform, since_s: float, until_s: float, cursor: list[str] | None, fetch: Fetch) -> CallPage:
    if not platform.project:
        raise InvalidInput("langsmith needs the id of a project: give --project")
    *version, place = cursor or ["v2", ""]  # imports that were stopped before there was a v2 have a place alone
    base, following = platform.url.rstrip("/"), {"cursor": place} if place else {}
    if version == ["v2"]:
        body = {
            "project_ids": [platform.project],
            "run_type": "LLM",
            "selects": _SELECTS,
            "min_start_time": iso_time(since_s),
            "max_start_time": iso_time(until_s),
            "page_size": PAGE,
            **following,
        }
        try:
            runs = fetch(f"{base}/api/v2/runs/query", body=body, headers=platform.headers)
        except HttpRefused as error:
            if error.status not in _NOT_THERE or cursor is not None:
                raise
        else:
            answer = answer_of(platform, runs, dict)
            after = answer.get("next_cursor")
            return CallPage(_records(answer.get("items")), ["v2", after] if after else None)
    body = {
        "session": [platform.project],
        "run_type": "llm",
        "start_time": iso_time(since_s),
        "end_time": iso_time(until_s),
        "limit": PAGE,
        **following,
    }
    runs = fetch(f"{base}/api/v1/runs/query", body=body, headers=platform.headers)
    answer = answer_of(platform, runs, dict)
    after = mapping_of(answer.get("cursors")).get("next")
    return CallPage(_records(answer.get("runs")), ["v1", after] if after else None)


def _records(records: object) -> list[Recorded]:
    return [mapping_of(one) for one in records] if isinstance(records, list) else []
