"""A real proxy with two workers on one Redis, as its operator sees it: every view shows the dollars of the provider."""

import asyncio
import json
import secrets
import time
from typing import NamedTuple

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from support.browser import CHROMIUM, opened_page
from support.groups import fitted
from support.operator_browser import put, show, wait_for
from support.providers import cost_usd
from support.proxies import config_of, running_proxy, write
from support.redis_servers import MISSING, redis_server
from support.redis_servers import serving as serving_redis
from support.stub import Stub, serving
from wiserouter.cli import app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(redis_server() is None, reason=MISSING),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
]

REQUESTS, CONNECTIONS = 2_000, 20
TEAMS = {"team-a": 0.9, "team-b": 0.6, "team-c": 0.3}
"""Budget of each in USD."""
BUDGET_USD = 1.6  # of the 3.4 that the best model would cost
POOR_USD = 1e-6  # less than a call costs
READY_S = 300.0  # of a loaded machine
FOLLOWS_S = 1.0
TWO_WORKERS = ("--num_workers", "2", "--timeout_worker_healthcheck", "120")


class Place(NamedTuple):
    base: str
    key: str
    stub: Stub
    store: str
    asked: object

    def get(self, path):
        """Return what a worker answers, over a connection of its own."""
        return httpx.get(f"{self.base}{path}", headers={"Authorization": f"Bearer {self.key}"}, timeout=30)

    def ask(self, group, user="sk-user-a"):
        """Return the answer to a question, and the worker that gave it."""
        test_id = secrets.token_hex(8)
        body = {"model": group, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"Authorization": f"Bearer {user}", "x-test-id": test_id}
        answer = httpx.post(f"{self.base}/v1/chat/completions", json=body, headers=headers, timeout=30)
        rows = [line.split(" ") for line in self.asked.read_text().splitlines()]
        return answer, next(pid for pid, _, found in rows if found == test_id)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("operated")
    fitted().save(folder / "pair.wise")
    stub = Stub()
    budgets = {team: {"budget_usd": usd, "requests": 700} for team, usd in TEAMS.items()}
    terms = {"cap_output_tokens": 60, "artifact": "./pair.wise"}
    with serving(stub) as url, serving_redis() as redis:
        wise = {"budget_usd": BUDGET_USD, "requests": REQUESTS, "scopes": {"by": "team", "budgets": budgets}}
        poor = {"budget_usd": POOR_USD, "requests": 1_000, "limit": "hard"}
        groups = {
            "wise": {**wise, **terms, "store": f"{redis.url}?name=wise"},
            "poor": {**poor, **terms, "store": f"{redis.url}?name=poor"},
        }
        path = write(config_of(groups, url=url), folder)
        (folder / "metrics").mkdir()
        env = {"ASKED_FILE": str(folder / "asked"), "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics")}
        with running_proxy(path, folder / "proxy.log", *TWO_WORKERS, boot_s=READY_S, **env) as (base, key, _):
            place = Place(base, key, stub, f"{redis.url}?name=wise", folder / "asked")
            deadline = time.monotonic() + READY_S
            while len({place.ask("poor")[1] for _ in range(4)}) < 2:  # the second worker may come up later
                assert time.monotonic() < deadline, (folder / "proxy.log").read_text()[-4_000:]
            yield place


@pytest.fixture
def tab(tmp_path):
    with opened_page(tmp_path) as tab:
        yield tab


async def served(place):
    """Send all requests, and return what each team was answered, in dollars of the provider."""
    spent_usd = dict.fromkeys(TEAMS, 0.0)
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=0)  # a worker takes all that wait
    async with httpx.AsyncClient(base_url=place.base, timeout=60, limits=limits) as client:
        numbers = iter(range(REQUESTS))

        async def one_after_the_other():
            for n in numbers:
                team = list(TEAMS)[n % len(TEAMS)]
                body = {"model": "wise", "messages": [{"role": "user", "content": f"question {n}"}]}
                headers = {"Authorization": f"Bearer sk-{team}-ann"}
                answer = await client.post("/v1/chat/completions", json=body, headers=headers)
                if answer.status_code != 429:
                    assert answer.status_code == 200, answer.text
                    spent_usd[team] += cost_usd(answer.headers["x-wiserouter-model"])

        await asyncio.gather(*[one_after_the_other() for _ in range(CONNECTIONS)])
    return spent_usd


