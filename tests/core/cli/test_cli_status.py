"""`wiserouter status`: its figures, and that it changes nothing."""

import json
import sqlite3
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from support.ports import free_port
from support.redis_servers import MISSING, redis_server, serving
from wiserouter import Budget, Model, Price, WiseRouter, open_store
from wiserouter.budgets.changes import BudgetChange
from wiserouter.cli import app
from wiserouter.errors import InvalidInput, StoreDamaged, StoreUnavailable
from wiserouter.stores.engines.sqlite import SQLiteEngine
from wiserouter.stores.shared.store import SharedStore
from wiserouter.testing import FakeClock

needs_server = pytest.mark.skipif(redis_server() is None, reason=MISSING)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_server)])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'budget.db'}"
    return f"{request.getfixturevalue('server').url}?name={tmp_path.name}"


def printed(*arguments, **env):
    result = CliRunner().invoke(app, ["status", *arguments], env=env)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def looked(url, *arguments):
    return json.loads(printed("--store", url, "--json", *arguments))


def opened(url):
    """Two budgets of one scope and one of a team within them; six calls, of which three are settled."""
    models = [Model("small", Price(1e-6, 1e-6), max_cost_usd=0.25), Model("large", Price(2e-6, 2e-6), max_cost_usd=0.5)]
    router = WiseRouter(models, store=url, seed=0)
    router.start(Budget(30.0, every="day", within=Budget(500.0, every="month", limit="hard")))
    router.start(Budget(5.0, horizon=100), scope="team", parent="default")
    decisions = [router.decide(scope=scope) for scope in ("default", "default", "default", "team", "team", "team")]
    router.charge(decisions[0], 0.125)
    router.charge(decisions[3], 0.0625)
    router.release(decisions[4])
    return router


def test_every_account_equals_that_of_its_workers(url):
    router = opened(url)
    router._store.refresh()
    found = looked(url)
    assert [(one["scope"], one["parent"]) for one in found["scopes"]] == [("default", None), ("team", "default")]
    assert found["answered_in_ms"] > 0.0
    assert found["as_of"] == pytest.approx(router._store.now(), abs=5.0)
    day, month, team = [window for one in found["scopes"] for window in one["windows"]]
    at_hand = [*router.status().windows, router.status("team").windows[0]]
    for window, seen in zip((day, month, team), at_hand, strict=True):
        for name in ("amount_usd", "spent_usd", "reserved_usd", "leased_usd", "left_usd", "renews_at", "rules"):
            assert window[name] == pytest.approx(getattr(seen, name)), name
    counts = ("decided", "in_flight", "charged", "released", "presumed")
    assert [[window[name] for name in counts] for window in (day, month, team)] == [
        [5, 3, 2, 1, 0], [5, 3, 2, 1, 0], [2, 1, 1, 1, 0],
    ]  # fmt: skip
    assert (day["every"], month["limit"], team["limit"]) == ("day", "hard", "expected")
    assert (team["horizon"], team["horizon_left"]) == (100, 98)
    assert team["rate_usd"] == pytest.approx(router.status("team").windows[0].rate_usd)
    assert day["horizon_low"] <= day["horizon"]
    router.close()


def test_the_table(url):
    router = opened(url)
    router.close()
    text = printed("--store", url, COLUMNS="100")
    for word in ("$30.00 expected", "every day", "until 20", "$500.00 hard", "within default", "98 left of 100"):
        assert word in text
    for word in ("$0.188 spent", "3 in flight", "2 charged", "1 released", "$0.00 leased", "answered in"):
        assert word in text
    assert "presumed" not in text
    assert "team" not in printed("--store", url, "--scope", "default")


def test_what_is_presumed_is_shown(url):
    router = opened(url)
    for _ in range(2):
        router.presume(router.decide(scope="team"))
    router.close()
    *_, month, team = [window for one in looked(url)["scopes"] for window in one["windows"]]
    assert (month["presumed"], month["presumed_usd"], team["presumed"]) == (2, team["presumed_usd"], 2)
    assert team["presumed_usd"] == pytest.approx(team["spent_usd"] - 0.0625) != 0.0
    text = printed("--store", url, COLUMNS="100")
    assert text.count("of it presumed") == 3
    assert text.count("2 presumed") == 3


def test_an_error_names_some_of_many_scopes(tmp_path):
    store = open_store(f"sqlite:///{tmp_path / 'budget.db'}")
    for at in range(1_012):
        store.open(f"team-{at:04}", Budget(8.0, 100))
    store.close()
    with pytest.raises(InvalidInput, match=r"\(team-0000, .*, team-0009 and 1,002 others\), got 'team'"):
        printed("--store", str(tmp_path / "budget.db"), "--scope", "team")


def test_leases_are_shown_and_none_is_taken(url):
    leased = f"{url}{'&' if '?' in url else '?'}lease_share="
    store = open_store(f"{leased}0.25")
    store.open("s", Budget(8.0, 100, limit="hard"))
    store.refresh()
    store.refresh()
    for _ in range(3):
        (window,) = looked(f"{leased}0.5&on_store_error=local")["scopes"][0]["windows"]
        assert (window["leased_usd"], window["left_usd"]) == (2.0, 6.0)
    store.close()
    assert looked(url)["scopes"][0]["windows"][0]["leased_usd"] == 0.0


