"""The suite: figures over several tables by hand, and the command on tables of both layouts."""

import json
import shutil

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from support.bench_rows import rows_of, write_wide
from support.tables import FOLDER, needs_tables
from wiserouter.cli import app
from wiserouter.cli.bench_suite import groups_of
from wiserouter.errors import InvalidInput, LogError, UnknownModel
from wiserouter.evaluation.baselines import open_methods
from wiserouter.evaluation.bench.splits import split_table
from wiserouter.evaluation.bench.suite import default_methods, open_suite, tables_in
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.evaluation.report import SuiteGroup, suite_figures

GROUP = SuiteGroup("fitted", "Fitted", "a", ("a", "b"))
FIRST = {"a": [[0.5, 0.7], [0.8, 0.8]], "b": [[0.55, 0.55], [0.7, 0.7]], "bound": [[1.0, 1.0], [1.0, 1.0]]}
SECOND = {"a": [[0.5, 0.5], [0.5, 0.5]], "b": [[0.9, 0.9], [0.5, 0.5]], "bound": [[1.0, 1.0], [1.0, 1.0]]}
SPEND = {"a": 1.0, "b": 0.5, "bound": 1.0}


@pytest.fixture(scope="module")
def figures():
    rows = {"first": rows_of(FIRST, SPEND), "second": rows_of(SECOND, SPEND)}
    return suite_figures(rows, GROUP, ["bound"])


def test_each_budget_is_judged_among_the_rivals(figures):
    own = figures.by_budget.filter(method="a")
    assert own["rank"].to_list() == [1.0, 1.0, 2.0, 1.5]
    assert own["behind"].to_list() == pytest.approx([0.0, 0.0, 0.4, 0.0])
    assert own["lead"].to_list() == pytest.approx([0.05, 0.1, -0.4, 0.0])
    assert own["lead_se"].to_list()[0] == pytest.approx(0.1)  # of 0.15 and -0.05
    assert set(own["other"]) == {"b"}
    assert (own["verdict"] != "").to_list() == [True, True, False, True]
    assert figures.by_budget.filter(method="bound")["rank"].is_nan().all()


def test_a_method_within_one_standard_error_of_the_best_holds_the_budget(figures):
    assert figures.by_budget.filter(method="b", table="first")["verdict"].to_list() == ["within 1 s.e.", ""]


def test_tables_are_added_up(figures):
    [best, other, bound] = figures.by_method.iter_rows(named=True)
    assert [best["method"], other["method"], bound["method"]] == ["a", "b", "bound"]
    assert (best["held"], best["budgets"], best["share"]) == (3, 4, 0.75)
    assert best["rank"] == pytest.approx((1.0 + 1.75) / 2)
    assert (best["regret"], best["regret_worst"], best["worst_table"]) == (
        pytest.approx(0.1), pytest.approx(0.2), "second"
    )  # fmt: skip
    assert (best["spend_ratio"], other["spend_ratio"]) == (1.0, 0.5)
    assert (best["below_single"], other["below_single"]) == (pytest.approx(0.0), pytest.approx(0.0))
    assert not bound["rival"]


def test_what_can_be_spent_is_shown_by_one_method():
    rows = {"first": rows_of(FIRST, SPEND)}
    found = suite_figures(rows, GROUP, ["bound"], spender="a").by_method
    assert dict(zip(found["method"], found["least_spent"], strict=True)) == {"a": 1.0, "b": 0.5, "bound": 1.0}
    nothing_spent = suite_figures(rows, GROUP, spender="b").by_method
    assert nothing_spent["least_spent"].is_null().all()


def test_the_figures_of_an_earlier_suite_stand_beside(figures):
    rows = {"first": rows_of(FIRST, SPEND), "second": rows_of(SECOND, SPEND)}
    again = suite_figures(rows, GROUP, before=figures.by_budget.filter(table="first")).by_method
    assert dict(zip(again["method"], again["held_before"], strict=True)) == {"a": 2, "b": 1}
    assert again["regret_before"].to_list() == pytest.approx([0.0, 0.075])


