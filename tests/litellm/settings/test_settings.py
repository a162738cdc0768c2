"""Errors of settings name the key, the rule and the value, and stop the boot."""

import litellm
import pytest

import wiserouter_litellm
from support.providers import deployment
from wiserouter_litellm import SettingsError
from wiserouter_litellm.proxy import build_callback, configured_deployments
from wiserouter_litellm.settings.proxy_settings import settings_of, store_of

WISE = {"budget_usd": 5.0, "requests": 100}


@pytest.mark.parametrize(
    ("block", "key", "message"),
    [
        (None, "", "is missing: add `callback_settings"),
        ({}, "", "is missing"),
        ({"group": {}}, "", "unknown key 'group', did you mean groups"),
        ({"groups": {}}, ".groups", "at least 1 item"),
        ({"groups": {"wise": {}}}, ".groups.wise.budget_usd", "is required$"),
        ({"groups": {"wise": {**WISE, "budget_usd": None}}}, ".groups.wise.budget_usd", "needs a value: .* variable"),
        ({"groups": {"wise": {**WISE, "run_budget_usd": None}}}, ".groups.wise.run_budget_usd", "needs a value"),
        ({"groups": {"wise": WISE}, "alerts": None}, ".alerts", "needs a value"),
        ({"groups": {"wise": {**WISE, "budget_usd": -5}}}, ".groups.wise.budget_usd", "greater than 0, got -5"),
        ({"groups": {"wise": {**WISE, "budget_usd": 0}}}, ".groups.wise.budget_usd", "greater than 0, got 0$"),
        ({"groups": {"wise": {**WISE, "budget_usd": "0"}}}, ".groups.wise.budget_usd", "greater than 0, got '0'"),
        ({"groups": {"wise": {**WISE, "budget_usd": "a lot"}}}, ".groups.wise.budget_usd", "valid number.*got 'a lot'"),
        ({"groups": {"wise": {"budget": 5}}}, ".groups.wise", "unknown key 'budget', did you mean budget_usd\\?$"),
        (
            {"groups": {"wise": {**WISE, "limt": "hard", "colour": "red"}}},
            ".groups.wise",
            "unknown key 'limt', did you mean limit\\?; unknown key 'colour', the keys here are budget_usd, requests, ",
        ),
        (
            {"groups": {"wise": {**WISE, "scopes": {"by": "team", "budgets": {"a": {"budget_us": 1}}}}}},
            ".groups.wise.scopes.budgets.a",
            "unknown key 'budget_us', did you mean budget_usd",
        ),
        (
            {"groups": {"wise": {**WISE, "prices": {"m": {"input": 1, "outputs": 2}}}}},
            ".groups.wise.prices.m",
            "unknown key 'outputs', did you mean output\\?",
        ),
        (
            {"groups": {"wise": {**WISE, "prices": {"m": {"input": 0.15, "output": 0.6}}}}},
            ".groups.wise.prices.m.input",
            "a price must be at most 0.001 USD per token, got 0.15, .* give 1.5e-07",
        ),
        ({"groups": {"wise": {**WISE, "limit": "soft"}}}, ".groups.wise.limit", "'expected' or 'hard', got 'soft'"),
        ({"groups": {"wise": {"budget_usd": 5}}}, ".groups.wise", r"needs requests \(how many .*\) or every"),
        ({"groups": {"wise": {**WISE, "within": [{"budget_usd": 9}]}}}, ".groups.wise.within.0", "needs requests"),
        ({"groups": {"wise": {**WISE, "priors": {"gpt-mini": 55}}}}, ".groups.wise.priors.gpt-mini", "to 1, got 55$"),
        ({"groups": {"wise": {**WISE, "priors": ""}}}, ".groups.wise.priors", "at least 1 character, got ''$"),
        ({"groups": {"wise": {**WISE, "every": "year"}}}, ".groups.wise", "every must be a number and s, m, h"),
        (
            {"groups": {"wise": {**WISE, "within": [{"budget_usd": -1, "every": "day"}]}}},
            ".groups.wise.within.0.budget_usd",
            "greater than 0, got -1",
        ),
        ({"groups": {"wise": {**WISE, "within": [WISE]}}}, ".groups.wise", "must renew differently"),
        ({"groups": {"wise": {**WISE, "rollover": True}}}, ".groups.wise", "rollover needs every"),
        (
            {"groups": {"wise": {**WISE, "encoder": "litellm/e", "contexts": 1}}},
            ".groups.wise",
            "encoder needs several",
        ),
        (
            {"groups": {"wise": {**WISE, "artifact": "a.wise", "contexts": 8}}},
            ".groups.wise",
            "contexts is for",
        ),
        (
            {"groups": {"wise": {**WISE, "explore_requests": 9, "contexts": 8}}},
            ".groups.wise",
            "contexts must be 1",
        ),
        ({"groups": {"wise": {**WISE, "contexts": 0}}}, ".groups.wise.contexts", "greater than or equal to 1"),
        ({"groups": {"wise": {**WISE, "requests": 10**400}}}, ".groups.wise.requests", "less than or equal to"),
        ({"groups": {"wise": {**WISE, "artifact": "a\0.wise"}}}, ".groups.wise.artifact", "match pattern"),
        ({"groups": {"wise": {**WISE, "journal": "\0"}}}, ".groups.wise.journal", "match pattern"),
        ({"groups": {"wise": {**WISE, "cap_output_tokens": 0}}}, ".groups.wise.cap_output_tokens", "got 0"),
        ({"groups": {"wise": {**WISE, "seed": -1}}}, ".groups.wise.seed", "greater than or equal to 0, got -1"),
        ({"groups": {"wise": {**WISE, "label_share": 0}}}, ".groups.wise.label_share", "greater than 0, got 0"),
        ({"groups": {"wise": {**WISE, "explore_share": 2}}}, ".groups.wise.explore_share", "equal to 1, got 2"),
        (
            {"groups": {"wise": {**WISE, "journal": "j.jsonl"}, "two": {**WISE, "journal": "j.jsonl"}}},
            "",
            "journal must be another file in each group",
        ),
        ({"groups": {"wise": {**WISE, "scopes": {"by": "team"}}}}, ".groups.wise.scopes", "needs budgets, or others"),
        (
            {"groups": {"wise": {**WISE, "scopes": {"by": "colour", "others": "refuse"}}}},
            ".groups.wise.scopes.by",
            "match pattern.*got 'colour'",
        ),
        (
            {"groups": {"wise": {**WISE, "scopes": {"by": "tag", "others": "ignore"}}}},
            ".groups.wise.scopes.others",
            "'shared' or 'refuse', got 'ignore'",
        ),
        (
            {"groups": {"wise": {**WISE, "scopes": {"by": "tag", "others": {"budget_usd": -1, "every": "day"}}}}},
            ".groups.wise.scopes.others.budget_usd",
            "greater than 0, got -1",
        ),
        (
            {"groups": {"wise": {**WISE, "scopes": {"by": "team", "budgets": {"a": {"budget_usd": 1}}}}}},
            ".groups.wise.scopes.budgets.a",
            "needs requests",
        ),
        (
            {"groups": {"wise": {**WISE, "scopes": {"by": "team", "others": WISE, "from_request": True}}}},
            ".groups.wise.scopes",
            "from_request needs by: tag or metadata",
        ),
        (
            {"groups": {name: {**WISE, "store": "sqlite:///b.db"} for name in ("wise", "two")}},
            "",
            "store must differ between groups",
        ),
        (
            {"groups": {name: {**WISE, "store": "redis://h?name=x"} for name in ("wise", "two")}},
            "",
            "store must differ between groups",
        ),
        ({"groups": {"wise": {**WISE, "unit": "chat"}}}, ".groups.wise.unit", "'conversation' or 'run', got 'chat'"),
        (
            {"groups": {"wise": {**WISE, "run_budget_usd": 1}}},
            ".groups.wise",
            "run_budget_usd needs unit: run, got unit: call",
        ),
        (
            {"groups": {"wise": {**WISE, "unit": "run", "run_budget_usd": 0}}},
            ".groups.wise.run_budget_usd",
            "greater than 0, got 0",
        ),
        ({"groups": {"wise": {**WISE, "unit": "run", "run_limit": "hard"}}}, ".groups.wise", "needs run_budget_usd"),
        ({"groups": {"wise": {**WISE, "conversation_ttl_s": 60}}}, ".groups.wise", "needs unit: conversation or"),
        ({"groups": {"wise": {**WISE, "budget_usd": float("nan")}}}, ".groups.wise.budget_usd", "finite"),
    ],
)
def test_what_is_wrong_is_named(block, key, message):
    with pytest.raises(SettingsError, match=message) as wrong:
        settings_of(block)
    assert wrong.value.key == f"callback_settings.wiserouter{key}"


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("store", "sqlite:///b.db", "sqlite:///./b.db?synchronous=full"),
        ("store", "sqlite:///b.db", "sqlite://b.db"),
        ("store", "redis://h/0", "redis://me:word@h/0?flush_s=1&name=wise"),
        ("journal", "j.jsonl", "./j.jsonl"),
    ],
)
def test_a_store_and_a_journal_are_of_one_group_however_they_are_written(key, one, other):
    with pytest.raises(SettingsError, match=f"{key} must (differ between groups|be another file in each group)"):
        settings_of({"groups": {"wise": {**WISE, key: one}, "two": {**WISE, key: other}}})


