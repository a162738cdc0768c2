"""Runs and conversations in the whole proxy, in this process: settings, headers, routes and keys."""

import json
import secrets
import time

import httpx
import pytest
import respx

from support.groups import asked, fitted
from support.providers import URL, answer, chat
from support.proxies import config_of, in_process, write

MASTER = f"sk-{secrets.token_hex(16)}"
TASK = {"role": "user", "content": "fix the failing test in the parser"}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxy")
    fitted().save(folder / "pair.wise")
    wise = {"budget_usd": 10.0, "requests": 1_000, "artifact": str(folder / "pair.wise"), "seed": 0}
    groups = {
        "runs": {**wise, "unit": "run"},
        "capped": {**wise, "unit": "run", "run_budget_usd": 0.004, "cap_output_tokens": 50},
        "chats": {**wise, "unit": "conversation", "conversation_ttl_s": 600},
        "calls": wise,
    }
    config = config_of(groups)
    config["litellm_settings"] |= {"disable_aiohttp_transport": True}
    with in_process(write(config, folder), MASTER) as running:
        yield running


@pytest.fixture(autouse=True)
def clean_litellm():
    """Keep the callbacks: the proxy of this module needs them."""


@pytest.fixture(autouse=True)
def provider():
    with respx.mock(assert_all_called=False, assert_all_mocked=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=answer)
        yield mock


def post(client, path, body, key="sk-user-a", **extra):
    return client.post(path, json=body, headers={"Authorization": f"Bearer {key}", **extra})


def ask(client, model, messages=(TASK,), key="sk-user-a", **extra):
    response = post(client, "/v1/chat/completions", {"model": model, "messages": list(messages)}, key, **extra)
    assert response.status_code == 200, response.text
    return response


def figures(client, group):
    answered = client.get("/wiserouter/status", headers={"Authorization": f"Bearer {MASTER}"})
    return answered.json()["groups"][group]["conversations"]


def test_the_headers_of_a_run_name_it_and_what_it_has_spent(client):
    first, second = (ask(client, "runs", **{"x-litellm-session-id": "headers"}).headers for _ in range(2))
    assert (first["x-wiserouter-visit"], second["x-wiserouter-visit"]) == ("first", "stay")
    assert first["x-wiserouter-conversation"] == second["x-wiserouter-conversation"]
    assert (first["x-wiserouter-conversation-calls"], second["x-wiserouter-conversation-calls"]) == ("1", "2")
    assert first["x-wiserouter-conversation-spent-usd"] == "0"
    assert float(second["x-wiserouter-conversation-cached"]) == 0.0
    assert "headers" not in str(dict(first))


def test_calls_that_are_decided_alone_have_no_headers_of_conversations(client):
    found = ask(client, "calls", **{"x-litellm-session-id": "alone"}).headers
    assert found["x-wiserouter-model"] == "large"
    assert not [name for name in found if "conversation" in name or "visit" in name]


def test_equal_ids_of_two_keys_are_two_runs(client):
    mine, theirs = (
        ask(client, "runs", key=key, **{"x-litellm-session-id": "same"}).headers["x-wiserouter-conversation"]
        for key in ("sk-user-a", "sk-user-b")
    )
    assert mine != theirs


def test_a_session_can_be_rated_and_ended_by_its_own_key_only(client):
    found = ask(client, "runs", **{"x-litellm-trace-id": "rated"}).headers
    for id_ in ("rated", found["x-wiserouter-conversation"]):
        rating = {"id": id_, "score": 0.5}
        assert post(client, "/wiserouter/feedback", rating, "sk-user-b").status_code == 404
        assert post(client, "/wiserouter/feedback", rating).status_code == 200
        assert post(client, "/wiserouter/end", {"id": id_}, "sk-user-b").status_code == 404
        assert post(client, "/wiserouter/end", {"id": id_}).json() == {"status": "ended"}
        assert post(client, "/wiserouter/feedback", rating).json() == {"status": "recorded", "replaced": True}
    again = ask(client, "runs", **{"x-litellm-trace-id": "rated"}).headers
    assert again["x-wiserouter-conversation-calls"] == "1"


def test_a_run_without_an_id_is_ended_by_one_of_its_calls(client):
    before = figures(client, "runs")["ended"]
    found = ask(client, "runs", [{"role": "user", "content": "a task without an id"}]).headers
    assert post(client, "/wiserouter/end", {"id": found["x-litellm-call-id"]}).status_code == 200
    assert figures(client, "runs")["ended"] == before + 1


