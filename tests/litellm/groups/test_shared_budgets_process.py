"""A real proxy process with a budget over two groups, fallbacks inside it, and responses that are continued."""

import time
from itertools import islice

import httpx
import openai
import pytest

from support.billing_stub import Behaviour, billing_stub
from support.providers import deployment
from support.proxies import config_of, running_proxy, write

pytestmark = pytest.mark.slow

PRICES = {"small": (1e-6, 2e-6), "large": (1e-5, 3e-5), "coder": (2e-6, 4e-6), "rescue": (1e-6, 2e-6)}
AMOUNT_USD = 0.02
CALL = {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 60}


def row(name, group, url):
    price = dict(zip(("input_cost_per_token", "output_cost_per_token"), PRICES[name], strict=True))
    return deployment(name, group, url=url, **price)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    with billing_stub(prices=dict(PRICES)) as stub:
        shared = {"budget_usd": AMOUNT_USD, "requests": 100, "limit": "hard", "seed": 0, "store": "sqlite:///budget.db"}
        own = {"budget_usd": 10.0, "requests": 1_000}
        members = {"wise": {"budget": "monthly", "on_held": "refuse"}, "code": {"budget": "monthly"}}
        config = config_of({"wise": own, "talk": own}, url=stub.url, fallbacks=[{"wise": ["rescue"]}], num_retries=0)
        config["router_settings"].pop("routing_groups")
        rows = [row("small", "wise", stub.url), row("large", "wise", stub.url), row("coder", "code", stub.url)]
        talk = [each for each in config["model_list"] if each["model_name"] == "talk"]
        config["model_list"] = [*rows, *talk, row("rescue", "rescue", stub.url)]
        block = {"budgets": {"monthly": shared}, "groups": {**members, "talk": own}}
        config["callback_settings"] = {"wiserouter": block}
        with running_proxy(write(config, folder), folder / "proxy.log") as (base, key, _):
            yield base, key, stub


def client(proxy):
    return openai.OpenAI(base_url=f"{proxy[0]}/v1", api_key=proxy[1], max_retries=0, timeout=60)


def ask(proxy, model):
    """Return the answer to one chat, whatever its status."""
    headers = {"Authorization": f"Bearer {proxy[1]}"}
    return httpx.post(f"{proxy[0]}/v1/chat/completions", json={"model": model, **CALL}, headers=headers, timeout=60)


def status(proxy, group="wise"):
    answer = httpx.get(f"{proxy[0]}/wiserouter/status", headers={"Authorization": f"Bearer {proxy[1]}"}, timeout=60)
    return answer.json()["groups"][group]


def wait(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.05)


def settled(proxy, group="wise"):
    wait(lambda: status(proxy, group)["in_flight"] == 0)
    return status(proxy, group)


def test_both_groups_and_their_fallbacks_spend_one_hard_budget(proxy):
    stub = proxy[2]
    for model in ("wise", "code"):
        client(proxy).chat.completions.create(model=model, **CALL)
    assert [call.model for call in stub.calls][-1] == "coder"
    stub.behaviours = {name: Behaviour(status=429) for name in ("small", "large")}
    raw = client(proxy).chat.completions.with_raw_response.create(model="wise", **CALL)
    assert raw.headers["x-wiserouter-model"] == "openai/rescue"
    after = settled(proxy)
    assert after["spent_usd"] == pytest.approx(stub.ledger_usd, abs=1e-9)
    assert status(proxy, "code")["spent_usd"] == after["spent_usd"]
    assert (after["budget"], status(proxy, "talk").get("budget")) == ("monthly", None)
    stub.behaviours = {}
    answers = (ask(proxy, ("wise", "code")[i % 2]) for i in range(200))
    refused = list(islice((answer for answer in answers if answer.status_code != 200), 4))
    after = settled(proxy)
    assert [answer.status_code for answer in refused] == [429] * 4
    assert all("budget" in answer.text for answer in refused)
    assert 0.5 * AMOUNT_USD < stub.ledger_usd <= AMOUNT_USD
    assert after["spent_usd"] == pytest.approx(stub.ledger_usd, abs=1e-9)
    assert after["faults"].get("uncounted_calls", 0) == 0


def test_a_response_is_continued_by_the_deployment_that_made_it(proxy):
    stub = proxy[2]
    stub.behaviours = {}
    for _ in range(3):
        first = client(proxy).responses.create(model="talk", input="hello", max_output_tokens=20)
        made_by = stub.calls[-1].model
        for _ in range(3):
            client(proxy).responses.create(
                model="talk", input="and then?", previous_response_id=first.id, max_output_tokens=20
            )
            assert stub.calls[-1].model == made_by
            assert not str(stub.calls[-1].body["previous_response_id"]).startswith("resp_bGl0ZWxsbT")
