"""The scores of Langfuse, LangSmith and MLflow, page by page through their HTTP interfaces.

Langfuse: `GET /api/public/v3/scores` by cursor, and where that is not there `v2` by page. LangSmith: `GET
/api/v1/feedback` by offset. MLflow: `POST /api/3.0/mlflow/traces/search` by token; its scores come with their traces,
so that traces from before the wanted time are read too.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from wiserouter.errors import InvalidInput
from wiserouter.fitting.imports.calls import Recorded, first_filled, mapping_of, text_of, texts, time_of
from wiserouter.fitting.imports.langfuse import score_value
from wiserouter.fitting.platforms.http import HttpRefused, request_json

PAGE = 100
LOOKBACK_S = 7 * 86_400.0
"""Time before the wanted one whose traces MLflow is asked for: as long as answers can be rated by default."""

_Answer = TypeVar("_Answer", dict[str, Any], list[Any])

Fetch = Callable[..., Any]
"""Sends a request, as `request_json`."""


class PulledScore(NamedTuple):
    """One score of a platform.

    Attributes
    ----------
    id : str
        The platform's id of the score.
    targets : tuple of str
        The ids that it is about, the closest first.
    name : str
        The name of the metric.
    value : object
        A number, a boolean or a verdict.
    at_s : float or None
        The time of its last change, in seconds since 1970.
    source : str
        The source as `WiseRouter.reward` takes it: of a person, a judge or a rule.
    """

    id: str
    targets: tuple[str, ...]
    name: str
    value: object
    at_s: float | None
    source: str


class ScorePage(NamedTuple):
    """One page of scores, and the place after it; None at the end."""

    scores: list[PulledScore]
    next_place: str | None


class Platform(NamedTuple):
    """The address and the credentials of a platform.

    Attributes
    ----------
    name : {"langfuse", "langsmith", "mlflow"}
        The platform.
    url : str
        Its address.
    headers : mapping of str to str
        The credentials.
    project : str
        The experiment of MLflow, or the project id of LangSmith; empty for all of LangSmith's.
    """

    name: str
    url: str
    headers: Mapping[str, str]
    project: str = ""


def platform_of(name: str, environment: Mapping[str, str], url: str = "", project: str = "") -> Platform:
    """Return a platform with the credentials of its own environment variables.

    Raises
    ------
    InvalidInput
        If the platform is unknown, or a variable is missing.
    """
    if name == "langfuse":
        found = url or environment.get("LANGFUSE_BASE_URL") or environment.get("LANGFUSE_HOST")
        keys = ":".join(_needed(environment, f"LANGFUSE_{kind}_KEY") for kind in ("PUBLIC", "SECRET"))
        basic = {"authorization": f"Basic {base64.b64encode(keys.encode()).decode()}"}
        return Platform(name, found or "https://cloud.langfuse.com", basic)
    if name == "langsmith":
        found = url or environment.get("LANGSMITH_ENDPOINT") or "https://api.smith.langchain.com"
        base = found.rstrip("/").removesuffix("/v1").removesuffix("/api")  # as LangSmith's own client takes it
        return Platform(name, base, {"x-api-key": _needed(environment, "LANGSMITH_API_KEY")}, project)
    if name == "mlflow":
        found = url or _needed(environment, "MLFLOW_TRACKING_URI")
        if not project:
            raise InvalidInput("mlflow needs the id of an experiment: give project (--project on the command line)")
        return Platform(name, found, _mlflow_headers(environment), project)
    raise InvalidInput(f"a platform must be langfuse, langsmith or mlflow, got {name!r}", value=name)


def score_pages(
    platform: Platform, since_s: float, place: str | None = None, fetch: Fetch = request_json
) -> Iterator[ScorePage]:
    """Yield the scores since a time, from a place on.

    Parameters
    ----------
    platform : Platform
        The platform.
    since_s : float
        The earliest change of a score, in seconds since 1970.
    place : str, optional
        The place at which an earlier reading stopped.
    fetch : callable
        Sends a request.

    Raises
    ------
    HttpRefused, OSError, InvalidInput
        As `fetch` does.
    """
    read = {"langfuse": _langfuse, "langsmith": _langsmith, "mlflow": _mlflow}[platform.name]
    while True:
        page = read(platform, since_s, place, fetch)
        yield page._replace(scores=[one for one in page.scores if one.at_s is None or one.at_s >= since_s])
        if page.next_place is None:
            return
        check_goes_on(platform, place, page.next_place)
        place = page.next_place


def answer_of(platform: Platform, answer: object, kind: type[_Answer]) -> _Answer:
    """Return the answer of an interface; raise `InvalidInput` for one of another kind, such as a gateway's."""
    if isinstance(answer, kind):
        return answer
    wanted, got = ("an object" if kind is dict else "a list"), json.dumps(answer)
    raise InvalidInput(
        f"{platform.name} must answer with {wanted}, got {got:.100}: check the address {platform.url}", value=answer
    )


