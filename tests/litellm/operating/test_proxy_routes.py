"""Our routes of a real proxy process under requests of every shape and number: refused or answered, never a fault."""

import asyncio
import json
import statistics
import time

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from support.groups import fitted
from support.proxies import config_of, running_proxy, write
from support.stub import Stub, serving
from wiserouter_litellm.operating.route_guard import MAX_BODY_BYTES, MOST_WAITING

pytestmark = pytest.mark.slow

ROUTES = {
    "/wiserouter/feedback": "POST",
    "/wiserouter/end": "POST",
    "/wiserouter/budget": "POST",
    "/wiserouter/model": "POST",
    "/wiserouter/mode": "POST",
    "/wiserouter/status": "GET",
    "/wiserouter/metrics": "GET",
    "/wiserouter/plan": "GET",
    "/wiserouter/history": "GET",
    "/wiserouter/kinds": "GET",
    "/wiserouter/shadow": "GET",
    "/wiserouter/spend": "GET",
    "/wiserouter/decisions": "GET",
    "/wiserouter/savings": "GET",
    "/wiserouter/explain/{call}": "GET",
}
WITHOUT_TERMS = {"/wiserouter/status", "/wiserouter/metrics"}
ORDERS = {"/wiserouter/budget", "/wiserouter/model", "/wiserouter/mode"}
ADMIN_ROUTES = [path for path, method in ROUTES.items() if method == "GET" or path in ORDERS]
KEYS = ["master", "sk-user-a", "sk-user-b", "sk-unknown"]
MOST_ANSWER_BYTES = 100_000


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("routes")
    fitted().save(folder / "pair.wise")
    wise = {"budget_usd": 10.0, "requests": 100_000, "artifact": "./pair.wise", "seed": 0}
    groups = {"wise": {**wise, "store": "sqlite:///./budget.db"}, "other": wise}
    with serving(Stub()) as url:
        path = write(config_of(groups, url=url), folder)
        with running_proxy(path, folder / "proxy.log") as (base, key, _):
            yield base, key, folder / "proxy.log"


@pytest.fixture(scope="module")
def schema(proxy):
    """Return the schema that the proxy itself publishes, of our routes."""
    published = httpx.get(f"{proxy[0]}/openapi.json", timeout=60).json()
    ours = {path: item for path, item in published["paths"].items() if path.startswith("/wiserouter/")}
    assert set(ours) == set(ROUTES)
    return schemathesis.openapi.from_dict({**published, "paths": ours})


@pytest.fixture(scope="module")
def answered(proxy):
    """Return the ids of a call that `sk-user-a` made."""
    response = httpx.post(
        f"{proxy[0]}/v1/chat/completions",
        json={"model": "wise", "messages": [{"role": "user", "content": "a private question"}]},
        headers=headers(proxy, "sk-user-a"),
        timeout=30,
    )
    return response.headers["x-litellm-call-id"], response.headers["x-wiserouter-decision"], response.json()["id"]


def headers(proxy, key):
    return {"Authorization": f"Bearer {proxy[1] if key == 'master' else key}"}


def permitted(path, key):
    """Return the statuses that a route may have for a key."""
    if key == "sk-unknown":
        return {401, 413, 415, 422}
    if path in ADMIN_ROUTES and key != "master":
        return {401, 403, 413, 415, 422} if path in ORDERS else {403, 422}
    if path == "/wiserouter/feedback" and key != "master":  # only administrators score as a judge or a rule
        return {200, 403, 404, 413, 415, 422}
    return {200, 404, 413, 415, 422} | ({409} if path in ORDERS else set())


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        (path, mode)
        for path in ROUTES
        for mode in GenerationMode
        if not (mode.is_negative and path in WITHOUT_TERMS)  # they have no parameter that could be wrong
    ],
)
def test_what_the_schema_permits_and_what_it_forbids_is_answered_or_refused(proxy, schema, answered, path, mode):
    operation = schema[path][ROUTES[path]]
    rates = mode.is_positive and path == "/wiserouter/feedback"
    known = st.sampled_from([None, *answered]) if rates else st.none()

    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(mode), key=st.sampled_from(KEYS), id_=known)
    def check(case, key, id_):
        if id_ is not None:
            case.body = {**case.body, "id": id_}
        response = case.call(base_url=proxy[0], headers=headers(proxy, key))
        assert response.status_code in permitted(path, key) | ({401} if case.headers else set()), response.text
        assert len(response.content) < MOST_ANSWER_BYTES
        if id_ is not None and key == "sk-user-b":
            assert response.status_code in {401, 403, 404}  # 403: as a judge or a rule, for administrators alone
        if key != "master":
            assert "private" not in response.text

    check()


BODIES = {
    "nothing": b"",
    "null": b"null",
    "text": b'"text"',
    "a list": b"[1, 2]",
    "a number": b"7",
    "NaN": b"NaN",
    "cut off": b'{"id": "x", ',
    "not UTF-8": b'{"id": "\xff\xfe", "score": 1}',
    "half a surrogate pair": b'{"id": "\\ud800", "score": 1}',
    "NUL": b'{"id": "\\u0000", "score": 1}',
    "NaN as the score": b'{"id": "x", "score": NaN}',
    "a huge score": b'{"id": "x", "score": 1e999}',
    "a long score": b'{"id": "x", "score": ' + b"1" * 5_000 + b"}",
    "keys of a chat": b'{"id": "x", "score": 1, "model": ["wise"], "metadata": "text", "tags": 1}',
    "a key twice": b'{"id": "x", "id": {"y": 1}, "score": 1}',
    "deep lists": b"[" * 30_000,
    "deep objects": b'{"id":' * 8_000 + b"1" + b"}" * 8_000,
    "deep comment": b'{"id": "x", "score": 1, "comment": ' + b"[" * 900 + b"]" * 900 + b"}",
    "too large": b'{"id": "x", "score": 1, "comment": "' + b"c" * MAX_BODY_BYTES + b'"}',
    "form": b"id=x&score=1",
}
CONTENT_TYPES = [
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "application/x-protobuf",
    "",
]


