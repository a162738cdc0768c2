"""The routes of administrators in a whole proxy: budgets change while it serves, and the journal says who did it."""

import secrets

import pytest

from support.groups import fitted
from support.proxies import config_of, in_process, write
from wiserouter.routing.journal_reader import JournalReader

MASTER = f"sk-{secrets.token_hex(16)}"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changes")
    fitted().save(folder / "pair.wise")
    wise = {"budget_usd": 10.0, "requests": 1_000, "artifact": str(folder / "pair.wise"), "seed": 0}
    groups = {
        "wise": {**wise, "journal": str(folder / "wise.jsonl"), "store": f"sqlite:///{folder}/wise.db"},
        "hard": {**wise, "limit": "hard", "cap_output_tokens": 64},
    }
    config = config_of(groups)
    config["litellm_settings"] |= {"disable_aiohttp_transport": True}
    with in_process(write(config, folder), MASTER) as running:
        yield running


@pytest.fixture(autouse=True)
def clean_litellm():
    """Keep the callbacks: the proxy of this module needs them."""


BODIES = {
    "/wiserouter/budget": {"paused": True},
    "/wiserouter/model": {"model": "large", "retired": True},
    "/wiserouter/mode": {"mode": "shadow"},
}


def headers(key=MASTER):
    return {"Authorization": f"Bearer {key}"}


def order(client, body, key=MASTER, path="/wiserouter/budget", **extra):
    return client.post(path, json={"group": "wise", **body}, headers={**headers(key), **extra})


def ask(client, model="wise"):
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    return client.post("/v1/chat/completions", json=body, headers=headers("sk-user-a"))


def lines(client):
    journal = client.callback.groups["wise"].router.journal
    journal.flush()
    return [line for line in JournalReader(journal.path) if line["event"] == "change"]


def test_an_amount_is_changed_and_the_journal_says_by_whom(client):
    answer = order(client, {"amount_usd": 12.5, "requests": 2_000})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["before"]["amount_usd"], found["after"]["amount_usd"], found["replayed"]) == (10.0, 12.5, False)
    status = client.get("/wiserouter/status", headers=headers()).json()["groups"]["wise"]
    assert (status["amount_usd"], status["horizon"]) == (12.5, 2_000)
    line = lines(client)[-1]
    assert (line["what"], line["scope"], line["by"][:4]) == ("budget", "default", "key:")
    assert (line["before"], line["after"]) == (found["before"], found["after"])
    assert MASTER not in client.callback.groups["wise"].router.journal.path.read_text()
    order(client, {"amount_usd": 10.0, "requests": 1_000})


def test_a_paused_group_is_a_429_with_the_reason_and_the_time(client, provider):
    assert order(client, {"paused": True, "reason": "incident 12", "pause_s": 60.0}).status_code == 200
    refused = ask(client)
    assert refused.status_code == 429, refused.text
    assert "is paused by an administrator (incident 12): it goes on at" in refused.text
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert order(client, {"paused": False}).status_code == 200
    assert ask(client).status_code == 200


def test_a_key_changes_once(client):
    key = {"Idempotency-Key": secrets.token_hex(8)}
    first, again = (order(client, {"add_usd": 1.0}, **key).json() for _ in range(2))
    assert (first["replayed"], again) == (False, {**first, "replayed": True})
    assert order(client, {"add_usd": 2.0}, **key).status_code == 422
    assert client.callback.groups["wise"].router.budget().amount_usd == first["after"]["amount_usd"]
    assert sum(line["after"] == first["after"] for line in lines(client)) == 1


def test_a_change_that_breaks_a_hard_limit_is_a_conflict_with_the_figures(client):
    client.callback.groups["hard"].router._store.spend("default", 4.0)
    refused = order(client, {"group": "hard", "amount_usd": 3.0})
    assert refused.status_code == 409
    assert refused.json()["detail"]["figures"]["spent_usd"] == 4.0
    assert order(client, {"group": "hard", "amount_usd": 4.0}).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"group": "none", "amount_usd": 1.0}, 404),
        ({"scope": "team:none", "amount_usd": 1.0}, 404),
        ({}, 422),
        ({"amount_usd": 1.0, "add_usd": 1.0}, 422),
        ({"amount_usd": -1.0}, 422),
        ({"amount_usd": "1"}, 422),
        ({"amount_usd": 1.0, "amount": 1.0}, 422),
        ({"add_usd": 1.0, "windows": 1_000}, 422),
        ({"paused": True, "reason": "x" * 201}, 422),
        ({"end": True, "amount_usd": 1.0}, 422),
        ({"every": "day", "amount_usd": 1.0}, 422),
        ({"limit": "hard"}, 409),
    ],
)
def test_what_makes_no_sense_is_refused(client, body, status):
    assert order(client, body).status_code == status


