"""Teams of one organisation through the whole proxy in this process, over a shared store; and the store gone."""

import secrets
import uuid

import pytest

from support.groups import fitted
from support.off_loop import OffLoop
from support.providers import cost_usd
from support.proxies import config_of, in_process, write

MASTER = f"sk-{secrets.token_hex(16)}"
CALL_USD, WORST_USD = cost_usd("large"), cost_usd("large", (60, 60))


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scopes")
    fitted().save(folder / "pair.wise")
    wise = {"requests": 1_000, "artifact": str(folder / "pair.wise"), "seed": 0, "store": f"sqlite:///{folder}/own.db"}
    month = {"every": "month", "limit": "hard", "requests": 20}
    teams = {
        "by": "team",
        "budgets": {
            "team-a": {"budget_usd": 6 * CALL_USD + WORST_USD, **month},
            "team-b": {"budget_usd": 1_000 * CALL_USD, **month},
        },
        "others": {"budget_usd": 2 * CALL_USD + WORST_USD, **month},
    }
    organisation = {**wise, **month, "budget_usd": 20 * CALL_USD + WORST_USD, "cap_output_tokens": 60}
    groups = {
        "wise": {**organisation, "scopes": teams, "store": f"sqlite:///{folder}/teams.db"},
        "tagged": {
            **wise,
            "budget_usd": 1.0,
            "scopes": {"by": "tag", "budgets": {"gold": {"budget_usd": 1, "requests": 9}}, "from_request": True},
        },
        "closed": {
            **wise,
            "budget_usd": 1.0,
            "store": "memory://",
            "scopes": {"by": "team", "budgets": {"team-a": {"budget_usd": 1, "requests": 9}}, "others": "refuse"},
        },
    }
    with in_process(write(config_of(groups), folder), MASTER) as running:
        for name in ("wise", "tagged"):
            client = running.callback.groups[name].router._store._worker.client
            client._engine = OffLoop(client._engine, near=True)
        yield running


@pytest.fixture(autouse=True)
def clean_litellm():
    """Keep the callbacks: the proxy of this module needs them."""


def headers(key):
    return {"Authorization": f"Bearer {key}", "content-type": "application/json"}


def ask(client, key, model="wise", **body):
    message = {"role": "user", "content": f"question {uuid.uuid4()}"}
    return client.post(
        "/v1/chat/completions", json={"model": model, "messages": [message], **body}, headers=headers(key)
    )


def rate(client, key, id_, score=1.0):
    return client.post("/wiserouter/feedback", json={"id": id_, "score": score}, headers=headers(key))


def router(client, group="wise"):
    return client.callback.groups[group].router


def own(client, scope, group="wise"):
    """Return the account of a scope's own budget."""
    status = client.get("/wiserouter/status", headers=headers(MASTER)).json()["groups"][group]
    return (status if scope == "default" else status["scopes"][scope])["windows"][0]


def ask_until_refused(client, key):
    for n in range(200):
        response = ask(client, key)
        if response.status_code != 200:
            return n, response
    raise AssertionError("the budget never ended")


SPOOFS = [
    {"metadata": {"user_api_key_team_id": "team-b", "wiserouter_scope": "team:team-b"}},
    {"metadata": {"user_api_key_auth": {"team_id": "team-b"}}},
    {"litellm_metadata": {"user_api_key_team_id": "team-b", "user_api_key_auth": {"team_id": "team-b"}}},
    {"user": "team-b", "tags": ["team-b"]},
]


