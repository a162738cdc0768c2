import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.dataframe.group_by import GroupBy
from typer.testing import CliRunner

from support.bench_rows import rows_of
from support.tiny_bench import opened
from wiserouter.cli import app
from wiserouter.errors import InvalidInput, LogError, UnknownModel
from wiserouter.evaluation.bench import Bench, budgets_of, run_bench
from wiserouter.evaluation.bench.oracles import BOUNDS
from wiserouter.evaluation.datasets import open_table
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.evaluation.report import (
    About,
    Results,
    aggregate,
    compare_methods,
    make_sections,
    markdown_of,
    read_results,
)
from wiserouter.evaluation.report.bootstrap import interval, replicate_means
from wiserouter.evaluation.report.cost_quality_hull import Hull
from wiserouter.evaluation.report.end_to_end import end_to_end

POINTS = st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1)), min_size=1, max_size=12)


@given(POINTS)
@settings(max_examples=60, deadline=None)
def test_a_hull_is_concave_rises_and_covers_its_points(points):
    spend, quality = np.array(points).T
    hull = Hull(spend, quality)
    values = hull.at(np.linspace(0, 11, 200))
    assert (hull.at(spend) >= quality - 1e-9).all()
    assert (np.diff(values) >= -1e-9).all()
    assert (np.diff(values, 2) <= 1e-9).all()
    assert values[-1] == pytest.approx(quality.max())


@given(POINTS, st.floats(0, 11))
@settings(max_examples=60, deadline=None)
def test_a_hull_is_the_best_mixture_of_two_points(points, asked):
    both = [(0.0, 0.0), *points]
    mixtures = [y for x, y in both if x <= asked]
    for x0, y0 in both:
        for x1, y1 in both:
            if x0 < asked < x1:
                mixtures.append(y0 + (y1 - y0) * (asked - x0) / (x1 - x0))
    assert Hull(*np.array(points).T).at(asked) == pytest.approx(max(mixtures), abs=1e-9)


def test_aiq_is_the_mean_height_of_the_hull():
    hull = Hull([1.0, 3.0], [0.4, 0.8])
    assert hull.mean(2.0, 2.0) == pytest.approx(0.6)
    assert hull.mean(1.0, 3.0) == pytest.approx(0.6)
    assert hull.mean(0.0, 4.0) == pytest.approx((0.2 * 1 + 0.6 * 2 + 0.8 * 1) / 4)


def test_bootstrap_intervals_of_a_coin_are_those_of_the_binomial():
    rng = np.random.default_rng(0)
    coin = (rng.random((400, 1)) < 0.5).astype(float)
    low, high = interval(replicate_means([coin], rng))
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.1)
    seeds = [np.full((50, 1), value) for value in (0.0, 0.5, 1.0)]
    assert replicate_means(seeds, rng).std() == pytest.approx(np.std([0.0, 0.5, 1.0]) / np.sqrt(3), rel=0.1)


QUALITY = {"a": [[0.5, 0.7], [0.8, 0.8]], "b": [[0.55, 0.55], [0.7, 0.7]], "zero": [[0.4, 0.4], [0.6, 0.6]]}
ROWS = rows_of(QUALITY, {"a": 1.0, "b": 1.0, "zero": 2.0})


def test_verdicts_by_hand():
    by_budget, by_method = compare_methods(ROWS, QUALITY, QUALITY)
    by_budget = by_budget.sort("rate_usd", "method")
    assert by_budget["verdict"].to_list() == ["best", "within 1 s.e.", "", "best", "", ""]
    behind = by_budget.filter(method="b", rate_usd=1.0)
    assert behind["behind"].item() == pytest.approx(0.05)
    assert behind["behind_se"].item() == pytest.approx(0.1)  # differences -0.05 and 0.15
    assert by_method["best_or_within"].to_list() == [2, 1, 0]
    assert by_budget["regret"].to_list() == pytest.approx([0.4, 0.45, 0.8, 0.2, 0.3, 0.6])


