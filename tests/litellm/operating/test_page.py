"""The operator's page: its files and their headers, and what its scripts keep from doing."""

import json
import re
from pathlib import Path
from typing import get_args

import httpx
import pytest
from fastapi import FastAPI
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth
from litellm.proxy.auth.user_api_key_auth import user_api_key_auth

import wiserouter_litellm.operating.page
from support.groups import fitted
from wiserouter import Budget, Shadow, Usage
from wiserouter.integration import BudgetChange
from wiserouter.planning.policy import Rule
from wiserouter_litellm.groups.scopes import GroupScope
from wiserouter_litellm.operating.page.history import MAX_READINGS, MAX_WINDOWS, SpendHistory
from wiserouter_litellm.operating.page.latest import MOST, DecisionsOfRouters
from wiserouter_litellm.operating.page.shadow import LEAST_S, ShadowReports
from wiserouter_litellm.operating.proxy_routes import mount
from wiserouter_litellm.settlement.recorder import Recorder

ASSETS = Path(wiserouter_litellm.operating.page.__file__).parent / "assets"
OURS = [path for path in sorted(ASSETS.rglob("*")) if path.is_file() and "vendor" not in path.parts]
VENDORED = [path for path in sorted(ASSETS.rglob("*")) if path.is_file() and "vendor" in path.parts]
DATA = [f"/wiserouter/{name}?group=wise" for name in ("history", "kinds", "spend", "decisions", "shadow")]


class RouterAsGroup:
    """What the page reads of a group."""

    shared_budget = None

    def __init__(self, *budgets):
        self.router = fitted()
        self.router.start(*budgets or [Budget(10.0, 100)])
        self.scope_resolver = GroupScope()
        self.name = "wise"


class Clock:
    now_s = 1_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def group():
    return RouterAsGroup()


@pytest.fixture
def app(group):
    app = FastAPI()
    mount(app, Recorder({"wise": group}))
    app.dependency_overrides[user_api_key_auth] = lambda: UserAPIKeyAuth(user_role=LitellmUserRoles.PROXY_ADMIN)
    return app


@pytest.fixture
async def client(app):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://proxy.test") as running:
        yield running


