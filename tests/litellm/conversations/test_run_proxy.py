"""Chats and agents through a real proxy, against a provider that caches prefixes and bills them itself.

One model per run unless it is forced, no history that a provider would refuse, and bills that equal its ledger.
"""

import math
import time
from contextlib import contextmanager

import anthropic
import httpx
import openai
import pytest

from support.caching_provider import CachingProvider, prices
from support.groups import fitted
from support.providers import deployment
from support.proxies import running_proxy, write
from support.redis_servers import MISSING, redis_server
from support.redis_servers import serving as serving_redis
from support.stub import serving

pytestmark = pytest.mark.slow

USER = "sk-user-a"
SYSTEM = "You are a careful engineer. " * 200
LS = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}
CLAUDE_LS = {"name": "ls", "input_schema": {"type": "object", "properties": {}}}
GROUPS = {
    "runs": ("openai", {"unit": "run"}),
    "capped": ("openai", {"unit": "run", "run_budget_usd": 0.05, "run_limit": "expected"}),
    "chats": ("openai", {"unit": "conversation"}),
    "claude": ("anthropic", {"unit": "run"}),
}
TWO_WORKERS = ("--num_workers", "2", "--timeout_worker_healthcheck", "120")


class Place:
    """A running proxy, the provider behind it, and its clients."""

    def __init__(self, base, key, provider):
        self.base, self.key, self.provider = base, key, provider
        self.openai = openai.OpenAI(base_url=f"{base}/v1", api_key=USER, max_retries=0, timeout=60)
        self.anthropic = anthropic.Anthropic(base_url=base, api_key=USER, max_retries=0, timeout=60)

    def status(self, group):
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.get(f"{self.base}/wiserouter/status", headers=headers, timeout=30).json()["groups"][group]

    def charged_usd(self, group):
        status = self.status(group)
        return status["spent_usd"] - status["presumed_usd"]

    def settled(self, group, charged_usd, timeout_s=20.0):
        """Return the status once nothing is in flight and the amount is charged; else the status after the time."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = self.status(group)
            charged = status["spent_usd"] - status["presumed_usd"]
            done = status["in_flight"] == 0 and math.isclose(charged, charged_usd, abs_tol=1e-9)
            if done or time.monotonic() > deadline:
                return status
            time.sleep(0.05)


def config_of(folder, url, **terms):
    """Return the configuration of all groups, whose models are called small and large in each."""
    if not (folder / "pair.wise").exists():
        fitted().save(folder / "pair.wise")
    common = {"budget_usd": 1_000.0, "requests": 100_000, "artifact": "./pair.wise", "seed": 0}
    rows = []
    for group, (provider, _) in GROUPS.items():
        base = url.removesuffix("/v1") if provider == "anthropic" else url
        for name in ("small", "large"):
            info = {"id": f"{group}-{name}", "wiserouter_model": name, "max_input_tokens": 200_000}
            row = deployment(name, group, url=base, info=info)
            row["litellm_params"] |= {"model": f"{provider}/{name}", **prices(name, writes=provider == "anthropic")}
            row["model_info"] |= prices(name, writes=provider == "anthropic")
            rows.append(row)
    groups = {
        name: {**common, **settings, **{key: value.replace("NAME", name) for key, value in terms.items()}}
        for name, (_, settings) in GROUPS.items()
    }
    return {
        "model_list": rows,
        "router_settings": {"num_retries": 2, "allowed_fails": 1_000},
        "litellm_settings": {"callbacks": ["wiserouter_litellm.callback"]},
        "callback_settings": {"wiserouter": {"groups": groups}},
        "general_settings": {
            "master_key": "os.environ/LITELLM_MASTER_KEY",
            "custom_auth": "support.proxy_auth.auth",
        },
    }


@contextmanager
def place_at(folder, provider, url, *options, **terms):
    path = write(config_of(folder, url, **terms), folder)
    with running_proxy(path, folder / "proxy.log", *options, boot_s=300.0) as (base, key, _):
        yield Place(base, key, provider)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    provider, folder = CachingProvider(), tmp_path_factory.mktemp("runs")
    with serving(provider) as url, place_at(folder, provider, url) as place:
        yield place


@pytest.fixture(autouse=True)
def clean_litellm():
    """Leave LiteLLM alone: it runs in other processes."""


def agent(place, group, task, steps, *, extra=None, between=None):
    """Run an agent with tools through OpenAI's client; return the headers of its answers."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"task={task} steps={steps}"}]
    found = []
    for step in range(steps + 1):
        raw = place.openai.chat.completions.with_raw_response.create(
            model=group, messages=messages, tools=[LS], extra_headers=extra or {}
        )
        found.append(raw.headers)
        message = raw.parse().choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"a file of step {step} " * 20})
        if between is not None:
            between(step)
    assert not message.tool_calls
    return found