def test_a_method_that_overspends_is_judged_at_equal_spend():
    by_budget, _ = compare_methods(ROWS, QUALITY, QUALITY)
    zero = by_budget.filter(method="zero")
    assert not zero["kept"].any()
    assert zero["judged"].to_list() == pytest.approx([0.2, 0.4])  # it spends 2 and 4 USD for 0.4 and 0.6
    assert by_budget.filter(method="a")["judged"].to_list() == pytest.approx([0.6, 0.8])


def test_a_budget_that_is_kept_on_average_is_not_kept_in_each_run():
    of_seed = pl.when(pl.col("method") != "a").then(1.0).when(pl.col("seed") == 0).then(1.2).otherwise(0.8)
    rows = ROWS.with_columns(pl.col("spend_ratio", "spend_usd") * of_seed)
    by_budget, _ = compare_methods(rows, QUALITY, QUALITY)
    a = by_budget.filter(method="a").sort("rate_usd")
    assert a["spend_ratio"].to_list() == pytest.approx([1.0, 1.0])
    assert not a["kept"].any()
    # seed 0 spends 1.2 and 2.4 USD for 0.5 and 0.8; 1 and 2 USD buy 0.5 / 1.2 and 0.7; seed 1 keeps its budgets
    assert a["judged"].to_list() == pytest.approx([(0.5 / 1.2 + 0.7) / 2, (0.7 + 0.8) / 2])


def test_only_rivals_are_compared():
    by_budget, _ = compare_methods(ROWS, QUALITY, ["b", "zero"])
    assert by_budget.filter(method="a")["verdict"].to_list() == ["", ""]
    assert by_budget.filter(method="b")["verdict"].to_list() == ["best", "best"]


def test_end_to_end_budgets_pay_for_learning():
    spent = end_to_end(ROWS, ["a", "b"])
    assert list(spent.budgets_usd.values()) == pytest.approx([1.2, 1.5, 3.0, 4.0])
    assert np.isnan(spent.quality[0, :2]).all()  # 2 USD per query to learn, 1 to serve
    assert spent.quality[0, 2:] == pytest.approx([0.6, 0.8], abs=0.01)
    assert spent.quality[1, 1:] == pytest.approx([0.55, 0.7, 0.7], abs=0.01)
    assert spent.collected.tolist() == [1.0, 0.25]


def about(**changes):
    said = {"table": "made up", "terms": "Terms.", "methods": list(QUALITY), "rivals": list(QUALITY)}
    said |= {"shown_usd": [1.0, 2.0], "notes": {"zero": "is given much"}, "origin": {"seeds": "0, 1"}}
    return About(**(said | changes))


def test_a_report_marks_methods_that_overspend_and_lists_notes():
    said = about()
    text = markdown_of("Bench", said.terms, make_sections(aggregate(Results(ROWS, said))), said.notes)
    assert "| zero | 0.4000 ± 0.0000 † |" in text
    assert "| a | **0.6000 ± 0.1000** | **0.8000 ± 0.0000** |" in text
    assert "| USD | B=2 | B=4 |" in text
    assert "- `zero` is given much." in text
    assert "nan" not in text


def test_no_text_is_averaged_since_polars_2_refuses_that(monkeypatch):
    mean = GroupBy.mean

    def strict(grouped):
        texts = {name for name, dtype in grouped.df.schema.items() if dtype == pl.String}
        assert texts <= set(grouped.by)
        return mean(grouped)

    monkeypatch.setattr(GroupBy, "mean", strict)
    assert make_sections(aggregate(Results(ROWS, about())))


def test_rows_carry_the_description_of_the_bench(tmp_path):
    Results(ROWS, about()).write(tmp_path / "rows.parquet")
    rows, said = read_results(tmp_path / "rows.parquet")
    assert rows.equals(ROWS)
    assert said == about()
    ROWS.write_parquet(tmp_path / "bare.parquet")
    (tmp_path / "no.parquet").write_text("no")
    for name in ("bare", "no"):
        with pytest.raises(LogError):
            read_results(tmp_path / f"{name}.parquet")