@pytest.mark.parametrize("other", ["sqlite:////b.db", "redis://h/1", "redis://h/0?db=1&name=wise", "redis://h/0"])
def test_other_files_servers_and_names_are_other_stores(other):
    one = "sqlite:///b.db" if other.startswith("sqlite") else "redis://h/0"
    settings_of({"groups": {"wise": {**WISE, "store": one}, "two": {**WISE, "store": other}}})


def test_every_mistake_is_named_on_one_line():
    with pytest.raises(SettingsError) as wrong:
        settings_of({"groups": {"wise": {"budget_usd": -1, "requests": 0}}})
    first, second = str(wrong.value).split("; ")
    assert first == "callback_settings.wiserouter.groups.wise.budget_usd: Input should be greater than 0, got -1"
    assert second.startswith("callback_settings.wiserouter.groups.wise.requests: Input should be greater than or equal")


def test_the_number_of_further_mistakes_is_told():
    groups = {f"g{i}": {"budget_usd": -1} for i in range(8)}
    with pytest.raises(SettingsError, match=r"groups\.g4\.budget_usd: [^;]*, got -1 \(and 3 more\)$"):
        settings_of({"groups": groups})


def test_a_block_of_the_wrong_kind_is_not_shown():
    with pytest.raises(SettingsError, match=r"valid dictionary$") as wrong:
        settings_of({"groups": [{"store": "redis://:sk-secret@h/0"}]})
    assert "sk-secret" not in str(wrong.value)


