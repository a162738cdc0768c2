"""The whole proxy in this process: routes, keys, headers and every surface through `wiserouter_litellm.callback`."""

import secrets
import time
import uuid

import litellm
import pytest
import respx
from litellm.integrations.custom_logger import CustomLogger

from support.groups import asked, fitted
from support.providers import URL, cost_usd, deployment, failing
from support.proxies import config_of, in_process, write
from wiserouter.routing.journal_reader import JournalReader, find_explanation

MASTER = f"sk-{secrets.token_hex(16)}"
JSON = {"content-type": "application/json"}


def headers(key=MASTER):
    return {"Authorization": f"Bearer {key}", **JSON}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxy")
    fitted().save(folder / "pair.wise")
    wise = {"budget_usd": 10.0, "requests": 1_000, "artifact": str(folder / "pair.wise"), "seed": 0}
    without_requests = {key: value for key, value in wise.items() if key != "requests"}
    groups = {
        "wise": wise,
        "hard": {**wise, "limit": "hard", "cap_output_tokens": 64},
        "poor": {**without_requests, "budget_usd": 1e-9, "every": "1d", "limit": "hard"},
        "thrifty": {**wise, "budget_usd": 1e-9, "on_exhausted": "cheapest"},
        "quick": {
            **wise,
            "feedback_ttl_s": 1e9,
            "journal": str(folder / "quick.jsonl"),
            "label_share": 1.0,
            "explore_share": 1e-9,
        },
    }
    config = config_of(groups, fallbacks=[{"hard": ["rescue"]}])
    config["litellm_settings"] |= {"cache": True, "cache_params": {"type": "local"}, "disable_aiohttp_transport": True}
    with in_process(write(config, folder), MASTER) as running:
        yield running


@pytest.fixture(autouse=True)
def clean_litellm():
    """Keep the callbacks: the proxy of this module needs them."""


def post(client, path, body, key=MASTER, **extra):
    return client.post(path, json=body, headers={**headers(key), **extra})


def ask(client, model="wise", key=MASTER, **body):
    message = {"role": "user", "content": f"question {uuid.uuid4()}"}
    return post(client, "/v1/chat/completions", {"model": model, "messages": [message], **body}, key)


def router(client, group="wise"):
    return client.callback.groups[group].router


