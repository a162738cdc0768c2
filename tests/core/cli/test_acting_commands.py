"""`wiserouter budget`, `model` and `mode` on the URL of a store: workers follow, and errors are one line."""

import json
import re

import pytest
from typer.testing import CliRunner

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.budgets.pauses import BudgetPaused
from wiserouter.cli import app
from wiserouter.errors import InvalidInput, StoreUnavailable, UnlikelyPrice
from wiserouter.routing.journal_reader import JournalReader


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path / 'budget.db'}"


@pytest.fixture
def router(store):
    models = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]
    router = WiseRouter(models, store=store, seed=0)
    router.start(Budget(10.0, every="day"))
    yield router
    router.close()


def run(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def follow(router):
    for _ in range(2):
        router.refresh()


def test_a_budget_is_changed_and_the_running_worker_follows(store, router, tmp_path):
    journal = tmp_path / "journal.jsonl"
    said = run("budget", "--store", store, "--add", 5, "--windows", 2, "--by", "ann", "--journal", journal)
    assert "amount_usd 10.0 -> 15.0" in said
    follow(router)
    assert router.budget().amount_usd == 15.0
    (line,) = JournalReader(journal)
    assert (line["what"], line["by"], line["scope"], line["after"]["amount_usd"]) == ("budget", "ann", "default", 15.0)
    found = json.loads(run("budget", "--store", store, "--pause", "--reason", "an incident", "--json"))
    assert (found["after"]["paused"], found["by"][:4]) == (True, "cli:")
    follow(router)
    with pytest.raises(BudgetPaused, match="an incident"):
        router.decide("hi")
    said = run("budget", "--store", store, "--resume")
    assert "paused True -> False; reason an incident -> none" in said
    follow(router)
    assert router.decide("hi").model
    said = run("budget", "--store", store, "--pause", "--pause-s", 60)
    assert re.search(r"paused_until none -> \d{4}-\d\d-\d\d \d\d:\d\dZ$", said.strip())


def test_a_key_changes_once(store, router):
    for said in ("amount_usd 10.0 -> 11.0", "made before"):
        assert said in run("budget", "--store", store, "--add", 1, "--key", "k")
    follow(router)
    assert router.budget().amount_usd == 11.0


def test_a_model_is_retired_and_brought_back(store, router):
    assert "retired none -> True" in run("model", "large", "--store", store, "--retire")
    follow(router)
    router.decide("hi")
    assert router.pool.by_name["large"].retired
    run("model", "large", "--store", store, "--max-share", 0.5, "--bring-back")
    follow(router)
    router.decide("hi")
    assert router.orders.models["large"].max_share == 0.5
    run("model", "large", "--store", store, "--configured")
    follow(router)
    router.decide("hi")
    assert not router.orders.models


def test_a_price_has_the_kinds_of_the_route(store, router):
    each = ["--cache-read-usd", 1e-7, "--cache-write-usd", 4e-6, "--reasoning-usd", 9e-6]
    run("model", "large", "--store", store, "--input-usd", 3e-6, "--output-usd", 1e-5, *each)
    follow(router)
    router.decide("hi")
    assert router.pool.by_name["large"].price == Price(3e-6, 1e-5, 1e-7, 4e-6, 9e-6)
    run("model", "large", "--store", store, "--max-share", 0.5, "--no-price")
    run("model", "large", "--store", store, "--retire", "--no-max-share")
    follow(router)
    router.decide("hi")
    order = router.orders.models["large"]
    assert (order.price, order.max_share, order.retired) == (None, None, True)
    assert router.pool.by_name["large"].price == Price(3e-6, 1.5e-5)


def test_the_mode_is_ordered(store, router):
    assert "mode configured -> shadow" in run("mode", "shadow", "--share", 0.2, "--store", store)
    assert "share" not in run("mode", "configured", "--store", store, "--json").partition('"after"')[2]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["budget", "--amount", 1, "--add", 1], InvalidInput, "exclude each other"),
        (["budget"], InvalidInput, "budget needs --amount, --add, --requests"),
        (["budget", "--scope", "none", "--amount", 1], InvalidInput, "have a budget .* got 'none': wiserouter"),
        (["model", "large"], InvalidInput, "needs --retire"),
        (["model", "large", "--input-usd", 1], InvalidInput, "got one of them"),
        (["model", "large", "--max-share", 0.5, "--no-max-share"], InvalidInput, "got both for max_share"),
        (["model", "large", "--cache-read-usd", 1e-7], InvalidInput, "--input-usd and --output-usd, .* kinds alone"),
        (["model", "large", "--input-usd", 0.15, "--output-usd", 0.6], UnlikelyPrice, "150,000 USD per million tokens"),
        (["mode", "route", "--share", 0.5], InvalidInput, "for the mode shadow"),
    ],
)
def test_what_makes_no_sense_is_one_error(store, router, arguments, error, said):
    with pytest.raises(error, match=said):
        run(*arguments, "--store", store)


@pytest.mark.parametrize("arguments", [["budget", "--add", 5], ["model", "large", "--retire"], ["mode", "shadow"]])
def test_nothing_is_changed_where_the_journal_cannot_be_written(store, router, arguments, tmp_path):
    with pytest.raises(OSError, match="none"):
        run(*arguments, "--store", store, "--journal", tmp_path / "none" / "journal.jsonl")
    follow(router)
    assert router.status().windows[0].amount_usd == 10.0
    assert json.loads(run("mode", "configured", "--store", store, "--json"))["before"]["mode"] == "configured"
    assert json.loads(run("model", "large", "--configured", "--store", store, "--json"))["before"]["retired"] is None


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(StoreUnavailable, match="no such file"):
        run("budget", "--store", tmp_path / "none.db", "--amount", 1)
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(InvalidInput, match="several processes share"):
        run("mode", "route", "--store", "memory://")


def test_a_reason_and_a_scope_with_control_characters_are_printed_escaped(store, router):
    router.start(Budget(1.0, every="day"), scope="metadata.t:\x1b[31mred")
    shown = run("budget", "--store", store, "--pause", "--reason", "\x1b[2Jgone") + run("status", "--store", store)
    assert "\\x1b[2Jgone" in shown
    assert "\x1b" not in shown