def test_text_from_the_environment_is_read_as_numbers():
    wise = settings_of({"groups": {"wise": {"budget_usd": "5.5", "requests": "100"}}}).groups["wise"]
    assert (wise.budget_usd, wise.requests) == (5.5, 100)


def test_a_secret_of_the_encoder_is_not_shown():
    block = {"groups": {"wise": {**WISE, "encoder_params": "sk-secret"}}}
    with pytest.raises(SettingsError) as wrong:
        settings_of(block)
    assert "sk-secret" not in str(wrong.value)


def test_a_password_in_the_url_of_a_store_is_not_shown():
    store = "redis://:sk-secret@h/0?name=x"
    both = {"a": {**WISE, "store": store}, "b": {**WISE, "store": store}}
    for groups in (both, {"a": {"store": store, **WISE, "encoder": "litellm/e", "contexts": 1}}):
        with pytest.raises(SettingsError) as wrong:
            settings_of({"groups": groups})
        assert "sk-secret" not in str(wrong.value)


@pytest.mark.parametrize(
    ("store", "own"),
    [
        ("redis://h:6379/0", "redis://h:6379/0?name=wise"),
        ("redis+cluster://h?timeout_s=1", "redis+cluster://h?timeout_s=1&name=wise"),
        ("unix:///s?db=1", "unix:///s?db=1&name=wise"),
        ("redis://h?name=other", "redis://h?name=other"),
        ("sqlite:///b.db", "sqlite:///b.db"),
        ("memory://", "memory://"),
    ],
)
def test_groups_on_one_server_have_a_part_each(store, own):
    assert store_of("wise", store) == own