UNREAD = ("nothing", "a list", "not UTF-8", "NUL", "too large", "form")
"""Of bodies whose content type is refused before they are read: one for each way in which bytes differ."""


@pytest.fixture(scope="module")
def client():
    with httpx.Client(timeout=30) as client:  # one for all: to load the certificates takes longer than ten requests
        yield client


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
@pytest.mark.parametrize("path", ROUTES)
def test_no_body_is_a_fault(proxy, client, path, content_type):
    url = proxy[0] + path.replace("{call}", "x") + ("?group=wise" if path.endswith("plan") else "")
    for name in BODIES if content_type.startswith("application/json") else UNREAD:
        body = BODIES[name]
        for key in ("master", "sk-user-a"):
            head = {**headers(proxy, key), "content-type": content_type}
            status = client.request(ROUTES[path], url, content=body, headers=head).status_code
            assert status in permitted(path, key), (name, key, status)
            if ROUTES[path] == "POST":
                unknown = name == "NUL" and path.endswith("feedback")  # the others take no score
                expected = {404} if unknown else {413} if name == "too large" else {422}
                assert status in (expected if content_type.startswith("application/json") else {415}), name


@pytest.mark.parametrize("query", ["group=wise&budget_usd=1e308", "group=wise&requests=1" + "0" * 400, "group="])
@pytest.mark.parametrize("key", ["master", "sk-user-a"])
def test_numbers_of_any_size_are_a_plan_or_refused(proxy, query, key):
    response = httpx.get(f"{proxy[0]}/wiserouter/plan?{query}", headers=headers(proxy, key), timeout=30)
    assert response.status_code in permitted("/wiserouter/plan", key) - {200}


def test_a_body_without_an_end_is_refused_before_it_is_read(proxy):
    sent = 0

    def endless():
        nonlocal sent
        while sent < 2**28:
            sent += MAX_BODY_BYTES
            yield b" " * MAX_BODY_BYTES

    head = {**headers(proxy, "sk-user-a"), "content-type": "application/json"}
    try:
        response = httpx.post(f"{proxy[0]}/wiserouter/feedback", content=endless(), headers=head, timeout=30)
    except httpx.TransportError:  # the server closed the connection while the body was being sent
        response = None
    assert response is None or response.status_code == 413
    assert sent < 2**26


def test_a_flood_of_feedback_is_refused_and_the_chats_are_answered(proxy, answered):
    """The times are printed: without a bound on feedback a chat takes about seventeen times as long."""
    quiet, _ = asyncio.run(chats_beside_feedback(proxy, answered, flood=0))
    busy, statuses = asyncio.run(chats_beside_feedback(proxy, answered, flood=40))
    more, refused = asyncio.run(chats_beside_feedback(proxy, answered, flood=2 * MOST_WAITING))
    p50 = [statistics.median(one) for one in (quiet, busy, more)]
    print("p50 of a chat, quiet and beside feedback:", p50, statuses, refused)
    assert set(statuses) | set(refused) <= {200, 404, 429}
    assert statuses[200] + statuses[404] > 0
    assert refused[429] > 0


async def chats_beside_feedback(proxy, answered, *, flood, chats=4, seconds=3.0):
    """Return the durations of chats once all connections are open, and the number of answers to feedback by status."""
    statuses = dict.fromkeys((200, 404, 429), 0)
    took = []
    opened = time.monotonic() + 1.0
    end = opened + seconds
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=1.5)

    async def chat(client):
        body = {"model": "wise", "messages": [{"role": "user", "content": "hello"}]}
        while time.monotonic() < end or not took:  # on a slow machine the first ones may take all of the time
            start = time.monotonic()
            response = await client.post("/v1/chat/completions", json=body, headers=headers(proxy, "sk-user-a"))
            assert response.status_code == 200, response.text
            took.extend([time.monotonic() - start] if start > opened else [])

    async def rate(client, i):
        body = {"id": answered[0] if i % 2 else f"unknown-{i}", "score": 0.5}
        while time.monotonic() < end:
            response = await client.post("/wiserouter/feedback", json=body, headers=headers(proxy, "sk-user-a"))
            statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
            if response.status_code == 429:
                await asyncio.sleep(int(response.headers["retry-after"]))

    async with httpx.AsyncClient(base_url=proxy[0], timeout=60, limits=limits) as client:
        await asyncio.gather(*(chat(client) for _ in range(chats)), *(rate(client, i) for i in range(flood)))
    return took, statuses


def test_the_log_of_the_proxy_holds_no_traceback_of_ours(proxy):
    log = proxy[2].read_text()
    assert "wiserouter_litellm" not in "".join(
        part[:4_000] for part in log.split("Traceback (most recent call last)")[1:]
    )
    assert json.dumps("a private question") not in log