async def test_every_file_is_served_with_a_policy_that_lets_nothing_in(client):
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
    for path in OURS + VENDORED:
        name = path.relative_to(ASSETS).as_posix()
        answer = await client.get("/wiserouter/" if name == "index.html" else f"/wiserouter/page/{name}")
        assert (answer.status_code, answer.content) == (200, path.read_bytes()), name
        assert answer.headers["content-type"].startswith(types.get(path.suffix, "text/plain")), name
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["img-src"] == "'self' data:"
        assert policy["frame-ancestors"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = await client.get(answer.url, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_the_page_is_found_without_the_slash_and_nothing_beside_its_files(client):
    assert (await client.get("/wiserouter")).headers["location"] == "http://proxy.test/wiserouter/"
    for path in ("index.html", "../files.py", "%2e%2e/files.py", "cards", "cards/", "none.js", "page.css/"):
        assert (await client.get(f"/wiserouter/page/{path}")).status_code in {307, 404}, path


async def test_the_figures_are_for_administrators(client, app):
    for path in DATA:
        assert (await client.get(path)).status_code == 200
    app.dependency_overrides[user_api_key_auth] = lambda: UserAPIKeyAuth(user_role=LitellmUserRoles.INTERNAL_USER)
    for path in DATA:
        assert (await client.get(path)).status_code == 403
        assert (await client.get(path.replace("wise", "<b>", 1))).status_code in {403, 404}


async def test_kinds_show_where_questions_go_and_what_for(client, group):
    found = (await client.get("/wiserouter/kinds?group=wise")).json()
    (kind,) = found["kinds"]
    assert (kind["share"], kind["words"]) == (1.0, [])
    assert {one["name"]: (one["share"], one["quality"], one["calls"]) for one in kind["models"]} == {
        "small": (0.0, pytest.approx(0.1), 50),
        "large": (1.0, pytest.approx(0.9), 50),
    }
    assert found["rate_usd"] == pytest.approx(0.1)
    assert (await client.get("/wiserouter/kinds?group=wise&scope=nope")).status_code == 404


async def test_spend_by_kind_adds_up_to_what_was_charged(client, group):
    usage = Usage(input_tokens=100, output_tokens=10)
    costs = [0.25, 0.5, 0.125]
    for cost_usd, tokens in zip(costs, [usage, usage, None], strict=True):
        group.router.charge(group.router.decide(context=0), cost_usd, usage=tokens)
    days = (await client.get("/wiserouter/spend?group=wise&days=2")).json()["days"]
    assert days[0]["kinds"] == {}
    assert days[1] == {"date": days[1]["date"], "kinds": {"0": pytest.approx(0.75), "other": pytest.approx(0.125)}}
    assert (await client.get("/wiserouter/spend?group=wise&scope=nope")).json()["days"][-1]["kinds"] == {}
    assert (await client.get("/wiserouter/spend?group=wise&days=1000")).status_code == 422


async def test_decisions_are_listed_with_their_outcomes_the_last_one_first(client, group):
    first, second, third = (group.router.decide(context=0) for _ in range(3))
    group.router.charge(first, 0.25)
    group.router.reward(first, 0.75)
    group.router.release(second)
    rows = (await client.get("/wiserouter/decisions?group=wise")).json()["decisions"]
    assert [(row["id"], row["state"]) for row in rows] == [
        (third.id, "in flight"),
        (second.id, "released"),
        (first.id, "charged"),
    ]
    assert (rows[2]["cost_usd"], rows[2]["score"], rows[2]["answered_by"]) == (0.25, 0.75, "large")
    rows = (await client.get("/wiserouter/decisions?group=wise&most=1")).json()["decisions"]
    assert [row["id"] for row in rows] == [third.id]


async def test_what_shadow_mode_would_have_spent_and_gained_is_shown(client, group, tmp_path):
    assert (await client.get("/wiserouter/shadow?group=wise")).json() == {"group": "wise", "share": None}
    group.router.shadow = Shadow(share=0.5)
    group.router.start(Budget(10.0, 100))
    found = (await client.get("/wiserouter/shadow?group=wise")).json()
    assert "set journal: FILE in the group" in found["missing"]
    router, clock = group.router, Clock()
    reports = ShadowReports(clock)
    router.journal_to(tmp_path / "journal.jsonl")
    assert "the journal must hold calls of shadow mode" in reports.of(router)["missing"]
    for i in range(40):
        router.charge(router.observe(context=0, incumbent="small", draw_key=str(i)), 0.25)
    assert "missing" in reports.of(router)
    clock.now_s += LEAST_S
    report = reports.of(router)
    assert (report["calls"], report["spent_usd"]) == (40, pytest.approx(10.0))
    assert any(line.startswith("Spend per call: ") for line in report["lines"])
    json.dumps(report, allow_nan=False)
    router.journal.close()


def test_no_more_than_the_latest_decisions_are_kept(group):
    kept = DecisionsOfRouters()
    kept.watch([group, group])
    group.router.start(Budget(10.0, 10 * MOST))
    made = [group.router.decide(context=0) for _ in range(MOST + 20)]
    group.router.release(made[0])
    rows = kept.rows(group.router, MOST)
    assert [row["id"] for row in rows] == [one.id for one in reversed(made[20:])]
    assert len(kept._of[group.router]._outcomes) == MOST


async def test_a_paused_budget_is_said_to_be_paused(client, group):
    assert (await client.get("/wiserouter/history?group=wise")).json()["paused"] is None
    group.router.change_budget(BudgetChange(paused=True, reason="an audit"))
    assert "is paused by an administrator (an audit)" in (await client.get(DATA[0])).json()["paused"]
    group.router.start(Budget(5.0, 50), scope="team", parent="default")
    for ended in (False, True):
        group.router.change_budget(BudgetChange(ended=ended) if ended else BudgetChange(paused=True))
        for scope in ("default", "team"):  # what encloses a scope stops it, and is resumed there
            found = (await client.get(f"{DATA[0]}&scope={scope}")).json()
            assert (found["stopped_scope"], found["ended"]) == ("default", ended)


async def test_a_budget_that_groups_share_is_found_by_its_name(client, group):
    group.shared_budget = "monthly"
    paths = [*(path.replace("=wise", "=monthly") for path in DATA), "/wiserouter/plan?group=monthly"]
    for path in [*paths, "/wiserouter/savings?group=monthly"]:
        assert (await client.get(path)).status_code == 200, path
    both = [(await client.get(f"/wiserouter/history?group={name}")).json()["windows"] for name in ("wise", "monthly")]
    assert [one["starts_at"] for one in both[0]] == [one["starts_at"] for one in both[1]]
    answer = await client.get("/wiserouter/history?group=x")
    assert answer.json()["detail"] == "group must be one of wise, monthly, got 'x'"


async def test_the_names_of_the_groups_are_said_where_one_is_unknown(client):
    answer = await client.get("/wiserouter/history?group=x")
    assert (answer.status_code, answer.json()["detail"]) == (404, "group must be one of wise, got 'x'")


def test_the_scripts_turn_no_text_into_html_and_keep_no_key():
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|createContextual"
    stores = r"localStorage|sessionStorage|indexedDB|document\.cookie\s*="
    elsewhere = r"https?://|//cdn|setAttribute\(.style"
    for path in OURS:
        if path.suffix in {".js", ".html"}:
            found = re.findall(f"{sinks}|{stores}|{elsewhere}", path.read_text())
            assert not found, (path.name, found)


def test_every_rule_of_a_decision_is_said_in_words():
    said = (ASSETS / "cards" / "decisions.js").read_text(encoding="utf-8")
    assert [rule for rule in get_args(Rule) if f'\n  {rule}: "' not in said] == []


def test_the_page_has_nothing_inline():
    text = (ASSETS / "index.html").read_text()
    assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|javascript:", text)
    for name in re.findall(r'(?:src|href)="([^"#]+)"', text):
        assert (ASSETS / name.removeprefix("page/")).is_file(), name


def test_what_is_vendored_has_its_licence():
    assert "MIT License" in (ASSETS / "vendor" / "uPlot.LICENSE").read_text()


def test_readings_follow_the_spending_and_are_thinned(group):
    clock = Clock()
    history = SpendHistory(clock)
    for i in range(3 * MAX_READINGS):
        clock.now_s += 60.0
        decision = group.router.decide(context=0) if i < 80 else None
        if decision is not None:
            group.router.charge(decision, 0.01)
        (window,) = history.windows("wise", group, "default")
    points = window["points"]
    assert points[-1] == [clock.now_s, pytest.approx(0.8), 80]
    assert len(points) <= 82  # what did not change is one line
    assert [spent for _, spent, _ in points] == sorted(spent for _, spent, _ in points)
    assert (window["every"], window["renews_at"]) == (None, None)


def test_windows_that_are_over_are_forgotten_in_time(group):
    history = SpendHistory(Clock())
    for i in range(MAX_WINDOWS + 10):
        history.windows(f"group {i}", group, "default")
    assert len(history._readings) == MAX_WINDOWS


def test_a_scope_without_a_budget_has_no_history(group):
    history = SpendHistory(Clock())
    history.read({"wise": group})
    assert history.windows("wise", group, "nope") == []
    assert len(history._readings) == 1