def test_a_window_that_has_ended_since(tmp_path):
    clock = FakeClock(1_000.0)
    store = SharedStore(SQLiteEngine(tmp_path / "budget.db", clock), clock=clock)
    store.open("s", Budget(8.0, every="1h", rollover=True))
    store.spend("s", 5.0)
    store.close()
    (window,) = looked(f"sqlite:///{tmp_path / 'budget.db'}")["scopes"][0]["windows"]
    assert (window["spent_usd"], window["carried_usd"]) == (0.0, 8.0)


def test_a_budget_that_is_paused_or_ended_says_so_and_those_within_it(url):
    opened(url).close()
    paused = ("paused", "ended", "stopped_scope", "reason")
    assert [[one[name] for name in paused] for one in looked(url)["scopes"]] == [[False, False, None, ""]] * 2
    assert "PAUSED" not in printed("--store", url, COLUMNS="100")
    store = open_store(url)
    store.change("default", BudgetChange(paused=True, reason="incident", every="day"))
    default, team = looked(url)["scopes"]
    assert [default[name] for name in paused] == [team[name] for name in paused] == [True, False, "default", "incident"]
    text = printed("--store", url, COLUMNS="100")
    assert "PAUSED: incident" in text
    assert "PAUSED in default: incident" in text
    store.change("team", BudgetChange(ended=True))
    store.change("default", BudgetChange(paused=False, every="day"))
    default, team = looked(url)["scopes"]
    assert [[one[name] for name in paused] for one in (default, team)] == [
        [False, False, None, ""], [False, True, "team", ""],
    ]  # fmt: skip
    assert "ENDED" in printed("--store", url, COLUMNS="100")
    store.change("default", BudgetChange(paused=True, pause_s=0.05, every="day"))
    store.close()
    time.sleep(0.1)
    assert looked(url)["scopes"][0]["paused"] is False


def test_one_scope(url):
    opened(url).close()
    assert [one["scope"] for one in looked(url, "--scope", "team")["scopes"]] == ["team"]
    with pytest.raises(InvalidInput, match=r"\(default, team\), got 'red'"):
        printed("--store", url, "--scope", "red")


def test_no_budget_yet(url):
    if url.startswith("sqlite"):
        open_store(url).close()
    assert looked(url)["scopes"] == []
    assert "add ?name= to the URL" in printed("--store", url)


def test_the_url_may_come_from_the_environment(url):
    opened(url).close()
    assert "$500.00" in printed(WISEROUTER_STORE=url)


@needs_server
def test_an_unused_name_leaves_nothing_behind(server):
    looked(f"{server.url}?name=typo")
    assert b"typo" not in server.ask("KEYS", "*")


@needs_server
def test_no_password_is_shown(tmp_path):
    with serving("--requirepass", "tell-no-one") as guarded:
        url = guarded.url.replace("redis://", "redis://:tell-no-one@")
        open_store(url).open("s", Budget(1.0, 10))
        text = printed("--store", url)
        assert "$1.00" in text
        assert "tell-no-one" not in text
        with pytest.raises(StoreUnavailable, match="password") as refused:
            printed("--store", url.replace("tell-no-one", "wrong-word"))
        assert "wrong-word" not in str(refused.value)


@pytest.mark.parametrize("before", [None, b""])
def test_a_missing_file_is_not_created(tmp_path, before):
    path = tmp_path / "none.db"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(StoreUnavailable, match="there is no such file"):
        printed("--store", f"sqlite:///{path}")
    assert list(tmp_path.iterdir()) == ([] if before is None else [path])
    assert before is None or path.read_bytes() == before


def test_a_url_without_slashes_is_not_taken_for_a_file():
    with pytest.raises(InvalidInput, match="for that server say redis://localhost:6379"):
        printed("--store", "redis:localhost:6379")


def test_a_damaged_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "budget.db"
    opened(f"sqlite:///{path}").close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match=r"budget\.db cannot be read"):
        printed("--store", f"sqlite:///{path}")
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["text", "database"])
def test_a_file_of_another_program(tmp_path, kind):
    path = tmp_path / "other"
    if kind == "text":
        path.write_text("dear diary, " * 100)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE diary (day TEXT)")
        connection.close()
    with pytest.raises(StoreDamaged, match=r"cannot be read: (it|file) is"):
        printed("--store", f"sqlite:///{path}")


@pytest.mark.parametrize("wrong", ["postgres://host/db", "memory://", "sqlite:///b.db?nmae=x"])
def test_a_wrong_url(wrong):
    with pytest.raises(InvalidInput):
        printed("--store", wrong)


def test_an_error_is_one_line_and_exit_code_2():
    url = f"redis://127.0.0.1:{free_port()}/0"
    command = [sys.executable, "-m", "wiserouter.cli", "status", "--store", url]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"error: {url} cannot be used")
    assert ended.stderr.count("\n") == 1