def thinking_agent(place, task, steps, between=None):
    """Run an agent that thinks and calls tools through Anthropic's client; return the headers of its answers."""
    messages, found = [{"role": "user", "content": f"task={task} steps={steps}"}], []
    for step in range(steps + 1):
        raw = place.anthropic.messages.with_raw_response.create(
            model="claude",
            max_tokens=2_000,
            messages=messages,
            tools=[CLAUDE_LS],
            thinking={"type": "enabled", "budget_tokens": 1_024},
            system=[{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        )
        found.append(raw.headers)
        content = [part.model_dump(exclude_none=True) for part in raw.parse().content]
        messages.append({"role": "assistant", "content": content})
        results = [
            {"type": "tool_result", "tool_use_id": part["id"], "content": f"a file of step {step}"}
            for part in content
            if part["type"] == "tool_use"
        ]
        if results:
            messages.append({"role": "user", "content": results})
        if between is not None:
            between(step)
    assert not results
    return found


def test_a_chat_of_twenty_turns_is_one_conversation_and_its_bills_are_those_of_the_provider(place):
    messages, keys = [{"role": "system", "content": SYSTEM}], set()
    before_usd = place.charged_usd("chats")
    for turn in range(20):
        messages.append({"role": "user", "content": f"task=chat what about {turn}?"})
        raw = place.openai.chat.completions.with_raw_response.create(
            model="chats", messages=messages, stream=turn % 2 == 1
        )
        keys.add(raw.headers["x-wiserouter-conversation"])
        answered = raw.parse()
        if turn % 2:
            text = "".join(one.choices[0].delta.content or "" for one in answered if one.choices)
        else:
            text = answered.choices[0].message.content
        messages.append({"role": "assistant", "content": text})
    assert len(keys) == 1
    assert set(place.provider.models_of("chat")) == {"large"}
    billed_usd = place.provider.bill_of("chat")
    status = place.settled("chats", before_usd + billed_usd)
    assert status["spent_usd"] - status["presumed_usd"] - before_usd == pytest.approx(billed_usd, abs=1e-9)
    assert status["conversations"]["hit_rate"]["large"] > 0.8


@pytest.mark.parametrize("extra", [{}, {"x-litellm-session-id": "agent-by-id"}], ids=["messages", "session"])
def test_an_agent_of_forty_calls_is_one_run_of_one_model(place, extra):
    task = f"agent-{len(extra)}"
    before = place.status("runs")
    headers = agent(place, "runs", task, 39, extra=extra)
    assert len(place.provider.models_of(task)) == 40
    assert set(place.provider.models_of(task)) == {"large"}
    assert len({one["x-wiserouter-conversation"] for one in headers}) == 1
    assert [one["x-wiserouter-visit"] for one in headers] == ["first"] + ["stay"] * 39
    assert float(headers[-1]["x-wiserouter-conversation-cached"]) > 0.8
    billed_usd = place.provider.bill_of(task)
    after = place.settled("runs", before["spent_usd"] + billed_usd)
    assert after["spent_usd"] - before["spent_usd"] == pytest.approx(billed_usd, abs=1e-9)
    assert after["decided"] == before["decided"] + 1
    assert place.provider.refused == []


def test_an_agent_that_thinks_keeps_its_signed_thoughts(place):
    before = place.status("claude")
    headers = thinking_agent(place, "thinks", 39)
    assert set(place.provider.models_of("thinks")) == {"large"}
    assert len({one["x-wiserouter-conversation"] for one in headers}) == 1
    billed_usd = place.provider.bill_of("thinks")
    after = place.settled("claude", before["spent_usd"] + billed_usd)
    assert after["spent_usd"] - before["spent_usd"] == pytest.approx(billed_usd, abs=1e-9)
    assert after["decided"] == before["decided"] + 1
    assert place.provider.refused == []


def test_a_model_that_fails_hands_its_run_over_once(place):
    def fail(step):
        if step == 4:
            place.provider.failing["large"] = [500]

    before = place.status("runs")
    agent(place, "runs", "fails", 12, between=fail)
    assert place.provider.models_of("fails") == ["large"] * 5 + ["small"] * 8
    billed_usd = place.provider.bill_of("fails")
    charged_before = before["spent_usd"] - before["presumed_usd"]
    after = place.settled("runs", charged_before + billed_usd)
    assert after["spent_usd"] - after["presumed_usd"] - charged_before == pytest.approx(billed_usd, abs=1e-9)
    assert after["presumed"] <= before["presumed"] + 1
    assert after["decided"] == before["decided"] + 1
    assert place.provider.refused == []


def test_a_thinking_model_that_fails_goes_on_itself_since_no_other_can(place):
    def fail(step):
        if step == 4:
            place.provider.failing["large"] = [529]

    before = place.status("claude")
    thinking_agent(place, "overloaded", 8, between=fail)
    assert set(place.provider.models_of("overloaded")) == {"large"}
    billed_usd = place.provider.bill_of("overloaded")
    charged_before = before["spent_usd"] - before["presumed_usd"]
    after = place.settled("claude", charged_before + billed_usd)
    assert after["spent_usd"] - after["presumed_usd"] - charged_before == pytest.approx(billed_usd, abs=1e-9)
    assert place.provider.refused == []


def test_a_sub_agent_is_a_run_of_its_own_that_spends_from_that_of_its_parent(place):
    main, part = {"x-litellm-session-id": "main"}, {"x-litellm-session-id": "part", "x-wiserouter-parent": "main"}
    agent(place, "capped", "main", 2, extra=main)
    agent(place, "capped", "part", 2, extra=part)
    assert len({*place.provider.models_of("main"), *place.provider.models_of("part")}) == 1
    with pytest.raises(openai.RateLimitError) as refused:
        for i in range(60):
            agent(place, "capped", f"more-{i}", 2, extra=part)
    assert "the run budget of 0.05 USD" in str(refused.value)
    with pytest.raises(openai.RateLimitError):
        agent(place, "capped", "main-again", 2, extra=main)
    tasks = {call.task for call in place.provider.served if call.task.startswith(("main", "part", "more-"))}
    billed_usd = sum(place.provider.bill_of(task) for task in tasks)
    assert 0.03 < billed_usd < 0.06
    assert place.settled("capped", billed_usd)["spent_usd"] == pytest.approx(billed_usd, abs=1e-9)


def test_a_run_goes_on_after_a_restart_of_the_proxy(tmp_path):
    provider = CachingProvider()
    halves, spent = [], []
    with serving(provider) as url:
        messages = [{"role": "user", "content": "task=restart steps=19"}]
        for _ in range(2):
            with place_at(tmp_path, provider, url, store="sqlite:///./NAME.db") as place:
                for step in range(10):
                    raw = place.openai.chat.completions.with_raw_response.create(
                        model="runs", messages=messages, tools=[LS]
                    )
                    message = raw.parse().choices[0].message
                    messages.append(message.model_dump(exclude_none=True))
                    for call in message.tool_calls or ():
                        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"file {step}"})
                halves.append(raw.headers["x-wiserouter-conversation"])
                spent.append(place.settled("runs", provider.ledger_usd))
    assert halves[0] == halves[1]
    assert provider.models_of("restart") == ["large"] * 20
    assert spent[1]["spent_usd"] == pytest.approx(provider.ledger_usd, abs=1e-9)
    assert spent[1]["decided"] == 1