def wait(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


SURFACES = {
    "chat": ("/v1/chat/completions", lambda text: {"messages": [{"role": "user", "content": text}]}),
    "text": ("/v1/completions", lambda text: {"prompt": text}),
    "responses": ("/v1/responses", lambda text: {"input": text}),
    "messages": ("/v1/messages", lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 50}),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_is_routed_settled_labelled_and_rated_by_a_plain_key(client, provider, surface):
    path, body = SURFACES[surface]
    before = router(client).status()
    labels = router(client).estimates.labels.sum()
    response = post(client, path, {"model": "wise", **body(f"q {uuid.uuid4()}")}, "sk-user-a")
    assert response.status_code == 200, response.text
    assert asked(provider) == ["large"]
    assert response.headers["x-wiserouter-model"] == "large"
    assert response.headers["x-wiserouter-context"] == "0"
    assert len(response.headers["x-wiserouter-decision"]) == 32
    call = response.headers["x-litellm-call-id"]
    rated = post(client, "/wiserouter/feedback", {"id": call, "score": 0.25}, "sk-user-a")
    assert (rated.status_code, rated.json()) == (200, {"status": "recorded", "replaced": False})
    assert router(client).estimates.labels.sum() == labels + 1
    wait(lambda: router(client).status().charged == before.charged + 1)
    assert router(client).status().spent_usd - before.spent_usd == pytest.approx(cost_usd("large"))
    assert router(client).status().in_flight == 0


@pytest.mark.parametrize("surface", SURFACES)
def test_a_stream_has_the_headers_and_its_true_cost(client, provider, surface):
    path, body = SURFACES[surface]
    before = router(client).status()
    response = post(client, path, {"model": "wise", "stream": True, **body(f"q {uuid.uuid4()}")}, "sk-user-a")
    assert response.headers["x-wiserouter-model"] == "large"
    # LiteLLM 1.109 asks a model that it does not know for a whole response, and cuts that into pieces
    assert response.text.count("word ") >= 5 or "swer" in response.text, response.text
    rated = post(
        client, "/wiserouter/feedback", {"id": response.headers["x-litellm-call-id"], "score": 1.0}, "sk-user-a"
    )
    assert rated.status_code == 200
    wait(lambda: router(client).status().charged == before.charged + 1)
    spent = router(client).status().spent_usd - before.spent_usd
    if surface == "text":  # LiteLLM asks for no usage on this surface: question and answer are counted here
        assert cost_usd("large", (8, 5)) < spent < cost_usd("large", (80, 20))
    else:
        assert spent == pytest.approx(cost_usd("large"))


@pytest.mark.parametrize(
    ("model", "named", "settings", "status", "sent"),
    [
        pytest.param("hard", "hard", {}, 400, [], id="by-name"),
        pytest.param("hard-large", "hard", {}, 400, [], id="by-id"),
        pytest.param("own", "hard", {"fallbacks": [{"own": ["hard"]}]}, 500, ["large"], id="fallback"),
        pytest.param("own", "*", {"fallbacks": [{"own": ["hard"]}]}, 500, ["large"], id="fallback-to-a-wildcard"),
    ],
)
def test_no_call_goes_to_a_group_by_a_router_that_the_client_brings(
    client, monkeypatch, model, named, settings, status, sent
):
    from litellm.proxy.proxy_server import general_settings

    monkeypatch.setitem(general_settings, "allow_client_side_credentials", True)
    before = router(client, "hard").status(), router(client, "hard").pool
    free = {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0}
    own = [deployment("large", "own", info={"id": "own"}), deployment("free", named, info={"id": "hard-large"}, **free)]
    with respx.mock(assert_all_called=False) as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large"))
        response = ask(client, model, key="sk-user-a", user_config={"model_list": own, "num_retries": 0, **settings})
        assert asked(mock) == sent
    assert response.status_code == status
    assert "user_config must send no call to it" in response.json()["error"]["message"]
    assert (router(client, "hard").status(), router(client, "hard").pool) == before


def test_a_client_calls_other_models_by_a_router_of_its_own(client, provider, monkeypatch):
    from litellm.proxy.proxy_server import general_settings

    monkeypatch.setitem(general_settings, "allow_client_side_credentials", True)
    config = {"model_list": [deployment("free", "*", info={"id": "own"})]}
    assert ask(client, "own", key="sk-user-a", user_config=config).status_code == 200
    assert asked(provider) == ["free"]


def test_a_retry_is_answered_by_another_model_and_the_header_says_so(client):
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("large"))
        response = ask(client)
        assert asked(mock)[0] == "large"
    assert response.headers["x-wiserouter-model"] == "small"
    wait(lambda: router(client).status().in_flight == 0)


def test_an_answer_of_the_cache_for_a_fallback_costs_nothing(client):
    before = router(client, "hard").status()
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("small", "large", status=429))
        for n in (1, 2):
            message = {"role": "user", "content": "the same question"}
            response = post(client, "/v1/chat/completions", {"model": "hard", "messages": [message]})
            assert response.status_code == 200, response.text
            wait(lambda n=n: router(client, "hard").status().charged == before.charged + n)
        assert asked(mock).count("rescue") == 1
    after = router(client, "hard").status()
    assert (after.in_flight, after.presumed) == (0, before.presumed)
    assert after.spent_usd - before.spent_usd == pytest.approx(cost_usd("small"))  # the prices of the rescue