@pytest.mark.parametrize("body", [{}, {"id": ""}, {"id": "x" * 1_025}, {"id": "a", "score": 1}, {"id": 1}])
def test_a_bad_end_is_unprocessable(client, body):
    assert post(client, "/wiserouter/end", body).status_code == 422


def test_a_run_budget_answers_429_with_the_figures_of_the_run(client):
    body = {"model": "capped", "messages": [TASK]}
    statuses = [post(client, "/v1/chat/completions", body, **{"x-litellm-session-id": "loop"}) for _ in range(8)]
    assert {200, 429} == {one.status_code for one in statuses}
    assert statuses[-1].headers["x-should-retry"] == "false"  # or the clients of OpenAI send it three times
    error = statuses[-1].json()["error"]
    assert error["type"] == "budget_exceeded"
    assert "the run budget of 0.004 USD" in error["message"]
    assert "end the run and begin another" in error["message"]
    assert ask(client, "capped", **{"x-litellm-session-id": "another"}).status_code == 200


def test_a_sub_agent_draws_on_the_budget_of_its_parent(client):
    headers = [
        {"x-litellm-session-id": "main"},
        {"x-litellm-session-id": "part", "x-wiserouter-parent": "main"},
    ]
    statuses = []
    for i in range(10):
        answered = post(client, "/v1/chat/completions", {"model": "capped", "messages": [TASK]}, **headers[i % 2])
        statuses.append(answered.status_code)
    assert 2 < statuses.count(200) < 8
    assert statuses[-2:] == [429, 429]


def test_the_status_has_the_figures_of_conversations(client):
    ask(client, "chats", **{"x-litellm-session-id": "status"})
    found = figures(client, "chats")
    assert (found["unit"], found["calls"]) == ("conversation", 1)
    assert (
        client.get("/wiserouter/status", headers={"Authorization": f"Bearer {MASTER}"}).json()["groups"]["calls"][
            "conversations"
        ]
        is None
    )


def test_a_chat_without_an_id_is_known_by_what_it_repeats(client, provider):
    said = iter(["the first answer", "the second answer", "the third answer"])
    provider.routes[0].side_effect = lambda request: httpx.Response(
        200, json=chat(json.loads(request.content)["model"], next(said))
    )
    messages, keys = [{"role": "user", "content": "a chat of its own"}], []
    for turn in range(3):
        found = ask(client, "chats", messages)
        keys.append(found.headers["x-wiserouter-conversation"])
        messages += [found.json()["choices"][0]["message"], {"role": "user", "content": f"and {turn}?"}]
    assert len(set(keys)) == 1
    assert len(set(asked(provider))) == 1


def settle(client, group):
    """Wait until the calls of a group are charged, which they are after their answers."""
    for _ in range(200):
        answered = client.get("/wiserouter/status", headers={"Authorization": f"Bearer {MASTER}"})
        if answered.json()["groups"][group]["in_flight"] == 0:
            return
        time.sleep(0.05)


def respond(client, key, **body):
    answered = post(client, "/v1/responses", {"model": "runs", "input": "go on", **body}, key)
    assert answered.status_code == 200, answered.text
    if not body.get("stream"):
        return answered.headers, answered.json()["id"]
    events = [json.loads(line.removeprefix("data: ")) for line in answered.text.splitlines() if "completed" in line]
    return answered.headers, next(one["response"]["id"] for one in events if one["type"] == "response.completed")


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_continued_and_rated_by_the_id_that_the_proxy_encrypts(client, stream):
    key = f"sk-user-{'streams' if stream else 'answers'}"
    first, id_ = respond(client, key, stream=stream)
    settle(client, "runs")
    second, next_id = respond(client, key, stream=stream, previous_response_id=id_)
    assert id_ != next_id  # though the provider's is the same: each is encrypted
    assert second["x-wiserouter-conversation"] == first["x-wiserouter-conversation"]
    assert (second["x-wiserouter-visit"], second["x-wiserouter-conversation-calls"]) == ("stay", "2")
    settle(client, "runs")
    assert post(client, "/wiserouter/feedback", {"id": id_, "score": 0.5}, key).status_code == 200
    assert post(client, "/wiserouter/feedback", {"id": id_, "score": 0.5}, "sk-user-b").status_code == 404
    assert post(client, "/wiserouter/end", {"id": next_id}, key).status_code == 200
