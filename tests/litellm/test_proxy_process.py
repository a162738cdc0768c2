"""One real proxy process on 127.0.0.1, driven by the OpenAI client; and processes that must not start."""

import subprocess
import time

import httpx
import openai
import pytest

from support.groups import fitted
from support.ports import free_port
from support.providers import cost_usd
from support.proxies import config_of, environment, running_proxy, start, write
from support.stub import Stub, serving


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("process")
    fitted().save(folder / "pair.wise")
    wise = {"budget_usd": 10.0, "requests": 1_000, "artifact": "./pair.wise", "seed": 0}
    stub = Stub()
    with serving(stub) as url:
        groups = {
            "wise": {**wise, "reservation_ttl_s": 1.5},
            "tight": {**wise, "budget_usd": 3 * cost_usd("small", (200, 50)), "limit": "hard", "requests": 100},
        }
        path = write(config_of(groups, url=url), folder)
        with running_proxy(path, folder / "proxy.log") as (base, key, _):
            yield base, key, stub


def client_of(proxy, key="sk-user-a"):
    return openai.OpenAI(base_url=f"{proxy[0]}/v1", api_key=key, max_retries=0, timeout=20)


def status(proxy, group="wise"):
    headers = {"Authorization": f"Bearer {proxy[1]}"}
    return httpx.get(f"{proxy[0]}/wiserouter/status", headers=headers, timeout=30).json()["groups"][group]


def wait(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.05)


def test_chat_tools_and_streams_through_the_openai_client(proxy):
    before, billed = status(proxy), proxy[2].billed_usd
    client = client_of(proxy)
    raw = client.chat.completions.with_raw_response.create(model="wise", messages=[{"role": "user", "content": "one"}])
    assert raw.headers["x-wiserouter-model"] == "large"
    assert raw.parse().choices[0].message.content == "an answer"
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    client.chat.completions.create(model="wise", messages=[{"role": "user", "content": "two"}], tools=[tool])
    assert proxy[2].bodies[-1]["tools"][0]["function"]["name"] == "f"
    stream = client.chat.completions.create(model="wise", messages=[{"role": "user", "content": "three"}], stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices).count("word") == 5
    wait(lambda: status(proxy)["charged"] == before["charged"] + 3)
    spent = status(proxy)["spent_usd"] - before["spent_usd"]
    assert spent == pytest.approx(proxy[2].billed_usd - billed, abs=1e-9)


def test_feedback_from_a_plain_key(proxy):
    client = client_of(proxy)
    raw = client.chat.completions.with_raw_response.create(model="wise", messages=[{"role": "user", "content": "rate"}])
    body = {"id": raw.headers["x-litellm-call-id"], "score": 0.75}
    heads = [{"Authorization": f"Bearer sk-user-{name}"} for name in "ab"]
    rated = [httpx.post(f"{proxy[0]}/wiserouter/feedback", json=body, headers=head, timeout=30) for head in heads]
    assert [one.status_code for one in rated] == [200, 404]


def test_an_abandoned_stream_is_reclaimed(proxy):
    before = status(proxy)
    with client_of(proxy).chat.completions.create(
        model="wise", messages=[{"role": "user", "content": "hang"}], stream=True
    ) as stream:
        next(iter(stream))
    wait(lambda: status(proxy)["in_flight"] == 0)
    assert status(proxy)["reserved_usd"] == 0.0
    assert status(proxy)["decided"] <= before["decided"] + 1


def test_a_server_error_is_presumed_to_cost_what_was_expected(proxy):
    before = status(proxy)
    with pytest.raises(openai.InternalServerError):
        client_of(proxy).chat.completions.create(model="wise", messages=[{"role": "user", "content": "fail"}])
    wait(lambda: status(proxy)["in_flight"] == 0)
    after = status(proxy)
    presumed_usd = after["presumed_usd"] - before["presumed_usd"]
    assert after["presumed"] > before["presumed"]
    assert after["spent_usd"] - before["spent_usd"] == pytest.approx(presumed_usd)


def test_a_hard_budget_ends_in_a_rate_limit_error_for_the_client(proxy):
    client = client_of(proxy)
    with pytest.raises(openai.RateLimitError) as refused:
        for _ in range(100):
            client.chat.completions.create(
                model="tight", messages=[{"role": "user", "content": "one of many"}], max_tokens=50
            )
    assert refused.value.type == "budget_exceeded"
    assert "group 'tight': the budget of" in str(refused.value)
    tight = status(proxy, "tight")
    assert 0 < tight["spent_usd"] <= tight["amount_usd"]


@pytest.mark.parametrize(
    ("wise", "message"),
    [
        pytest.param(
            {"budget": 1, "requests": 10},
            "groups.wise: unknown key 'budget', did you mean budget_usd?",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"budget_usd": 0, "requests": 10},
            "groups.wise.budget_usd: Input should be greater than 0, got 0",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"budget_usd": 1, "requests": 10, "artifact": "x.wise"},
            "groups.wise: x.wise: no such file: correct the path, or make one with `wiserouter fit`",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["typo", "zero", "artifact"],
)
def test_a_wrong_configuration_stops_the_boot_with_one_line_first_and_last(tmp_path, wise, message):
    log = tmp_path / "proxy.log"
    with log.open("wb") as out:
        process = start(write(config_of({"wise": wise}), tmp_path), free_port(), environment("sk-" + "ab" * 16), out)
        try:
            code = process.wait(300)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
            raise
    assert code != 0
    ours = f"wiserouter: the proxy cannot start: callback_settings.wiserouter.{message}"
    lines = log.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if "wiserouter" in line)
    assert lines[first].endswith(ours)
    assert lines[-1] == ours
    assert len(lines) - first < 10
    assert not any("Traceback" in line for line in lines)
