"""Feedback in large numbers: few at a time, some waiting in order of arrival, the rest refused; and its errors."""

import asyncio
import threading
import time

import httpx
import pytest
from fastapi import FastAPI
from litellm.proxy._types import UserAPIKeyAuth
from litellm.proxy.auth.user_api_key_auth import user_api_key_auth

from wiserouter.errors import AlreadySettled, NotStarted, StoreUnavailable
from wiserouter_litellm.errors import UnknownCall
from wiserouter_litellm.operating.proxy_routes import mount
from wiserouter_litellm.operating.route_guard import AT_A_TIME, MOST_WAITING
from wiserouter_litellm.settlement.recorder import Recorder


class SlowRecorder(Recorder):
    """A recorder whose feedback waits until it is let go; `error` is raised then."""

    def __init__(self):
        super().__init__({})
        self.let_go = threading.Event()
        self.error = None
        self.asked = []
        self.active = self.most_active = 0
        self._lock = threading.Lock()

    def feedback(self, call, score, **terms):
        with self._lock:
            self.asked.append(call)
            self.active += 1
            self.most_active = max(self.most_active, self.active)
        assert self.let_go.wait(10)
        with self._lock:
            self.active -= 1
        if self.error is not None:
            raise self.error
        return False


@pytest.fixture
def recorder():
    return SlowRecorder()


@pytest.fixture
async def client(recorder):
    app = FastAPI()
    app.dependency_overrides[user_api_key_auth] = lambda: UserAPIKeyAuth(api_key="a-key")
    mount(app, recorder)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://proxy.test") as running:
        yield running


def rate(client, id_="x"):
    return client.post("/wiserouter/feedback", json={"id": id_, "score": 1.0})


async def until(condition):
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        await asyncio.sleep(0.01)


async def test_few_are_recorded_at_a_time_and_what_cannot_wait_is_refused(client, recorder):
    n = AT_A_TIME + MOST_WAITING + 10
    sent = [asyncio.create_task(rate(client, str(i))) for i in range(n)]
    await until(lambda: sum(task.done() for task in sent) == 10 and recorder.active == AT_A_TIME)
    refused = [task.result() for task in sent if task.done()]
    assert {(one.status_code, one.headers["retry-after"]) for one in refused} == {(429, "2")}
    recorder.let_go.set()
    statuses = [response.status_code for response in await asyncio.gather(*sent)]
    assert (statuses.count(200), statuses.count(429)) == (n - 10, 10)
    assert recorder.most_active == AT_A_TIME
    assert sorted(recorder.asked, key=int) == [str(i) for i in range(n - 10)]  # the first came first


async def test_who_goes_away_while_waiting_leaves_the_place_to_others(client, recorder):
    sent = [asyncio.create_task(rate(client, str(i))) for i in range(AT_A_TIME + MOST_WAITING)]
    await until(lambda: recorder.active == AT_A_TIME)
    await asyncio.sleep(0.05)
    for task in sent[AT_A_TIME:]:
        task.cancel()
    await asyncio.gather(*sent[AT_A_TIME:], return_exceptions=True)
    later = [asyncio.create_task(rate(client, "later")) for _ in range(MOST_WAITING)]
    recorder.let_go.set()
    assert {response.status_code for response in await asyncio.gather(*sent[:AT_A_TIME], *later)} == {200}


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (UnknownCall("x"), 404, "call 'x' is unknown or has expired"),
        (AlreadySettled("d", "released"), 409, "the call failed and was released, so there is no answer to rate"),
        (
            StoreUnavailable("redis at 10.0.0.1 refuses", store="redis"),
            503,
            "the store of budgets and decisions cannot",
        ),
        (NotStarted("team:a"), 404, "scope 'team:a' has no budget"),
    ],
)
async def test_an_error_is_told_in_words_for_a_client(client, recorder, error, status, text):
    recorder.error = error
    recorder.let_go.set()
    response = await rate(client)
    assert response.status_code == status
    assert text in response.json()["detail"]
    assert "10.0.0.1" not in response.text
    assert ("retry-after" in response.headers) == (status == 503)


async def test_a_place_is_free_again_after_an_error(client, recorder):
    recorder.error = RuntimeError("a fault")
    recorder.let_go.set()
    for _ in range(AT_A_TIME + 1):
        with pytest.raises(RuntimeError, match="a fault"):
            await rate(client)
    recorder.error = None
    assert (await rate(client)).status_code == 200


@pytest.mark.parametrize(("module", "caught"), [("prisma", True), ("prisma.engine", True), ("numpy", False)])
async def test_a_refused_key_is_no_fault_where_the_proxy_has_no_database(client, recorder, module, caught):
    recorder.error = ModuleNotFoundError("no module", name=module)
    recorder.let_go.set()
    if caught:
        assert (await rate(client)).status_code == 401
    else:
        with pytest.raises(ModuleNotFoundError):
            await rate(client)


async def test_no_cache_keeps_what_a_key_was_answered(client, recorder):
    recorder.let_go.set()
    rated, page = await rate(client), await client.get("/wiserouter/")
    assert (rated.status_code, rated.headers["cache-control"]) == (200, "no-store")
    assert (page.status_code, page.headers["cache-control"]) == (200, "no-cache")  # the page's files hold no figure