def boot(monkeypatch, wise=WISE, deployments=None, **config):
    deployments = [deployment("small"), deployment("large")] if deployments is None else deployments
    monkeypatch.setattr(litellm, "callback_settings", {"wiserouter": {"groups": {"wise": wise}}})
    monkeypatch.setattr("wiserouter_litellm.proxy._config", lambda: {"model_list": deployments, **config})
    monkeypatch.setattr("atexit.register", lambda *_: None)  # a refusal would be repeated when the tests end
    return build_callback()


def test_a_boot_knows_the_models_of_the_configuration(monkeypatch):
    group = boot(monkeypatch).groups["wise"]
    assert group.router.pool.names == ("openai/small", "openai/large")
    assert group.router.status().amount_usd == 5.0


def test_members_of_a_routing_group_are_its_deployments():
    config = {
        "model_list": [deployment("small", "a"), deployment("large", "b"), deployment("x", "c")],
        "router_settings": {"routing_groups": [{"group_name": "wise", "models": ["a", "b"]}]},
    }
    assert [d["model_name"] for d in configured_deployments(config, "wise")] == ["a", "b"]


@pytest.mark.parametrize(
    ("wise", "deployments", "message"),
    [
        (WISE, [], "group 'wise' has no deployments"),
        (
            WISE,
            [{"model_name": "wise", "litellm_params": {"model": "openai/unheard-of"}}],
            "'openai/unheard-of' has no price in LiteLLM's map: set input_cost_per_token",
        ),
        (
            {**WISE, "limit": "hard"},
            [deployment("boundless", info={"max_output_tokens": None})],
            "no bound on the cost of a call.*cap_output_tokens",
        ),
        ({**WISE, "artifact": "/nowhere/x.wise"}, None, "/nowhere/x.wise: no such file: correct the path, or make one"),
        ({**WISE, "store": "mongodb://x"}, None, "store must be a URL"),
        ({**WISE, "journal": "/nowhere/j.jsonl"}, None, "/nowhere: no such folder: make it, or name another one"),
        ({**WISE, "journal": "/"}, None, "/ cannot be opened"),
        (WISE, [deployment("small"), deployment("small", input_cost_per_token=5e-6, info={"id": "b"})], "one price"),
    ],
)
def test_a_boot_that_cannot_work_stops_with_one_message(monkeypatch, caplog, wise, deployments, message):
    with pytest.raises(SettingsError, match=message) as wrong:
        boot(monkeypatch, wise, deployments)
    assert wrong.value.key == "callback_settings.wiserouter.groups.wise"
    assert sum(record.levelname == "CRITICAL" for record in caplog.records) == 1


@pytest.mark.parametrize("place", ["success_callback", "failure_callback"])
def test_a_callback_that_would_only_hear_of_answers_stops_the_boot(monkeypatch, place):
    lists = {place: ["wiserouter_litellm.callback"], "drop_params": True}
    with pytest.raises(SettingsError, match=f"litellm_settings.{place}: .* must be in litellm_settings.callbacks"):
        boot(monkeypatch, litellm_settings=lists)
    for callbacks in ("wiserouter_litellm.callback", ["prometheus", "wiserouter_litellm.callback"]):
        assert boot(monkeypatch, litellm_settings={**lists, "callbacks": callbacks}).groups


