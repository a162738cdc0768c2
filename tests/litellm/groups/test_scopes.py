"""The scope that pays: by the proxy's own record of the key, by the client's word only where that is allowed."""

from hashlib import sha256
from types import SimpleNamespace

import pytest

from support.groups import fitted
from wiserouter import Budget, Model
from wiserouter.errors import InvalidInput, NotStarted
from wiserouter_litellm.errors import ScopeRefused
from wiserouter_litellm.groups.scopes import CallerScopes, ScopeFromMetadata

HARD = Budget(1.0, 100, limit="hard")
KEY = "sk-a-key"
ANN = {"team_id": "team-a", "org_id": "acme", "user_id": "ann", "api_key": KEY, "metadata": {"tags": ["x", "gold"]}}


def scopes(by="team", names=("team-a", "team-b"), **settings):
    router = fitted()
    for name in router.pool.names:
        router.update_model(Model(name, max_cost_usd=0.5))
    router.start(Budget(10.0, 100))
    return CallerScopes("wise", router, by, dict.fromkeys(names, HARD), **settings), router


def of(**known):
    return {"user_api_key_auth": SimpleNamespace(**{**ANN, **known})}


@pytest.mark.parametrize(
    ("by", "id_"),
    [
        ("team", "team-a"),
        ("organization", "acme"),
        ("user", "ann"),
        ("key", sha256(KEY.encode()).hexdigest()),
        ("tag", "gold"),
        ("metadata.tags", "gold"),
    ],
)
def test_a_budget_is_found_by_what_the_proxy_knows(by, id_):
    paying, router = scopes(by, [id_])
    assert paying.scope_of(of()) == f"{by}:{id_}"
    assert router.is_hard(f"{by}:{id_}")
    assert paying.opened == (f"{by}:{id_}",)


def test_the_metadata_of_the_team_speaks_where_the_keys_does_not():
    paying, _ = scopes("metadata.cost_center", ["42"])
    assert paying.scope_of(of(team_metadata={"cost_center": 42})) == "metadata.cost_center:42"


@pytest.mark.parametrize("from_request", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        {"user_api_key_auth": {"team_id": "team-b", "metadata": {"tags": ["team-b"]}}},
        {"user_api_key_team_id": "team-b", "team_id": "team-b", "team": "team-b"},
        {"wiserouter_scope": "team:team-b"},
    ],
)
def test_a_client_cannot_say_who_it_is(said, from_request):
    paying, _ = scopes()
    assert paying.scope_of(said) == "default"
    tagged, _ = scopes("tag", ["team-b"], from_request=from_request)
    assert tagged.scope_of(said) == "default"


def test_a_client_may_name_a_listed_tag_where_that_is_allowed_and_its_key_says_nothing():
    said = {"tags": ["mine", "gold"], "requester_metadata": {"tags": ["silver"]}}
    assert scopes("tag", ["gold", "silver"])[0].scope_of(said) == "default"
    allowed = scopes("tag", ["gold", "silver"], from_request=True, others=HARD)[0]
    assert allowed.scope_of(said) == "tag:gold"
    assert allowed.scope_of({**said, "tags": ["mine"]}) == "tag:silver"
    assert allowed.scope_of({"tags": ["mine"]}) == "tag:"  # not listed: one of the others, without a budget of its own
    assert allowed.scope_of({**said, **of(metadata={"tags": ["x"]})}) == "tag:x"


def test_others_share_are_refused_or_have_their_own():
    other = of(team_id="team-z")
    assert scopes()[0].scope_of(other) == "default"
    with pytest.raises(ScopeRefused, match="group 'wise' has no budget for team 'team-z'") as refused:
        scopes(others="refuse")[0].scope_of(other)
    assert refused.value.status_code == 403
    paying, router = scopes(others=Budget(0.5, 10))
    scope = paying.scope_of(other)
    with pytest.raises(NotStarted):
        router.status(scope)
    paying.open(scope)
    assert router.status(scope).windows[0].amount_usd == 0.5
    with pytest.raises(ScopeRefused):
        paying.scope_of(of(team_id="z" * 300))