@pytest.mark.parametrize("surface", SURFACES)
def test_a_hard_budget_takes_every_surface_beside_other_callbacks(client, provider, monkeypatch, surface):
    class Other(CustomLogger):
        async def async_pre_call_deployment_hook(self, kwargs, call_type):
            return None

    monkeypatch.setattr(litellm, "callbacks", [*litellm.callbacks, Other()])
    path, body = SURFACES[surface]
    before = router(client, "hard").status()
    response = post(client, path, {"model": "hard", **body(f"q {uuid.uuid4()}")})
    assert response.status_code == 200, response.text
    wait(lambda: router(client, "hard").status().charged == before.charged + 1)


@pytest.mark.parametrize("surface", SURFACES)
def test_a_call_that_every_model_refuses_owes_nothing(client, surface):
    path, body = SURFACES[surface]
    before = router(client).status()
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("small", "large", status=429))
        response = post(client, path, {"model": "wise", **body(f"q {uuid.uuid4()}")})
    assert response.status_code == 429
    assert "x-wiserouter-model" not in response.headers or surface
    wait(lambda: router(client).status().in_flight == 0)
    after = router(client).status()
    assert (after.spent_usd, after.decided) == (before.spent_usd, before.decided)


def test_a_group_fallback_is_paid_and_labelled(client):
    before = router(client, "hard").status().spent_usd
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("small", "large", status=429))
        response = ask(client, "hard", "sk-user-a")
        assert asked(mock)[-1] == "rescue"
    assert response.status_code == 200
    assert response.headers["x-wiserouter-model"] == "openai/rescue"
    wait(lambda: router(client, "hard").status().in_flight == 0)
    assert router(client, "hard").status().spent_usd - before == pytest.approx(20 * 1e-6 + 50 * 2e-6)
    for id_ in (response.headers["x-litellm-call-id"], response.headers["x-wiserouter-decision"]):
        rated = post(client, "/wiserouter/feedback", {"id": id_, "score": 1.0}, "sk-user-a")
        assert rated.status_code == 200


def test_a_cached_answer_is_free_and_cannot_be_rated(client, provider):
    body = {"model": "wise", "messages": [{"role": "user", "content": f"cache me {uuid.uuid4()}"}]}
    before = router(client).status()
    first = post(client, "/v1/chat/completions", body)
    wait(lambda: router(client).status().charged == before.charged + 1)
    time.sleep(0.2)
    second = post(client, "/v1/chat/completions", body)
    wait(lambda: router(client).status().charged == before.charged + 2)
    assert len(asked(provider)) == 1
    assert router(client).status().spent_usd - before.spent_usd == pytest.approx(cost_usd("large"))
    assert post(client, "/wiserouter/feedback", {"id": first.headers["x-litellm-call-id"], "score": 1.0}).is_success
    wait(
        lambda: (
            post(client, "/wiserouter/feedback", {"id": second.headers["x-litellm-call-id"], "score": 1.0}).status_code
            == 404
        )
    )


def test_feedback_twice_replaces(client, provider):
    call = ask(client, key="sk-user-a").headers["x-litellm-call-id"]
    before = router(client).estimates.labels.sum()
    for score, replaced in ((0.0, False), (1.0, True), (0.5, True)):
        response = post(client, "/wiserouter/feedback", {"id": call, "score": score, "comment": "hm"}, "sk-user-a")
        assert response.json() == {"status": "recorded", "replaced": replaced}
    assert router(client).estimates.labels.sum() == before + 1


def test_feedback_by_response_id(client, provider):
    response = ask(client, key="sk-user-b")
    wait(
        lambda: (
            post(client, "/wiserouter/feedback", {"id": response.json()["id"], "score": 1.0}, "sk-user-b").status_code
            == 200
        )
    )


def test_feedback_for_another_keys_call_is_refused(client, provider):
    call = ask(client, key="sk-user-a").headers["x-litellm-call-id"]
    before = router(client).estimates.labels.sum()
    stolen = post(client, "/wiserouter/feedback", {"id": call, "score": 0.0}, "sk-user-b")
    assert stolen.status_code == 404
    assert call in stolen.json()["detail"]
    assert router(client).estimates.labels.sum() == before
    assert post(client, "/wiserouter/feedback", {"id": call, "score": 0.0}).status_code == 200  # the administrator