def check_goes_on(platform: Platform, place: object, following: object) -> None:
    """Raise `InvalidInput` where a page is followed by itself, so that a reading would never end."""
    if following == place:
        raise InvalidInput(f"{platform.name} must go on after each page, got its place {place!r:.100} again: try later")


def _langfuse(platform: Platform, since_s: float, place: str | None, fetch: Fetch) -> ScorePage:
    base, query = platform.url.rstrip("/") + "/api/public", {"limit": PAGE, "fromTimestamp": iso_time(since_s)}
    if place is None or place.startswith("v3 "):
        cursor = None if place is None else place.removeprefix("v3 ")
        try:
            answer = fetch(
                f"{base}/v3/scores", query={**query, "fields": "subject", "cursor": cursor}, headers=platform.headers
            )
        except HttpRefused as error:
            if error.status != 404 or place is not None:
                raise
        else:
            answer = answer_of(platform, answer, dict)
            following = mapping_of(answer.get("meta")).get("cursor")
            return ScorePage(_scores(answer.get("data"), _langfuse_score), f"v3 {following}" if following else None)
    number = 1 if place is None else int(place.removeprefix("v2 "))
    paged = {**query, "page": number}
    answer = answer_of(platform, fetch(f"{base}/v2/scores", query=paged, headers=platform.headers), dict)
    last = mapping_of(answer.get("meta")).get("totalPages") or 0
    return ScorePage(_scores(answer.get("data"), _langfuse_score), f"v2 {number + 1}" if number < last else None)


def _langfuse_score(record: Recorded) -> PulledScore:
    subject, name = mapping_of(record.get("subject")), text_of(record.get("name"))
    observation = text_of(subject.get("id")) or text_of(record.get("observationId"))
    others = (subject.get("traceId"), record.get("traceId"), record.get("sessionId"))
    return PulledScore(
        text_of(record.get("id")),
        texts([observation, _response_of(observation), *others]),
        name,
        score_value(record),
        time_of(first_filled(record, "updatedAt", "timestamp", "createdAt")),
        _source("judge", name) if str(record.get("source")).upper() == "EVAL" else "human",
    )


def _langsmith(platform: Platform, since_s: float, place: str | None, fetch: Fetch) -> ScorePage:
    offset = int(place or 0)
    query = {
        "limit": PAGE,
        "offset": offset,
        "min_created_at": iso_time(since_s),
        "session": platform.project or None,
    }
    records = fetch(f"{platform.url.rstrip('/')}/api/v1/feedback", query=query, headers=platform.headers)
    found = answer_of(platform, records, list)
    return ScorePage(_scores(found, _langsmith_score), str(offset + len(found)) if len(found) >= PAGE else None)