def test_budgets_are_the_papers():
    routerbench = np.array([2.52, 19.92, 37.31, 54.71, 72.10, 151.42])
    assert budgets_of(np.array([[2.52, 151.42]])).paper == pytest.approx(routerbench, abs=0.01)
    swebench = np.array([232.72, 253.04, 273.37, 293.69, 314.02, 659.44])
    assert budgets_of(np.array([[232.72, 659.44]])).paper == pytest.approx(swebench, abs=0.01)
    assert len(budgets_of(np.array([[1.0, 9.0]]), 6, 7).all) == 13
    assert budgets_of(np.array([[8.0, 9.0]]), 3).paper == (8.0, 8.5, 9.0)
    assert budgets_of(np.array([[2.0, 2.0]]), 6, 7) == ((2.0,), (2.0,))
    with pytest.raises(InvalidInput, match="free"):
        budgets_of(np.array([[0.0, 1.0]]))


@pytest.fixture
def log(tmp_path):
    prompts, reward, cost, models = make_table(120, np.random.default_rng(0))
    columns = {"prompt": prompts}
    for k, name in enumerate(models):
        columns |= {f"score|{name}": reward[:, k], f"cost|{name}": cost[:, k]}
    path = tmp_path / "made_up.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


def test_models_are_left_out_by_name(log, tmp_path):
    read = open_table(log, leave_out=["nano"])
    assert (read.name, read.table.models, read.left_out) == ("made_up", ("mini", "coder", "max"), ("nano",))
    assert read.sha256 == open_table(log).sha256
    with pytest.raises(UnknownModel):
        open_table(log, leave_out=["Yi-34B-Chat"])
    routerbench = tmp_path / "routerbench_slice.parquet"
    frame = pl.read_parquet(log).rename({"score|max": "score|Yi-34B-Chat", "cost|max": "cost|Yi-34B-Chat"})
    frame[5, "score|Yi-34B-Chat"] = None
    frame.write_parquet(routerbench)
    read = open_table(routerbench, leave_out=None)
    assert (read.left_out, read.dropped) == (("Yi-34B-Chat",), 0)
    read = open_table(routerbench)
    assert (read.left_out, read.dropped) == ((), 1)
    with pytest.raises(LogError):
        open_table(log, leave_out=["nano", "mini", "coder", "max"])


def test_the_command_writes_a_report_and_resumes(log, tmp_path):
    asked = ["bench", str(log), "--methods", "wr-offline,zero", "--seeds", "2", "--budgets", "3", "--log-budgets", "0"]
    asked += ["--contexts", "3", "--jobs", "1", "--report", str(tmp_path / "out")]
    first = CliRunner().invoke(app, asked)
    assert first.exit_code == 0, first.output
    seconds = first.output.partition("Seconds of processor time")[2]
    printed = [line.split("│") for line in seconds.splitlines() if "│" in line]
    assert {len([cell for cell in row if cell.strip()]) for row in printed} == {5}
    assert [row[0].strip() for row in printed][-1] == "all"
    assert all(float(cell) >= 0.0 for row in printed for cell in row[1:])
    text = (tmp_path / "out" / "made_up.md").read_text(encoding="utf-8")
    assert "## Budget left" in text
    rows = pl.read_parquet(tmp_path / "out" / "made_up.parquet")
    assert set(rows["method"]) == {"wr-offline", "zero", *BOUNDS}
    assert (rows["quality"] <= rows["bound_at_spend"] + 1e-9).all()
    done = sorted((tmp_path / "out" / "done").iterdir())
    figures = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert [one["method"] for one in figures["methods"]] == ["wr-offline", "zero", *BOUNDS]
    assert len(figures["budgets"]) == 3 * len(figures["methods"])
    assert sorted((tmp_path / "out" / "done").iterdir()) == done
    assert (tmp_path / "out" / "made_up.md").read_text(encoding="utf-8") == text


def test_a_failed_task_leaves_the_finished_rows(tmp_path, monkeypatch):
    table = opened(make_table(60, np.random.default_rng(0)))
    work = Bench(table, budgets_of(table.table.cost_usd, 2), ("zero", *BOUNDS), seeds=(0,), n_contexts=2)
    monkeypatch.setitem(BOUNDS, "oracle-contexts", None)
    with pytest.raises(TypeError):
        run_bench(work, tmp_path)
    monkeypatch.undo()
    done = []
    run_bench(work, tmp_path, tick=done.append)
    assert done == [4, 2, 2, 2]