def test_feedback_by_decision_id_is_its_callers_and_the_administrators(client, provider):
    decision = ask(client, key="sk-user-a").headers["x-wiserouter-decision"]
    codes = [
        post(client, "/wiserouter/feedback", {"id": decision, "score": 1.0}, key).status_code
        for key in ("sk-user-b", "sk-user-a", MASTER)
    ]
    assert codes == [404, 200, 200]


def test_feedback_for_a_released_call_is_a_conflict(client, provider):
    decision = router(client).decide(context=0)
    router(client).release(decision)
    refused = post(client, "/wiserouter/feedback", {"id": decision.id, "score": 1.0})
    assert (refused.status_code, "the call failed" in refused.text) == (409, True)


def test_an_administrator_cannot_rate_by_an_id_that_a_client_chose(client, provider):
    chosen = f"theirs-{uuid.uuid4()}"
    message = {"model": "wise", "messages": [{"role": "user", "content": chosen}]}
    post(client, "/v1/chat/completions", message, "sk-user-a", **{"x-litellm-call-id": chosen})
    assert post(client, "/wiserouter/feedback", {"id": chosen, "score": 1.0}).status_code == 404


def test_a_chosen_call_id_does_not_reach_another_keys_call(client, provider):
    chosen = f"mine-{uuid.uuid4()}"
    message = {"model": "wise", "messages": [{"role": "user", "content": chosen}]}
    post(client, "/v1/chat/completions", message, "sk-user-a", **{"x-litellm-call-id": chosen})
    assert post(client, "/wiserouter/feedback", {"id": chosen, "score": 1.0}, "sk-user-b").status_code == 404
    assert post(client, "/wiserouter/feedback", {"id": chosen, "score": 1.0}, "sk-user-a").status_code == 200


def test_late_feedback_is_refused(client, provider, monkeypatch):
    call = ask(client, "quick", "sk-user-a").headers["x-litellm-call-id"]
    wait(lambda: router(client, "quick").status().in_flight == 0)
    now = time.time()
    monkeypatch.setattr(router(client, "quick")._store, "now", lambda: now + 2e9)
    ask(client, "quick")
    assert post(client, "/wiserouter/feedback", {"id": call, "score": 1.0}, "sk-user-a").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"id": "x", "score": 1.5},
        {"id": "x", "score": -0.1},
        {"id": "x", "score": "0.5"},
        {"id": "x", "score": True},
        {"id": "x"},
        {"score": 0.5},
        {"id": "", "score": 0.5},
        {"id": "x" * 1_025, "score": 0.5},
        {"id": "x", "score": 0.5, "extra": 1},
    ],
)
def test_bad_feedback_is_unprocessable(client, body):
    assert post(client, "/wiserouter/feedback", body).status_code == 422


def test_unknown_feedback_is_not_found(client):
    assert post(client, "/wiserouter/feedback", {"id": "nope", "score": 0.5}).status_code == 404


def test_the_feedback_route_is_open_to_virtual_keys_and_the_others_are_not(client):
    """What LiteLLM checks for keys of its own data base, which a test has not."""
    from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth
    from litellm.proxy.auth.route_checks import RouteChecks
    from starlette.requests import Request

    def check(route):
        request = Request({"type": "http", "method": "POST", "path": route, "headers": [], "query_string": b""})
        RouteChecks.non_proxy_admin_allowed_routes_check(
            user_obj=None,
            _user_role=LitellmUserRoles.INTERNAL_USER,
            route=route,
            request=request,
            valid_token=UserAPIKeyAuth(api_key="sk-user-a", user_role=LitellmUserRoles.INTERNAL_USER),
            request_data={},
        )

    check("/wiserouter/feedback")
    with pytest.raises(Exception, match=r"(?i)only proxy admin|not allowed"):
        check("/wiserouter/status")