def test_prices_of_the_settings_make_up_for_missing_ones(monkeypatch):
    wise = {**WISE, "prices": {"openai/unheard-of": {"input": "1e-6", "output": 2e-6}}}
    unheard = {"model_name": "wise", "litellm_params": {"model": "openai/unheard-of"}}
    assert boot(monkeypatch, wise, [unheard]).groups["wise"].router.pool.models[0].price.input == 1e-6


def test_a_cap_bounds_a_hard_budget_where_the_model_has_no_limit(monkeypatch):
    wise = {**WISE, "limit": "hard", "cap_output_tokens": 100}
    assert boot(monkeypatch, wise, [deployment("boundless", info={"max_output_tokens": None})]).groups["wise"].hard


def test_several_workers_without_a_shared_store_split_the_budget(monkeypatch, caplog):
    monkeypatch.setenv("NUM_WORKERS", "4")
    status = boot(monkeypatch, {**WISE, "limit": "hard"}).groups["wise"].router.status()
    assert (status.amount_usd, status.horizon) == (1.25, 25)
    assert "4 workers and a store in memory" in caplog.text


def test_a_day_within_a_month(monkeypatch):
    month = {"budget_usd": 500, "every": "month", "rollover": True, "limit": "hard"}
    wise = {"budget_usd": 30, "every": "day", "within": [month], "cap_output_tokens": 100}
    group = boot(monkeypatch, wise).groups["wise"]
    assert group.hard
    windows = group.router.status().windows
    assert [(one.every, one.amount_usd) for one in windows] == [("day", 30.0), ("month", 500.0)]
    monkeypatch.setenv("NUM_WORKERS", "4")
    assert [one.amount_usd for one in boot(monkeypatch, wise).groups["wise"].router.status().windows] == [7.5, 125.0]


def test_workers_without_a_shared_store_split_the_budgets_of_scopes_as_well(monkeypatch):
    monkeypatch.setenv("NUM_WORKERS", "4")
    month = {"budget_usd": 20, "every": "month", "limit": "hard"}
    team = {**month, "within": [{"budget_usd": 40, "requests": 100}]}
    scopes = {"by": "team", "budgets": {"team-a": team}, "others": month}
    group = boot(monkeypatch, {**WISE, "scopes": scopes}).groups["wise"]
    assert [one.amount_usd for one in group.router.status("team:team-a").windows] == [5.0, 10.0, 1.25]
    assert group.hard


def test_a_shared_store_is_not_split(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("NUM_WORKERS", "4")
    store = f"sqlite:///{tmp_path}/b.db"
    group = boot(monkeypatch, {**WISE, "store": store}).groups["wise"]
    assert group.router.status().amount_usd == 5.0
    assert group.router.durable
    assert "workers" not in caplog.text
    again = boot(monkeypatch, {**WISE, "budget_usd": 7.0, "store": store}).groups["wise"]
    assert again.router.status().amount_usd == 7.0  # a raise takes effect at the next boot
    with pytest.raises(SettingsError, match="the budget that runs for scope 'default'"):
        boot(monkeypatch, {**WISE, "limit": "hard", "store": store})
    for one in (group, again):
        one.router.close()


def test_names_of_the_package():
    for name in wiserouter_litellm.__all__:
        assert getattr(wiserouter_litellm, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wiserouter_litellm.nothing  # noqa: B018


def test_the_unit_of_decision_is_a_call_unless_it_is_set():
    accounts = settings_of(
        {"groups": {"wise": WISE, "runs": {**WISE, "unit": "run", "run_budget_usd": "0.5"}}}
    ).accounts
    assert accounts["wise"].conversations == {"unit": "call"}
    terms = {"run_budget_usd": 0.5, "run_limit": "hard", "ttl_s": 3_600.0}
    assert accounts["runs"].conversations == {"unit": "run", **terms}