def test_the_number_of_budgets_of_others_is_bounded():
    paying, _ = scopes(others=Budget(0.5, 10), max_others=2)
    for name in ("y", "z", "y"):
        paying.open(f"team:{name}")
    with pytest.raises(ScopeRefused, match="max_others=2 budgets are open already"):
        paying.open("team:x")
    assert paying.opened == ("team:team-a", "team:team-b", "team:y", "team:z")


def others_of(store, others, names=()):
    """Return the scopes of a worker that starts on a store, and its router."""
    router = fitted(store=store)
    for name in router.pool.names:
        router.update_model(Model(name, max_cost_usd=0.5))
    router.start(Budget(10.0, every="month"))
    return CallerScopes("wise", router, "team", dict.fromkeys(names, others), others=others), router


def test_a_caller_goes_on_with_the_budget_that_runs_where_the_terms_of_others_have_changed(tmp_path, caplog):
    store = f"sqlite:///{tmp_path}/budget.db"
    before, router = others_of(store, Budget(0.5, every="day", limit="hard"))
    before.open("team:z")
    router.close()
    month = Budget(0.5, every="month")
    after, router = others_of(store, month)
    after.open("team:z")
    router.charge(router.decide(context=0, scope="team:z"), 0.25, model="large")
    assert [one.spent_usd for one in router.status("team:z").windows] == [0.25, 0.25]
    assert router.is_hard("team:z")
    assert "wiserouter budget --end" in caplog.text
    after.open("team:y")
    assert not router.is_hard("team:y")
    router.close()
    with pytest.raises(InvalidInput, match="the budget that runs for scope 'team:z'"):
        others_of(store, month, names=["z"])


def test_a_caller_whose_budget_should_be_hard_now_does_not_go_on_with_one_that_is_not(tmp_path):
    store = f"sqlite:///{tmp_path}/budget.db"
    before, router = others_of(store, Budget(0.5, every="day"))
    before.open("team:z")
    router.close()
    after, router = others_of(store, Budget(0.5, every="day", limit="hard"))
    with pytest.raises(InvalidInput, match="the budget that runs for scope 'team:z'"):
        after.open("team:z")
    router.close()


@pytest.mark.parametrize("within_group", [False, True])
def test_a_caller_goes_on_within_the_budget_of_the_group_but_not_beside_it(tmp_path, within_group):
    store, others = f"sqlite:///{tmp_path}/budget.db", Budget(50.0, every="day")
    _, router = others_of(store, others)
    CallerScopes("wise", router, "team", {}, others=others, within_group=within_group).open("team:z")
    router.close()
    _, router = others_of(store, others)
    after = CallerScopes("wise", router, "team", {}, others=others, within_group=not within_group)
    if within_group:
        after.open("team:z")
        router.charge(router.decide(context=0, scope="team:z"), 0.25, model="large")
        assert router.status().spent_usd == 0.25
    else:
        with pytest.raises(InvalidInput, match="within None, got"):
            after.open("team:z")
    router.close()


@pytest.mark.parametrize("within_group", [False, True])
def test_the_groups_own_budget_bears_the_calls_of_scopes_as_well(within_group):
    paying, router = scopes(within_group=within_group)
    router.charge(router.decide(context=0, scope=paying.scope_of(of())), 0.25, model="large")
    assert router.status("team:team-a").windows[0].spent_usd == 0.25
    assert router.status().spent_usd == (0.25 if within_group else 0.0)


def test_a_program_names_its_scope():
    assert ScopeFromMetadata().scope_of({"wiserouter_scope": "team-a"}) == "team-a"
    assert ScopeFromMetadata().scope_of({}) == "default"