def test_a_decision_is_explained_to_administrators(client, provider):
    response = ask(client, "quick", "sk-user-a")
    decision, call = (response.headers[name] for name in ("x-wiserouter-decision", "x-litellm-call-id"))
    wait(lambda: router(client, "quick").status().in_flight == 0)
    why = client.get(f"/wiserouter/explain/{decision}", headers=headers()).json()
    assert (why["group"], why["id"], why["model"], why["state"]) == ("quick", decision, "large", "charged")
    chances = {model["name"]: model["probability"] for model in why["models"]}
    assert chances == pytest.approx({"small": 0.0, "large": 1.0}, abs=1e-6)
    assert client.get(f"/wiserouter/explain/{call}", headers=headers()).json() == why
    unknown = client.get("/wiserouter/explain/unknown", headers=headers())
    assert (unknown.status_code, "unknown" in unknown.text) == (404, True)


def test_feedback_is_asked_for_and_the_journal_holds_no_prompt_and_no_key(client, provider):
    secret = f"canary {uuid.uuid4()}"
    body = {"model": "quick", "messages": [{"role": "user", "content": secret}]}
    asked_for = post(client, "/v1/chat/completions", body, "sk-user-a")
    assert asked_for.headers["x-wiserouter-ask-feedback"] == "true"
    assert "x-wiserouter-ask-feedback" not in ask(client).headers
    wait(lambda: router(client, "quick").status().in_flight == 0)
    journal = router(client, "quick").journal
    journal.flush()
    found = find_explanation(JournalReader(journal.path), asked_for.headers["x-wiserouter-decision"])
    assert (found["model"], found["state"], found["ask_feedback"]) == ("large", "charged", True)
    written = journal.path.read_text()
    assert secret not in written
    assert "sk-user-a" not in written


@pytest.mark.parametrize(
    "path",
    ["/wiserouter/status", "/wiserouter/plan?group=wise", "/wiserouter/savings?since=1d", "/wiserouter/explain/x"],
)
def test_budgets_are_for_administrators(client, path):
    assert client.get(path, headers=headers("sk-user-a")).status_code in {401, 403}
    assert client.get(path, headers=headers("sk-unknown")).status_code in {401, 403}
    assert client.get(path, headers=headers()).status_code == (404 if path.endswith("/x") else 200)


def test_the_status_tells_all(client, provider):
    ask(client)
    groups = client.get("/wiserouter/status", headers=headers()).json()["groups"]
    assert set(groups) == {"wise", "hard", "poor", "thrifty", "quick"}
    wise = groups["wise"]
    assert wise["amount_usd"] == 10.0
    assert wise["spent_usd"] + wise["reserved_usd"] + wise["left_usd"] == pytest.approx(10.0)
    assert wise["shadow_price"] is not None
    assert wise["mix"] == pytest.approx({"small": 0.0, "large": 1.0})
    assert wise["models"]["large"]["calls"] >= 50
    assert wise["models"]["large"]["deployments"] == 1
    assert wise["models"]["large"]["price_source"] == "deployment"
    assert wise["models"]["large"]["price_usd_per_token"]["input"] == 1e-5
    assert groups["poor"]["renews_at"] > time.time()
    assert {name: group["faults"]["uncounted_calls"] for name, group in groups.items()} == dict.fromkeys(groups, 0)
    assert (wise["presumed"], wise["presumed_usd"]) == (
        router(client).status().presumed,
        router(client).status().presumed_usd,
    )


def test_what_is_presumed_is_in_the_status_and_in_the_explanation(client):
    quick = router(client, "quick")
    decision = quick.decide(context=0)
    quick.presume(decision)
    try:
        found = client.get("/wiserouter/status", headers=headers()).json()["groups"]["quick"]
        assert (found["presumed"], found["presumed_usd"]) == (1, pytest.approx(decision.expected_cost_usd))
        assert [window["presumed_usd"] for window in found["windows"]] == [found["presumed_usd"]]
        why = client.get(f"/wiserouter/explain/{decision.id}", headers=headers()).json()
        assert (why["state"], why["cost_usd"]) == ("presumed", decision.expected_cost_usd)
    finally:
        quick.release(decision)