def test_all_routes_that_change_or_show_budgets_are_for_administrators(client):
    paths = client.get("/openapi.json").json()["paths"]
    ours = {
        (path, method.upper()) for path, item in paths.items() if path.startswith("/wiserouter/") for method in item
    }
    open_to_all = {("/wiserouter/feedback", "POST"), ("/wiserouter/end", "POST")}
    assert open_to_all < ours
    assert ("/wiserouter/budget", "POST") in ours
    for path, method in ours - open_to_all:
        asked = {"json": {"group": "wise", **BODIES[path]}} if method == "POST" else {"params": {"group": "wise"}}
        url = path.replace("{call}", "x")
        for key in ("sk-user-a", "sk-unknown"):
            response = client.request(method, url, headers=headers(key), **asked)
            assert response.status_code in {401, 403}, (method, path, key, response.text)


def models(client):
    return client.get("/wiserouter/status", headers=headers()).json()["groups"]["wise"]["models"]


def test_a_model_is_retired_and_brought_back(client, provider):
    assert ask(client).headers["x-wiserouter-model"] == "large"
    assert order(client, {"model": "large", "retired": True}, path="/wiserouter/model").status_code == 200
    assert ask(client).headers["x-wiserouter-model"] == "small"
    assert models(client)["large"]["retired"]
    last = order(client, {"model": "small", "retired": True}, path="/wiserouter/model")
    assert (last.status_code, "not retired" in last.text) == (422, True)
    assert order(client, {"model": "large", "retired": None}, path="/wiserouter/model").status_code == 200
    assert ask(client).headers["x-wiserouter-model"] == "large"
    assert lines(client)[-1]["after"]["retired"] is False


def test_a_model_has_a_share_and_a_price(client, provider):
    price = models(client)["large"]["price_usd_per_token"]
    answer = order(
        client,
        {"model": "large", "max_share": 0.5, "price": {"input": 5e-4, "output": 1e-3}},
        path="/wiserouter/model",
    )
    assert answer.status_code == 200, answer.text
    served = [ask(client).headers["x-wiserouter-model"] for _ in range(6)]
    assert 1 <= served.count("large") <= 4  # half of them, and one more
    shown = models(client)["large"]
    assert (shown["max_share"], shown["price_source"]) == (0.5, "administrator")
    assert shown["price_usd_per_token"]["input"] == 5e-4
    taken_back = order(client, {"model": "large", "max_share": None, "price": None}, path="/wiserouter/model")
    assert taken_back.json()["after"]["max_share"] is None
    assert models(client)["large"]["price_usd_per_token"] == price


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "none", "retired": True}, 404),
        ({"model": "large"}, 422),
        ({"model": "large", "max_share": 1.5}, 422),
        ({"model": "large", "price": {"input": -1.0, "output": 0.0}}, 422),
        ({"model": "large", "price": {"input": 1e-6, "output": 0.0, "typo": 1}}, 422),
        ({"model": "large", "price": {"input": 0.15, "output": 0.6}}, 422),
    ],
)
def test_an_order_for_a_model_that_makes_no_sense_is_refused(client, body, status):
    assert order(client, body, path="/wiserouter/model").status_code == status


def test_a_group_observes_for_a_while(client, provider):
    assert "x-wiserouter-would-be" not in ask(client).headers
    answer = order(client, {"mode": "shadow"}, path="/wiserouter/mode")
    assert (answer.status_code, answer.json()["after"]) == (200, {"mode": "shadow", "share": 0.0})
    assert "x-wiserouter-would-be" in ask(client).headers
    assert lines(client)[-1]["what"] == "mode"
    assert order(client, {"mode": None}, path="/wiserouter/mode").status_code == 200
    assert "x-wiserouter-would-be" not in ask(client).headers
    assert order(client, {"mode": "route", "share": 0.5}, path="/wiserouter/mode").status_code == 422
    assert order(client, {"mode": "off"}, path="/wiserouter/mode").status_code == 422
