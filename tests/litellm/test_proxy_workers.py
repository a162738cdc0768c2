"""A real proxy with two workers on one Redis: one hard budget, and every score counts once in either worker."""

import asyncio
import json
import time
from collections import defaultdict
from typing import NamedTuple

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from support.groups import fitted
from support.proxies import config_of, running_proxy, write
from support.redis_servers import MISSING, redis_server, wait_until
from support.redis_servers import serving as serving_redis
from support.stub import Stub, serving
from wiserouter import WiseRouter
from wiserouter.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.skipif(redis_server() is None, reason=MISSING)]

REQUESTS, CONNECTIONS = 500, 20
CHARGED, REFUSED = "wiserouter_charged_usd_total", "wiserouter_refusals_total"
BUDGET_USD = 0.35  # of the 0.85 that the best model would cost
READY_S = 300.0  # of a loaded machine
TWO_WORKERS = ("--num_workers", "2", "--timeout_worker_healthcheck", "120")


class Place(NamedTuple):
    base: str
    key: str
    stub: Stub
    store: str
    artifact: str
    asked: object


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    fitted().save(folder / "pair.wise")
    wise = {"budget_usd": BUDGET_USD, "requests": REQUESTS, "limit": "hard", "cap_output_tokens": 60}
    stub, asked = Stub(), folder / "asked"
    with serving(stub) as url, serving_redis() as redis:
        groups = {
            "wise": {**wise, "artifact": "./pair.wise", "store": redis.url},
            "alone": {**wise, "store": "memory://"},
        }
        path = write(config_of(groups, url=url), folder)
        log = folder / "proxy.log"
        (folder / "metrics").mkdir()
        terms = {"boot_s": READY_S, "ASKED_FILE": str(asked), "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics")}
        with running_proxy(path, log, *TWO_WORKERS, **terms) as (base, key, _):
            place = Place(base, key, stub, f"{redis.url}?name=wise", str(folder / "pair.wise"), asked)
            deadline = time.monotonic() + READY_S
            while len(workers_asked(place)) < 2:  # the second one may come up later
                assert time.monotonic() < deadline, log.read_text()[-4_000:]
                status(place)
            yield place


def workers_asked(place, path=""):
    """Return which requests each worker was asked, by process id."""
    asked = defaultdict(set)
    lines = place.asked.read_text().splitlines() if place.asked.exists() else ()
    for line in lines:
        pid, found, test_id = line.split(" ")
        if found.endswith(path):
            asked[pid].add(test_id)
    return asked


def status(place):
    """Return what a worker says, over a connection of its own."""
    return httpx.get(
        f"{place.base}/wiserouter/status", headers={"Authorization": f"Bearer {place.key}"}, timeout=30
    ).json()["groups"]


def metrics(place):
    """Return the samples that a worker shows, by name and labels."""
    headers = {"Authorization": f"Bearer {place.key}"}
    text = httpx.get(f"{place.base}/wiserouter/metrics", headers=headers, timeout=30).text
    families = text_string_to_metric_families(text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def savings(place):
    """Return the savings of the shared budget, as a worker says."""
    headers = {"Authorization": f"Bearer {place.key}"}
    return httpx.get(f"{place.base}/wiserouter/savings", headers=headers, timeout=30).json()["groups"]["wise"]


def report(place):
    """Return the savings that the store tells of by itself, without what workers have not sent yet."""
    found = CliRunner().invoke(app, ["report", place.store, "--json"])
    return json.loads(found.stdout)["groups"].popitem()[1]


async def ask_and_rate(client, n):
    """Return the score that counts in the end; None where the budget refused the call."""
    headers = {"Authorization": f"Bearer sk-user-{n % 7}", "x-test-id": str(n)}
    body = {"model": "wise", "messages": [{"role": "user", "content": f"question {n}"}]}
    answer = await client.post("/v1/chat/completions", json=body, headers=headers)
    if answer.status_code == 429:
        return None
    assert answer.status_code == 200, answer.text
    name = ("x-litellm-call-id", "x-wiserouter-decision")[n % 2]
    scores = [(n % 10) / 10] + [0.5] * (n % 5 == 0)
    for i, score in enumerate(scores):
        rated = await client.post(
            "/wiserouter/feedback", json={"id": answer.headers[name], "score": score}, headers=headers
        )
        assert (rated.status_code, rated.json()) == (200, {"status": "recorded", "replaced": i > 0})
    return scores[-1]


async def all_of_them(place):
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=0)  # a worker takes all that wait
    async with httpx.AsyncClient(base_url=place.base, timeout=60, limits=limits) as client:
        numbers = iter(range(REQUESTS))

        async def one_after_the_other():
            return [await ask_and_rate(client, n) for n in numbers]

        rows = await asyncio.gather(*[one_after_the_other() for _ in range(CONNECTIONS)])
    return [score for row in rows for score in row if score is not None]


