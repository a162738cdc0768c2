"""A real Prometheus scrapes a real proxy: every rule is evaluated without an error, and every panel has data."""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from support.groups import fitted
from support.prometheus import RULES, board_expressions, needs_prometheus, scraping
from support.providers import chat, deployment
from support.proxies import config_of, running_proxy, write
from support.stub import serving

pytestmark = [pytest.mark.slow, needs_prometheus]

TRAFFIC_S, MOST_S = 10.0, 300.0
NEEDED = ("wiserouter:spend_forecast_usd", "wiserouter_judge_agreement", "rate(wiserouter_rewards_count[1m]) > 0")
"""What comes last: it needs traffic between two scrapes, and a call that was scored by the judge and by a person."""


class Provider:
    """Answers every model; the referee gives every answer the best score."""

    def __init__(self):
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        return JSONResponse(chat(body["model"], "1" if body["model"] == "referee" else "an answer"))


def config(url: str, store: str) -> dict:
    judge = {"model": "referee", "share": 0.5, "budget_usd": 1.0, "every": "day"}
    wise = {
        "budget_usd": 10.0, "every": "day", "requests": 1_000, "artifact": "./pair.wise", "store": store, "seed": 0,
        "unit": "conversation", "judge": judge,
        "scopes": {"by": "tag", "from_request": True, "budgets": {"red": {"budget_usd": 5.0, "requests": 500}}},
    }  # fmt: skip
    found = config_of({"wise": wise}, url=url)
    costs = {"input_cost_per_token": 1e-7, "output_cost_per_token": 2e-7}
    found["model_list"].append(deployment("referee", "referee", url=url, **costs))
    return found


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    fitted().save(folder / "pair.wise")
    with serving(Provider()) as url:
        path = write(config(url, f"sqlite:///{folder}/budget.db"), folder)
        with running_proxy(path, folder / "proxy.log") as (base, key, _), scraping(base, key, folder) as found:
            send_traffic(base, found)
            yield found


def send_traffic(base: str, prometheus) -> None:
    """Send scored calls of several conversations, until Prometheus has scraped what follows from them."""
    headers = {"Authorization": "Bearer sk-user-a"}
    with httpx.Client(base_url=base, headers=headers, timeout=30) as client, ThreadPoolExecutor(4) as threads:

        def call(at: int) -> None:
            body = {
                "model": "wise",
                "messages": [{"role": "user", "content": f"question {at}"}],
                "metadata": {"session_id": f"chat-{at % 5}", "tags": ["red"] if at % 2 else []},
            }
            answer = client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            score = {"id": answer.headers["x-litellm-call-id"], "score": 0.5}
            assert client.post("/wiserouter/feedback", json=score).status_code == 200

        began_s, at, missing = time.monotonic(), 0, list(NEEDED)
        while missing or time.monotonic() - began_s < TRAFFIC_S:
            assert time.monotonic() - began_s < MOST_S, missing
            list(threads.map(call, range(at, at + 4)))
            at += 4
            time.sleep(0.2)
            missing = [one for one in missing if not prometheus.query(one)]


@pytest.mark.parametrize(("panel", "expression"), board_expressions())
def test_a_panel_has_data(prometheus, panel, expression):
    found = prometheus.query(expression)
    assert found, panel
    assert all(math.isfinite(float(one["value"][1])) for one in found), found


def test_the_rules_are_evaluated_without_an_error(prometheus):
    rules = prometheus.rules()
    assert len(rules) == sum(len(group["rules"]) for group in yaml.safe_load(RULES.read_text())["groups"])
    for rule in rules:
        assert (rule["health"], rule.get("lastError")) == ("ok", None), rule
        prometheus.query(rule["query"])


def test_no_alert_fires_on_healthy_traffic(prometheus):
    firing = [rule["name"] for rule in prometheus.rules() if rule.get("state") == "firing"]
    assert not firing, json.dumps(firing)


def test_both_scopes_and_the_judge_have_budgets(prometheus):
    scopes = {one["metric"]["scope"] for one in prometheus.query("wiserouter_budget_spent_usd")}
    assert scopes == {"default", "judge:referee", "tag:red"}