def test_teams_of_an_organisation(client, provider):
    """In one story, for the money that is gone stays gone."""
    for spoof in SPOOFS:  # whatever the body says, its own team pays
        assert ask(client, "sk-team-a-ann", **spoof).status_code == 200
    assert own(client, "team:team-b")["spent_usd"] + own(client, "team:team-b")["reserved_usd"] == 0.0
    answered = ask(client, "sk-team-a-bob")
    assert answered.headers["x-wiserouter-model"] in {"small", "large"}
    assert rate(client, "sk-team-b-eve", answered.headers["x-litellm-call-id"]).status_code == 404
    assert rate(client, "sk-team-a-bob", answered.headers["x-wiserouter-decision"]).json()["replaced"] is False

    _, refused = ask_until_refused(client, "sk-team-a-ann")
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "budget_exceeded")
    assert "group 'wise', team:team-a: the budget" in refused.json()["error"]["message"]
    assert int(refused.headers["retry-after"]) > 0
    a = own(client, "team:team-a")
    assert 0.5 * a["amount_usd"] < a["spent_usd"] + a["reserved_usd"] <= a["amount_usd"]

    n, _ = ask_until_refused(client, "sk-team-c-cat")  # not named: a budget of its own
    assert n > 0
    assert own(client, "team:team-c")["spent_usd"] <= 2 * CALL_USD + WORST_USD

    n, refused = ask_until_refused(client, "sk-team-b-eve")  # rich, but the organisation's money ends
    assert n > 0
    whole = own(client, "default")
    assert whole["spent_usd"] <= whole["amount_usd"]
    teams = sum(own(client, f"team:team-{name}")["spent_usd"] for name in "abc")
    assert teams == pytest.approx(whole["spent_usd"])
    assert own(client, "team:team-b")["spent_usd"] < 0.1 * own(client, "team:team-b")["amount_usd"]
    assert client.callback.groups["wise"].faults == {}


def test_a_listed_tag_of_the_request_pays_where_that_is_allowed(client, provider):
    ask(client, "sk-user-a", "tagged", metadata={"tags": ["gold"]})
    ask(client, "sk-user-a", "tagged", metadata={"tags": ["else"]})
    ask(client, "sk-team-a-ann", "tagged", metadata={"tags": ["gold"]})  # her key has a tag of its own
    assert router(client, "tagged").status("tag:gold").windows[0].spent_usd > 0
    assert router(client, "tagged").status("tag:gold").windows[0].spent_usd == pytest.approx(
        router(client, "tagged").status().spent_usd / 3, abs=2 * CALL_USD
    )


def test_a_caller_without_a_budget_is_forbidden(client, provider):
    assert ask(client, "sk-team-a-ann", "closed").status_code == 200
    refused = ask(client, "sk-team-z-zoe", "closed")
    assert (refused.status_code, "no budget for team 'team-z'" in refused.text) == (403, True)
    assert ask(client, "sk-user-a", "closed").status_code == 403


def test_the_plan_of_a_scope(client):
    def plan(scope):
        query = {"group": "wise", "scope": scope}
        return client.get("/wiserouter/plan", params=query, headers=headers(MASTER))

    assert plan("team:team-b").json()["budget_usd"] < 1_000 * CALL_USD
    assert plan("team:unknown").status_code == 404


def tagged(client):
    return client.get("/wiserouter/status", headers=headers(MASTER)).json()["groups"]["tagged"]


def test_a_store_that_is_gone_is_a_503_that_says_when_to_come_back(client, provider):
    call = ask(client, "sk-user-a", "tagged").headers["x-litellm-call-id"]
    engine = router(client, "tagged")._store._worker.client._engine
    assert tagged(client)["store"]["reachable"]
    engine.down = True
    try:
        late = rate(client, "sk-user-a", call)
        assert (late.status_code, int(late.headers["retry-after"]) > 0) == (503, True)
        spent_usd = tagged(client)["spent_usd"]
        assert ask(client, "sk-user-a", "tagged").status_code == 200  # an expected limit is kept by the worker alone
        status = tagged(client)
        assert (status["store"]["reachable"], status["store"]["waiting"] > 0) == (False, True)
        assert status["spent_usd"] > spent_usd
        assert status["faults"]["uncounted_calls"] == 0
    finally:
        engine.down = False


def test_a_hard_budget_stays_closed_while_its_store_is_gone(client, provider):
    engine = router(client)._store._worker.client._engine
    engine.down = True
    try:
        assert ask(client, "sk-team-d-dan").status_code == 503
    finally:
        engine.down = False


def test_no_request_waited_for_the_store_on_the_event_loop(client):
    for name in ("wise", "tagged"):
        assert router(client, name)._store._worker.client._engine.seen == []