@pytest.mark.skipif(redis_server() is None, reason=MISSING)
def test_two_workers_on_one_redis_serve_one_run(tmp_path):
    provider, asked = CachingProvider(), tmp_path / "asked"
    with (
        serving(provider) as url,
        serving_redis() as redis,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("ASKED_FILE", str(asked))
        with place_at(tmp_path, provider, url, *TWO_WORKERS, store=redis.url) as place:
            keys = []
            for i in range(3):
                fresh = openai.OpenAI  # a client per call, so that either worker may take it
                messages = [{"role": "user", "content": f"task=workers-{i} steps=19"}]
                for step in range(20):
                    with fresh(base_url=f"{place.base}/v1", api_key=USER, max_retries=0, timeout=60) as client:
                        raw = client.chat.completions.with_raw_response.create(
                            model="runs", messages=messages, tools=[LS]
                        )
                    keys.append(raw.headers["x-wiserouter-conversation"])
                    message = raw.parse().choices[0].message
                    messages.append(message.model_dump(exclude_none=True))
                    for call in message.tool_calls or ():
                        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"file {step} of {i}"})
            status = place.settled("runs", provider.ledger_usd)
    assert len(set(keys)) == 3
    assert all(provider.models_of(f"workers-{i}") == ["large"] * 20 for i in range(3))
    assert status["spent_usd"] == pytest.approx(provider.ledger_usd, abs=1e-9)
    assert status["decided"] == 3
    workers = {line.split(" ")[0] for line in asked.read_text().splitlines() if "/chat/completions" in line}
    assert len(workers) == 2
