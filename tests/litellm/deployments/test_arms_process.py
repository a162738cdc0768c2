"""A real proxy over a provider that bills by the effort that it was asked for: bills equal the ledger, per arm."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from starlette.responses import JSONResponse

from support.providers import INPUT_USD, OUTPUT_USD, TOKENS, chat
from support.providers import deployment as priced
from support.proxies import config_of, running_proxy, write
from support.stub import Stub, serving

pytestmark = pytest.mark.slow

TOKENS_OF = {"low": 40, "high": 400, "medium": 120, None: 80}
LIMITS = {"low": 60, "high": 500}
ARMS = {"large": [{"reasoning_effort": effort, "max_tokens": limit} for effort, limit in LIMITS.items()]}
LOW, HIGH = (f"large@{effort},max_tokens={limit}" for effort, limit in LIMITS.items())
HARD_USD = 0.06


class EffortStub(Stub):
    """A provider whose answers are as long as the effort asks for, within the limit of the request."""

    def __init__(self):
        super().__init__()
        self.usd_of = Counter()
        self.asked_of = Counter()

    async def _answer(self, request):
        body = await request.json()
        model, effort = body["model"], body.get("reasoning_effort")
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 10**9
        tokens = (TOKENS[0], min(TOKENS_OF[effort], limit))
        usd = tokens[0] * INPUT_USD[model] + tokens[1] * OUTPUT_USD[model]
        self.bodies = [*self.bodies[-200:], body]
        self.asked_of[model, effort] += 1
        self.usd_of[body["messages"][0]["content"].split()[0]] += usd
        self.billed_usd += usd
        return JSONResponse(chat(model, tokens=tokens))


def deployed(name, group, url):
    row = priced(name, group, url=url, info={"id": f"{group}-{name}", "wiserouter_model": name})
    row["litellm_params"]["allowed_openai_params"] = ["reasoning_effort"]
    return row


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arms")
    stub = EffortStub()
    with serving(stub) as url:
        group = {"arms": ARMS, "requests": 60, "contexts": 1, "seed": 0}
        groups = {
            "open": {**group, "budget_usd": 10.0, "explore_share": 0.9},  # so that each arm is called
            "tight": {**group, "budget_usd": HARD_USD, "limit": "hard", "on_held": "refuse"},
        }
        config = config_of(groups, url=url)
        config["model_list"] = [deployed(name, group, url) for group in groups for name in ("large", "small")]
        config["router_settings"] = {"num_retries": 0}
        with running_proxy(write(config, folder), folder / "proxy.log") as (base, key, _):
            yield base, key, stub


def status(proxy, group):
    headers = {"Authorization": f"Bearer {proxy[1]}"}
    return httpx.get(f"{proxy[0]}/wiserouter/status", headers=headers, timeout=30).json()["groups"][group]


def wait(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.1)


def ask(proxy, group, i=0, **params):
    client = openai.OpenAI(base_url=f"{proxy[0]}/v1", api_key="sk-user-a", max_retries=0, timeout=30)
    messages = [{"role": "user", "content": f"{group} question {i}"}]
    return client.chat.completions.with_raw_response.create(model=group, messages=messages, **params)


def test_each_arm_is_sent_billed_and_learned(proxy):
    models = Counter(ask(proxy, "open", i).headers["x-wiserouter-model"] for i in range(30))
    assert set(models) == {LOW, HIGH, "small"}
    wait(lambda: status(proxy, "open")["charged"] == 30)
    now = status(proxy, "open")
    assert now["spent_usd"] == pytest.approx(proxy[2].usd_of["open"], rel=1e-9)
    for model, effort in ((LOW, "low"), (HIGH, "high"), ("small", None)):
        learned = now["models"][model]
        name = model.partition("@")[0]
        assert learned["calls"] == models[model]
        assert learned["params"].get("reasoning_effort") == effort
        true_usd = TOKENS[0] * INPUT_USD[name] + TOKENS_OF[effort] * OUTPUT_USD[name]
        assert learned["mean_cost_usd"] == pytest.approx(true_usd)


def test_what_a_client_says_is_sent_and_is_the_plain_model(proxy):
    answer = ask(proxy, "open", reasoning_effort="medium", temperature=0.5)
    body = proxy[2].bodies[-1]
    assert answer.headers["x-wiserouter-model"] in {"large", "small"}
    assert (body["reasoning_effort"], body["temperature"]) == ("medium", 0.5)


def test_a_hard_limit_holds_while_many_ask_at_once(proxy):
    def one(i):
        try:
            return ask(proxy, "tight", i).headers["x-wiserouter-model"]
        except openai.RateLimitError:
            return "refused"

    with ThreadPoolExecutor(8) as pool:
        got = Counter(pool.map(one, range(90)))
    wait(lambda: status(proxy, "tight")["in_flight"] == 0)
    spent = status(proxy, "tight")["spent_usd"]
    assert spent == pytest.approx(proxy[2].usd_of["tight"], rel=1e-9)
    assert spent <= HARD_USD
    assert got["refused"] < 90


def test_an_arm_retires_alone(proxy):
    admin = {"Authorization": f"Bearer {proxy[1]}"}
    order = {"group": "open", "model": LOW, "retired": True}
    ordered = httpx.post(f"{proxy[0]}/wiserouter/model", json=order, headers=admin, timeout=30)
    assert ordered.status_code == 200, ordered.text
    served = {ask(proxy, "open", i).headers["x-wiserouter-model"] for i in range(12)}
    assert LOW not in served
    assert status(proxy, "open")["models"][LOW]["retired"] is True
    call = ask(proxy, "open").headers["x-litellm-call-id"]
    rated = httpx.post(
        f"{proxy[0]}/wiserouter/feedback",
        json={"id": call, "score": 1.0},
        headers={"Authorization": "Bearer sk-user-a"},
        timeout=30,
    )
    assert rated.status_code == 200