def test_a_deployment_that_the_proxy_has_removed_is_known(client):
    registry = client.callback.groups["wise"].registry
    assert registry.is_served("small")
    assert not registry.is_served("removed")


def test_savings_are_those_of_the_account(client, provider):
    def savings(**query):
        return client.get("/wiserouter/savings", params=query, headers=headers())

    for _ in range(2):
        assert ask(client, "thrifty").status_code == 200
    found = savings(since="2d", group="thrifty", before="large=1,small=1").json()["groups"]
    status = client.get("/wiserouter/status", headers=headers()).json()["groups"]["thrifty"]
    thrifty = found["thrifty"]
    assert list(found) == ["thrifty"]
    assert thrifty["actual"]["cost_usd"] == pytest.approx(status["spent_usd"] - status["presumed_usd"], abs=1e-9)
    assert thrifty["coverage"]["compared_calls"] == thrifty["actual"]["calls"] >= 2
    assert thrifty["against"]["cheapest"]["models"] == {"small": 1.0}
    assert thrifty["against"]["best"]["saved_usd"] > 0.0
    always = {name: one["cost_usd"] for name, one in thrifty["models"].items()}
    assert thrifty["against"]["before"]["cost_usd"] == pytest.approx(sum(always.values()) / 2)
    assert set(savings().json()["groups"]) == {"wise", "hard", "poor", "thrifty", "quick"}
    assert [savings(**wrong).status_code for wrong in ({"group": "x"}, {"since": "x"}, {"before": "x"})] == [
        404,
        422,
        422,
    ]


def test_the_plan_answers_what_if(client):
    def plan(**query):
        return client.get("/wiserouter/plan", params={"group": "wise", **query}, headers=headers()).json()

    poor, rich = plan(budget_usd=cost_usd("small") * 100, requests=100), plan(budget_usd=1.0, requests=100)
    assert poor["mix"]["small"] > 0.9
    assert rich["mix"]["large"] == 1.0
    assert poor["expected_reward"] < rich["expected_reward"]
    assert rich["shadow_price"] == 0.0
    assert not plan(budget_usd=0.0)["feasible"]
    assert client.get("/wiserouter/plan?group=nope", headers=headers()).status_code == 404
    assert client.get("/wiserouter/plan?group=wise&budget_usd=-1", headers=headers()).status_code == 422


def test_an_exhausted_budget_is_a_429_that_says_which_and_until_when(client, provider):
    response = ask(client, "poor")
    assert response.status_code == 429
    error = response.json()["error"]
    assert error["type"] == "budget_exceeded"
    assert error["code"] == "429"
    assert "group 'poor': the budget of 1e-09 USD every 1d does not pay for the worst case of this" in error["message"]
    assert "ask an administrator to raise the budget; it renews at" in error["message"]
    assert "set_budget" not in error["message"]
    assert 0 < int(response.headers["retry-after"]) <= 86_400
    assert asked(provider) == []


def test_an_exhausted_budget_can_go_on_with_the_cheapest(client, provider):
    assert ask(client, "thrifty").headers["x-wiserouter-model"] == "small"


def test_neither_prompts_nor_keys_reach_the_log(client, caplog):
    caplog.set_level("DEBUG", logger="wiserouter")
    secret = f"a secret question {uuid.uuid4()}"
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=failing("small", "large"))
        post(client, "/v1/chat/completions", {"model": "wise", "messages": [{"role": "user", "content": secret + "!"}]})
    ours = [r.getMessage() + (r.exc_text or "") for r in caplog.records if r.name.startswith("wiserouter")]
    status = client.get("/wiserouter/status", headers=headers()).text
    for text in [*ours, status]:
        assert secret not in text
        assert MASTER not in text
        assert "sk-provider" not in text


def test_answer_is_what_the_provider_said(client, provider):
    assert ask(client).json()["choices"][0]["message"]["content"] == "an answer"