def has_settled(whole, known, scores):
    """Return True once all calls and scores have arrived, and the last of them that replaces another has."""
    whole._store.refresh()
    whole._learner.merge_remote()
    labels = whole.estimates.labels.sum() - known.labels.sum()
    reward = whole.estimates.reward.sum() - known.reward.sum()
    arrived = labels >= len(scores) and reward == pytest.approx(sum(scores))
    return (whole.status().in_flight, whole.status().charged) == (0, len(scores)) and arrived


def test_two_workers_keep_one_hard_budget_and_count_every_score_once(place):
    before_usd = place.stub.billed_usd
    scores = asyncio.run(all_of_them(place))
    assert 0.5 * REQUESTS < len(scores) <= REQUESTS

    known = fitted().estimates
    whole = WiseRouter.load(place.artifact, store=place.store)  # a third worker sees what all of them did
    wait_until(lambda: has_settled(whole, known, scores), "the workers do not come to rest", 30.0)
    seen = whole.status()
    whole.close()

    assert (seen.in_flight, seen.charged, seen.reserved_usd) == (0, len(scores), pytest.approx(0.0, abs=1e-12))
    assert seen.spent_usd == pytest.approx(place.stub.billed_usd - before_usd, abs=1e-9)
    assert seen.spent_usd <= BUDGET_USD
    assert seen.spent_usd > 0.9 * BUDGET_USD
    assert whole.estimates.labels.sum() - known.labels.sum() == len(scores)
    assert whole.estimates.reward.sum() - known.reward.sum() == pytest.approx(sum(scores))

    scraped = [metrics(place) for _ in range(4)]  # whichever worker answers
    for found in scraped:
        charged = [usd for (name, group, *_), usd in found.items() if (name, group) == (CHARGED, "wise")]
        assert sum(charged) == pytest.approx(seen.spent_usd, abs=1e-9)
        assert found["wiserouter_budget_spent_usd", "wise", "default", "never"] == pytest.approx(
            seen.spent_usd, abs=1e-9
        )
        assert found["wiserouter_calls_total", "wise", "charged"] == len(scores)
        refused = sum(n for (name, group, *_), n in found.items() if (name, group) == (REFUSED, "wise"))
        assert refused >= REQUESTS - len(scores)
        assert found["wiserouter_store_up", "wise"] == 1

    def has_sent_sums():  # a worker sends them about once a second, later than its charges
        actual = report(place)["actual"]
        return (actual["calls"], actual["scores"]) == (len(scores), len(scores))

    wait_until(has_sent_sums, "the workers do not send the sums of their days", 30.0)
    saved = [*[savings(place) for _ in range(4)], report(place)]
    for found in saved:
        assert found["actual"]["cost_usd"] == pytest.approx(seen.spent_usd, abs=1e-9)
        assert found["actual"]["calls"] == found["coverage"]["compared_calls"] == len(scores)
        assert found["actual"]["scores"] == len(scores)
        assert found["actual"]["mean_score"] == pytest.approx(sum(scores) / len(scores))
        for name, other in found[
            "against"
        ].items():  # each worker prices with what it has learned of lengths and scores
            assert other["saved_usd"] == pytest.approx(other["cost_usd"] - seen.spent_usd, abs=1e-9), name
            assert found is saved[-1] or other["cost_usd"] == pytest.approx(saved[0]["against"][name]["cost_usd"])

    answered, rated = workers_asked(place, "/chat/completions"), workers_asked(place, "/feedback")
    assert len(answered) == len(rated) == 2
    crossed = [n for pid, numbers in rated.items() for n in numbers if n not in answered[pid]]
    shares = [len(each) for each in answered.values()]
    print(f"\n{shares} of {REQUESTS} asked, {len(scores)} answered, {len(crossed)} rated at the other worker")
    print(f"{seen.spent_usd:.6f} of {BUDGET_USD} USD spent")
    assert crossed


def test_a_budget_in_memory_is_split_between_the_workers(place):
    alone = status(place)["alone"]
    assert (alone["amount_usd"], alone["horizon"]) == (pytest.approx(BUDGET_USD / 2), REQUESTS // 2)
    assert status(place)["wise"]["store"]["reachable"]
