"""A real proxy with two workers on one Redis: what an administrator changes through one, the other one follows."""

import secrets
import time
from typing import NamedTuple

import httpx
import pytest

from support.groups import fitted
from support.proxies import config_of, running_proxy, write
from support.redis_servers import MISSING, redis_server, wait_until
from support.redis_servers import serving as serving_redis
from support.stub import Stub, serving
from wiserouter.routing.journal_reader import JournalReader

pytestmark = [pytest.mark.slow, pytest.mark.skipif(redis_server() is None, reason=MISSING)]

READY_S = 300.0  # of a loaded machine
FOLLOWS_S = 1.0
TWO_WORKERS = ("--num_workers", "2", "--timeout_worker_healthcheck", "120")
POOR_USD = 1e-6  # less than a call costs


class Place(NamedTuple):
    base: str
    key: str
    asked: object
    journal: object


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changes")
    fitted().save(folder / "pair.wise")
    wise = {"budget_usd": POOR_USD, "requests": 10_000, "limit": "hard", "cap_output_tokens": 60}
    with serving(Stub()) as url, serving_redis() as redis:
        groups = {
            "wise": {**wise, "artifact": "./pair.wise", "store": redis.url, "journal": "./wise.jsonl"},
            "alone": {**wise, "artifact": "./pair.wise", "store": "memory://"},
        }
        path = write(config_of(groups, url=url), folder)
        terms = {"boot_s": READY_S, "ASKED_FILE": str(folder / "asked")}
        with running_proxy(path, folder / "proxy.log", *TWO_WORKERS, **terms) as (base, key, _):
            place = Place(base, key, folder / "asked", folder / "wise.jsonl")
            deadline = time.monotonic() + READY_S
            while len({worker_of(place, ask(place)[1]) for _ in range(4)}) < 2:  # the second may come up later
                assert time.monotonic() < deadline, (folder / "proxy.log").read_text()[-4_000:]
            yield place


def worker_of(place, test_id):
    """Return the process id of the worker that was asked."""
    rows = [line.split(" ") for line in place.asked.read_text().splitlines()]
    return next(pid for pid, _, found in rows if found == test_id)


def post(place, path, body, key=None):
    """Return the answer of a worker over a connection of its own, and the id of the request."""
    test_id = secrets.token_hex(8)
    headers = {"Authorization": f"Bearer {key or place.key}", "x-test-id": test_id}
    return httpx.post(f"{place.base}{path}", json=body, headers=headers, timeout=30), test_id


def ask(place):
    return post(
        place, "/v1/chat/completions", {"model": "wise", "messages": [{"role": "user", "content": "hi"}]}, "sk-user-a"
    )


def order(place, route="budget", **body):
    answer, test_id = post(place, f"/wiserouter/{route}", {"group": "wise", **body})
    assert answer.status_code == 200, answer.text
    return answer.json(), worker_of(place, test_id)


def changes(place):
    """Return the changes that the journal tells of so far; it is written in the background."""
    return [line for line in JournalReader(place.journal) if line["event"] == "change"]


def followed(place, orderer, condition):
    """Return when the last request was sent that the other worker did not answer as it should, in seconds."""
    begun, last_s, others = time.monotonic(), 0.0, 0
    while others < 6 or time.monotonic() - begun < 1.5 * FOLLOWS_S:
        at_s = time.monotonic() - begun
        answer, test_id = ask(place)
        if worker_of(place, test_id) != orderer:
            others += 1
            last_s = last_s if condition(answer) else at_s
        assert time.monotonic() - begun < 60.0
    return last_s


def test_a_budget_that_is_raised_through_one_worker_is_raised_in_the_other(place):
    assert ask(place)[0].status_code == 429
    changed, orderer = order(place, amount_usd=5.0)
    assert changed["after"]["amount_usd"] == 5.0
    took_s = followed(place, orderer, lambda answer: answer.status_code == 200)
    print(f"the other worker followed a raised budget within {took_s:.2f} s")
    assert took_s <= FOLLOWS_S


def test_a_pause_is_a_429_with_the_reason_in_both_workers_and_stands_in_the_journal(place):
    _, orderer = order(place, paused=True, reason="incident 12", pause_s=600.0)
    took_s = followed(place, orderer, lambda answer: answer.status_code == 429 and "incident 12" in answer.text)
    print(f"the other worker followed a pause within {took_s:.2f} s")
    assert took_s <= FOLLOWS_S
    assert 0 < int(ask(place)[0].headers["retry-after"]) <= 600
    _, orderer = order(place, paused=False)
    assert followed(place, orderer, lambda answer: answer.status_code == 200) <= FOLLOWS_S
    wait_until(lambda: len(changes(place)) >= 3, "the journal lacks a change", 30.0)
    lines = changes(place)
    assert [line["after"]["paused"] for line in lines] == [False, True, False]
    assert {line["by"].partition(":")[0] for line in lines} == {"key"}
    assert place.key not in place.journal.read_text()


def test_a_retired_model_serves_no_more_in_either_worker(place):
    _, orderer = order(place, "model", model="large", retired=True)
    served = "x-wiserouter-model"
    took_s = followed(place, orderer, lambda answer: answer.headers.get(served) == "small")
    print(f"the other worker followed a retired model within {took_s:.2f} s")
    assert took_s <= FOLLOWS_S
    order(place, "model", model="large", retired=None)


def test_one_key_changes_once_through_both_workers(place):
    key, answers = secrets.token_hex(8), []
    for _ in range(6):
        headers = {"Authorization": f"Bearer {place.key}", "Idempotency-Key": key}
        body = {"group": "wise", "add_usd": 1.0}
        answers.append(httpx.post(f"{place.base}/wiserouter/budget", json=body, headers=headers, timeout=30).json())
    assert [one["replayed"] for one in answers] == [False] + [True] * 5
    assert len({one["after"]["amount_usd"] for one in answers}) == 1


def test_what_other_workers_would_not_follow_is_refused_and_others_may_change_nothing(place):
    answer, _ = post(place, "/wiserouter/budget", {"group": "alone", "amount_usd": 9.0})
    assert answer.status_code == 409
    bodies = {"budget": {"paused": True}, "model": {"model": "large", "retired": True}, "mode": {"mode": "shadow"}}
    for route, body in bodies.items():
        for user in ("sk-user-a", "sk-team-a-ann"):
            answer, _ = post(place, f"/wiserouter/{route}", {"group": "wise", **body}, user)
            assert answer.status_code in {401, 403}, (route, answer.text)
    assert ask(place)[0].status_code == 200