def spends(place):
    """Return the dollars of the group and of each team, by the view that shows them."""
    status = place.get("/wiserouter/status").json()["groups"]["wise"]
    of_status = [status["spent_usd"], *(status["scopes"][f"team:{team}"]["windows"][0]["spent_usd"] for team in TEAMS)]
    families = text_string_to_metric_families(place.get("/wiserouter/metrics").text)
    samples = {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
    gauges = ["default", *(f"team:{team}" for team in TEAMS)]
    of_metrics = [samples["wiserouter_budget_spent_usd", "wise", scope, "never"] for scope in gauges]
    queries = ["", *(f"&scope=team:{team}" for team in TEAMS)]
    reports = [place.get(f"/wiserouter/savings?group=wise{query}").json()["groups"]["wise"] for query in queries]
    of_savings = [report["actual"]["cost_usd"] for report in reports]
    options = [[], *(["--scope", f"team:{team}"] for team in TEAMS)]
    printed = [CliRunner().invoke(app, ["report", place.store, "--json", *more]).stdout for more in options]
    of_command = [json.loads(text)["groups"].popitem()[1]["actual"]["cost_usd"] for text in printed]
    return {"status": of_status, "metrics": of_metrics, "savings": of_savings, "command": of_command}


def shown(usd):
    """Return an amount of at least a dollar, or of three significant digits, as the page shows it."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.3g}"


def test_every_view_shows_the_dollars_of_the_provider(place, tab):
    before_usd = place.stub.billed_usd
    by_team = asyncio.run(served(place))
    ledger = [place.stub.billed_usd - before_usd, *by_team.values()]
    assert ledger[0] == pytest.approx(sum(by_team.values()), abs=1e-9)
    assert ledger[0] > 0.5 * BUDGET_USD

    deadline = time.monotonic() + 30
    while spends(place)["command"][0] < ledger[0] - 1e-9 and time.monotonic() < deadline:
        time.sleep(0.5)  # the sums of days are sent about once a second
    for _ in range(4):  # whichever worker answers
        for view, found in spends(place).items():
            assert found == pytest.approx(ledger, abs=1e-9), view

    show(tab, place.base, place.key)
    wait_for(tab, "document.querySelector('#choices select')")
    put(tab, "#choices select", "wise", "change")
    wait_for(tab, "document.querySelectorAll('#teams tbody tr').length == 3")
    wait_for(tab, "document.querySelector('#spend .big')")
    assert tab.run("document.querySelector('#spend .big').innerText").startswith(shown(ledger[0]))
    rows = tab.run("[...document.querySelectorAll('#teams tbody tr')].map(row => row.innerText)")
    for team, usd in by_team.items():
        assert any(f"team:{team}" in row and shown(usd) in row for row in rows), (team, usd, rows)
    answers = [one for one in tab.met("Network.responseReceived") if "/wiserouter/status" in one["response"]["url"]]
    body = tab.send("Network.getResponseBody", requestId=answers[-1]["requestId"])["body"]
    assert json.loads(body)["groups"]["wise"]["spent_usd"] == pytest.approx(ledger[0], abs=1e-9)


def test_the_other_worker_follows_a_budget_that_is_raised_on_the_page(place, tab):
    assert place.ask("poor")[0].status_code == 429
    show(tab, place.base, place.key)
    wait_for(tab, "document.querySelectorAll('#choices select').length")
    put(tab, "#choices select", "poor", "change")
    wait_for(tab, "document.querySelector('#budget .big')?.innerText.includes('$0.0000010')")
    for name in ("Raise the budget", "Raise it"):
        scope = "(document.querySelector('dialog') ?? document)"
        buttons = f"[...{scope}.querySelectorAll('button')]"
        wait_for(tab, f"{buttons}.some(one => one.textContent.trim().startsWith({json.dumps(name)}))")
        tab.run(f"{buttons}.find(one => one.textContent.trim().startsWith({json.dumps(name)})).click()")
        if name == "Raise the budget":
            put(tab, "#field-by-in-usd", "5")
    wait_for(tab, "document.querySelector('#budget .big').innerText.endsWith('of $5.00')")
    begun, workers = time.monotonic(), set()
    while len(workers) < 2:
        answer, worker = place.ask("poor")
        took_s = time.monotonic() - begun
        assert took_s < 60.0
        if answer.status_code == 200:
            workers.add(worker)
        else:
            assert took_s <= FOLLOWS_S, answer.text
    assert place.get("/wiserouter/status").json()["groups"]["poor"]["amount_usd"] == pytest.approx(5.0 + POOR_USD)