def test_methods_compete_with_those_that_learn_from_as_much():
    fitted, learners = groups_of(open_methods(default_methods()))
    assert {"wr-offline", "zero", "routing", "static-lp"} <= set(fitted.rivals)
    assert {"optimistic", "linucb", "wr-online-1x", "optimistic-cold"} <= set(learners.rivals)
    assert not set(fitted.rivals) & set(learners.rivals)
    assert "cascade-routing-noisy-truth" not in fitted.rivals
    assert "wr-online-4x" not in default_methods()
    assert [group.name for group in groups_of(open_methods(["zero"]))] == ["fitted"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite")
    for i, name in enumerate(("wide", "long")):
        table = make_table(80, np.random.default_rng(i))
        if name == "wide":
            write_wide(table, path / "wide.parquet")
        else:
            n, k = table.reward.shape
            columns = {"sample_id": np.repeat(np.arange(n), k).astype(str), "prompt": np.repeat(table.prompts, k)}
            columns |= {
                "model": np.tile(table.models, n),
                "score": table.reward.ravel(),
                "cost": table.cost_usd.ravel(),
            }
            pl.DataFrame(columns).write_csv(path / "long.csv")
    (path / "README.md").write_text("# not a table")
    return path


@pytest.mark.slow
def test_the_command_compares_methods_over_the_tables_of_a_folder(folder, tmp_path):
    asked = ["bench", "--suite", str(folder), "--methods", "zero,always-best,always-cheapest,random", "--seeds", "2",
             "--budgets", "2", "--contexts", "2", "--jobs", "1", "--report", str(tmp_path)]  # fmt: skip
    text = CliRunner().invoke(app, asked)
    assert text.exit_code == 0, text.output
    assert "Fitted on the training half" in text.output
    assert "One answer per query" in text.output
    page = (tmp_path / "suite.html").read_text()
    assert all(heading in page for heading in ("Bounds", "zero-hindsight", "Origin", "long", "wide"))
    assert "| always-best |" in (tmp_path / "suite.md").read_text()
    asked += ["--before", str(tmp_path / "suite.csv")]
    figures = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert [table["table"] for table in figures["tables"]] == ["long", "wide"]
    assert {row["method"] for row in figures["groups"]["fitted"]["methods"] if row["rival"]} == {
        "zero", "always-best", "always-cheapest"
    }  # fmt: skip
    fitted = figures["groups"]["fitted"]["methods"]
    assert all(row["held_before"] == row["held"] for row in fitted if row["rival"])
    assert pl.read_csv(tmp_path / "suite.csv").height == sum(
        len(group["budgets"]) for group in figures["groups"].values()
    )


def test_a_bench_needs_a_table_or_a_suite(folder):
    for source in ([], ["some.parquet", "--suite", str(folder)]):
        refused = CliRunner().invoke(app, ["bench", *source])
        assert refused.exit_code != 0
        assert "either a table or --suite" in str(refused.exception) + refused.output


def test_the_report_of_a_suite_is_not_written_among_its_tables(folder):
    before = sorted(path.name for path in folder.iterdir())
    for report in (folder, folder / "new" / ".."):
        asked = ["bench", "--suite", str(folder), "--methods", "zero", "--report", str(report)]
        refused = CliRunner().invoke(app, asked)
        assert isinstance(refused.exception, InvalidInput)
        assert "--report must be another folder than that of the tables" in str(refused.exception)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_model_is_left_out_of_the_tables_that_have_it(folder, tmp_path):
    for name in ("wide.parquet", "long.csv"):
        shutil.copy(folder / name, tmp_path)
    local = pl.read_parquet(folder / "wide.parquet").with_columns(pl.lit(0.5).alias("score|local"))
    local.with_columns(pl.lit(0.0).alias("cost|local")).write_parquet(tmp_path / "with_local.parquet")
    tables = open_suite(tmp_path, leave_out=["local"])
    assert {each.name: each.left_out for each in tables} == {"long": (), "wide": (), "with_local": ("local",)}
    with pytest.raises(UnknownModel, match="got 'nowhere'"):
        open_suite(tmp_path, leave_out=["local", "nowhere"])
    assert [each.left_out for each in open_suite(tmp_path, leave_out=())] == [(), (), ()]
    for command in ("bench", "tune"):
        refused = CliRunner().invoke(app, [command, "--suite", str(tmp_path), "--report", str(tmp_path / "out")])
        assert "in with_local local cost nothing: leave free models out" in str(refused.exception)


def test_a_small_table_has_as_many_contexts_as_queries_to_learn_from():
    split = split_table(make_table(12, np.random.default_rng(0)), seed=0)
    assert (split.train.n, split.contexts.n_contexts) == (6, 6)


def test_a_suite_needs_tables_of_different_names(tmp_path):
    with pytest.raises(LogError, match="got none"):
        tables_in(tmp_path)
    for name in ("one.csv", "one.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(LogError, match="'one' twice"):
        tables_in(tmp_path)


@needs_tables
@pytest.mark.slow
def test_the_public_tables_are_a_suite():
    sizes = {each.name: each.table.reward.shape for each in open_suite(FOLDER)}
    assert sizes["routerbench_5shot_slice"] == (3150, 10)
    assert sizes["nq500"] == (500, 6)
    assert len(sizes) >= 7