def _langsmith_score(record: Recorded) -> PulledScore:
    key, kind = text_of(record.get("key")), mapping_of(record.get("feedback_source")).get("type")
    return PulledScore(
        text_of(record.get("id")),
        texts([record.get("run_id"), record.get("trace_id")]),
        key,
        first_filled(record, "score", "value"),
        time_of(first_filled(record, "modified_at", "created_at")),
        _source("judge", key) if kind in {"model", "auto_eval"} else "human",
    )


def _mlflow(platform: Platform, since_s: float, place: str | None, fetch: Fetch) -> ScorePage:
    location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": platform.project}}
    body = {
        "locations": [location],
        "filter": f"timestamp_ms >= {int((since_s - LOOKBACK_S) * 1000)}",
        "max_results": PAGE,
        "order_by": ["timestamp_ms ASC"],
        **({} if place is None else {"page_token": place}),
    }
    traced = fetch(f"{platform.url.rstrip('/')}/api/3.0/mlflow/traces/search", body=body, headers=platform.headers)
    answer = answer_of(platform, traced, dict)
    traces = [mapping_of(one) for one in answer.get("traces") or ()]
    scores = [score for trace in traces for score in _mlflow_scores(trace)]
    return ScorePage(scores, answer.get("next_page_token") or None)


def _mlflow_scores(trace: Recorded) -> Iterator[PulledScore]:
    metadata = {**mapping_of(trace.get("tags")), **mapping_of(trace.get("trace_metadata"))}
    named = _ANSWER_ID.match(text_of(metadata.get("mlflow.traceOutputs")))
    answer = named[1] if named else ""
    ids = [trace.get("client_request_id"), answer, trace.get("trace_id"), metadata.get("mlflow.trace.session")]
    for one in map(mapping_of, trace.get("assessments") or ()):
        name, value = text_of(one.get("assessment_name")), mapping_of(one.get("feedback")).get("value")
        if not one.get("valid", True) or value is None or isinstance(value, list | dict):
            continue
        kind = str(mapping_of(one.get("source")).get("source_type")).upper()
        yield PulledScore(
            text_of(one.get("assessment_id")),
            texts([one.get("span_id"), *ids]),
            name,
            value,
            time_of(first_filled(one, "last_update_time", "create_time")),
            {"LLM_JUDGE": _source("judge", name), "CODE": _source("rule", name)}.get(kind, "human"),
        )


_ANSWER_ID = re.compile(r'\{"id": "([^"]+)"')
"""The id of the response in the outputs of a trace, which MLflow cuts after their first 250 characters."""


def _scores(records: object, read: Callable[[Recorded], PulledScore]) -> list[PulledScore]:
    found = [read(one) for one in records if isinstance(one, Mapping)] if isinstance(records, list) else []
    return [one for one in found if one.targets and one.value is not None]


def _source(kind: str, name: str) -> str:
    """Return a source with the characters that one may have.

    Examples
    --------
    >>> _source("judge", "Is it helpful?")
    'judge:Is_it_helpful_'
    """
    return f"{kind}:{re.sub(r'[^A-Za-z0-9_.+@/-]', '_', name)[:100] or 'unnamed'}"


def _response_of(observation: str) -> str:
    """Return the id of the response in the id that LiteLLM gives an observation: `time-12-30-00-123_chatcmpl-1`."""
    return observation.partition("_")[2] if observation.startswith("time-") else ""


def iso_time(at_s: float) -> str:
    """Return a time as the interfaces take it."""
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


def _needed(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise InvalidInput(f"the environment variable {name} must be set")
    return environment[name]


def _mlflow_headers(environment: Mapping[str, str]) -> dict[str, str]:
    if token := environment.get("MLFLOW_TRACKING_TOKEN"):
        return {"authorization": f"Bearer {token}"}
    user, password = environment.get("MLFLOW_TRACKING_USERNAME"), environment.get("MLFLOW_TRACKING_PASSWORD")
    if not user or not password:
        return {}
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
