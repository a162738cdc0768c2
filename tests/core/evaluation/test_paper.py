"""Tables and figures of the paper: their data, not their appearance."""

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from support.tiny_bench import opened
from wiserouter.cli import app
from wiserouter.errors import InvalidInput
from wiserouter.evaluation import studies
from wiserouter.evaluation.arena.score import arena_score
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.evaluation.report import SECTIONS, About, Results, aggregate, make_section, make_sections, read_results
from wiserouter.evaluation.report.markdown import section_markdown
from wiserouter.evaluation.studies.ablations import dbscan, held_out
from wiserouter.evaluation.studies.variance import within

SPEND_RATIO = {"wr-offline": [0.9, 1.0], "static-lp": [1.2, 1.4], "zero": [1.0, 1.0]}
QUALITY = {"wr-offline": [0.6, 0.8], "static-lp": [0.5, 0.9], "zero": [0.3, 0.6]}
COLLECTED_USD = {"wr-offline": 8.0, "static-lp": 8.0, "zero": 0.0}


def rows():
    """Return rows of ten queries, two budgets and two seeds; the second seed is 0.02 better."""
    made = [
        {
            "method": method, "rate_usd": rate, "seed": seed, "queries": 10,
            "quality": QUALITY[method][b] + 0.02 * seed, "capped_quality": 0.5,
            "spend_usd": 10 * rate * SPEND_RATIO[method][b],
            "spend_ratio": SPEND_RATIO[method][b], "served": 1.0, "calls_per_query": 1.0,
            "collected_usd": COLLECTED_USD[method], "table_usd": 8.0, "bound": 1.0, "reward": [0.5] * 10,
            "prepare_s": 1.0, "fit_s": 0.5, "start_s": 0.25, "serve_s": 2.0, "decide_us": 1.0, "decide_p99_us": 2.0,
        }
        for method in QUALITY for b, rate in enumerate((1.0, 2.0)) for seed in (0, 1)
    ]  # fmt: skip
    return pl.DataFrame(made)


def results(methods=tuple(QUALITY)):
    about = About("made_up", "Terms.", list(methods), list(methods), [1.0, 2.0], {}, {})
    return Results(rows().filter(pl.col("method").is_in(methods)), about)


@pytest.fixture(scope="module")
def aggregates():
    return aggregate(results())


def lines(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}


def cells(section):
    return {row[0]: row[1:] for row in section.rows}


def test_the_frontier_draws_spend_and_quality(aggregates):
    [axes] = make_section("frontier", aggregates).draw().axes
    drawn = lines(axes)
    assert drawn.keys() == set(QUALITY)
    assert drawn["wr-offline"] == (pytest.approx([0.9, 2.0]), pytest.approx([0.61, 0.81]))
    assert axes.get_xscale() == "log"


def test_utilisation_is_the_remaining_share(aggregates):
    section = make_section("utilisation", aggregates)
    assert cells(section)["static-lp"][1] == "-0.400 ± 0.000 (-0.400)"
    [axes] = section.draw().axes
    left = [container.lines[0].get_ydata().tolist() for container in axes.containers]
    assert left == [pytest.approx([0.1, 0.0], abs=1e-9), pytest.approx([-0.2, -0.4]), pytest.approx([0.0, 0.0])]


def test_the_static_plan_is_shown_against_the_adaptive_one(aggregates):
    section = make_section("adaptive", aggregates)
    assert section.rows[1] == ["2", "1.4000", "1.4000", "1.0000", "1.0000", "+0.1000", "0.0000"]
    [axes] = section.draw().axes
    static, adapted = (container.lines[0].get_xydata() for container in axes.containers)
    assert static == pytest.approx(np.array([[1.2, -0.1], [1.4, 0.1]]))
    assert adapted == pytest.approx(np.array([[0.9, 0.0], [1.0, 0.0]]))


def test_the_verdict_is_the_lead_over_the_best_other_method(aggregates):
    section = make_section("verdict", aggregates)
    # at 1 static-lp would buy 0.51 / 1.2 of the way to its first point, at 2 half the way from that to the second
    first, second = (0.51 / 1.2, (0.51 + 0.91) / 2)
    assert section.rows == [
        ["1", "0.6100", "0.9000", "`static-lp`", f"{first:.4f}", "1.2000 †", f"**+{0.61 - first:.4f} ± 0.0017**"],
        ["2", "0.8100", "1.0000", "`static-lp`", f"{second:.4f}", "1.4000 †", f"**+{0.81 - second:.4f} ± 0.0000**"],
    ]
    [axes] = section.draw().axes
    [lead] = axes.containers
    assert lead.lines[0].get_ydata() == pytest.approx([0.61 - first, 0.81 - second])


def test_end_to_end_draws_affordable_methods_and_the_cost_of_collecting(aggregates):
    generous, constrained = make_section("end-to-end", aggregates).draw().axes
    assert lines(generous)["wr-offline"][0] == pytest.approx([17.0, 28.0])  # 8 to learn, 9 and 20 to serve
    assert lines(constrained)["wr-offline"][0] == pytest.approx([17.0])
    for axes in (generous, constrained):
        dashed = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
        assert list(dashed[-1].get_xdata()) == [8.0, 8.0]


def test_the_bill_counts_queries_that_earn_it_back(aggregates):
    section = make_section("bill", aggregates)
    assert "zero" not in cells(section)
    # zero pays 2 for the quality that costs wr-offline 0.9, and nothing buys its 0.8 from zero
    assert cells(section)["wr-offline"] == ["8", f"{8 / (2.0 - 0.9):,.0f}", "beyond"]
    assert cells(section)["static-lp"][1:] == [f"{8 / (0.5 * (0.5 / 0.3 + (1 + 0.2 / 0.3)) - 1.2):,.0f}", "beyond"]


def test_aiq_and_regret_draw_their_tables(aggregates):
    aiq, regret = make_section("aiq", aggregates), make_section("regret", aggregates)
    [axes] = aiq.draw().axes
    widths = sorted(bar.get_width() for bar in axes.patches)
    over_zero = sorted(float(row[2].split(" ±")[0]) for row in aiq.rows)
    assert widths == pytest.approx(over_zero, abs=1e-4)
    [axes] = regret.draw().axes
    shown = [float(cell) for cell in cells(regret)["wr-offline"]]
    assert lines(axes)["wr-offline"][1] == pytest.approx(shown, abs=1e-4)


def test_the_arena_score_is_that_of_the_best_budget(aggregates):
    section = make_section("aiq", aggregates)
    assert section.head[-1] == "arena"
    scores = [arena_score(quality, 1_000.0 * usd) for quality, usd in ((0.61, 0.9), (0.81, 2.0))]
    assert cells(section)["wr-offline"][-1] == f"{100 * max(scores):.2f}"


def test_training_is_preparing_fitting_and_tuning(aggregates):
    section = make_section("latency", aggregates)
    assert cells(section)["zero"][:2] == ["1.750", "1.000"]
    # two seeds, fitted once each, two budgets: 2 * 0.5 + 4 * (0.25 + 2)
    assert section.head[-1] == "all, s"
    assert cells(section)["zero"][-1] == "10.0"


def test_a_section_names_the_methods_that_it_needs():
    with pytest.raises(InvalidInput, match="static-lp"):
        make_section("adaptive", aggregate(results(["wr-offline", "zero"])))


def test_rows_read_from_a_file_make_every_section_of_a_report(tmp_path):
    results().write(tmp_path / "made_up.parquet")
    read = read_results(tmp_path / "made_up.parquet")
    assert read.about == results().about
    sections = make_sections(aggregate(read))
    assert [section.name for section in sections] == list(SECTIONS)
    [table1] = [section for section in sections if section.name == "table1"]
    assert "| zero | 0.3100 ± 0.0100 | 0.6100 ± 0.0100 |" in section_markdown(table1)


def test_the_paper_command_lists_its_names_and_refuses_others():
    shown = CliRunner().invoke(app, ["paper", "--help"])
    names = ("ablations", "accuracy", "breakpoints", "exploration-length", "simulation", "variance")
    assert all(name in shown.output for name in names)
    refused = CliRunner().invoke(app, ["paper", "table1", "rows.parquet"])
    assert isinstance(refused.exception, InvalidInput)
    assert str(refused.exception).startswith(f"NAME must be one of {', '.join(names)}, got 'table1'")


def test_a_figure_of_the_paper_is_printed_and_written_with_its_picture(tmp_path):
    asked = ["paper", "simulation", "--seeds", "1", "--horizon", "60", "-o", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    written = (tmp_path / "out" / "simulation.md").read_text()
    assert "| method | reward ratio |" in written
    assert written.splitlines()[0] in shown.output
    written_files = {file.name for file in (tmp_path / "out").iterdir()}
    assert written_files == {f"simulation.{kind}" for kind in ("md", "svg", "png")}


def test_a_table_of_the_paper_is_named_for_its_data(tmp_path):
    prompts, *figures, models = make_table(160, np.random.default_rng(0))
    columns = {
        f"{kind}|{name}": values[:, k]
        for kind, values in zip(("score", "cost"), figures, strict=True)
        for k, name in enumerate(models)
    }
    pl.DataFrame({"prompt": prompts, **columns}).write_parquet(tmp_path / "made_up.parquet")
    asked = ["paper", "variance", str(tmp_path / "made_up.parquet"), "--seeds", "1", "-o", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["made_up-variance.md"]
    assert "made_up: 160 queries, 4 models" in shown.output


@pytest.fixture(scope="module")
def table():
    made = make_table(160, np.random.default_rng(0))
    where = np.repeat(np.eye(2, dtype=np.float32), 80, axis=0)
    reward = np.where(where[:, :1] > 0, [[0.0, 1.0, 1.0, 1.0]], [[1.0, 0.0, 1.0, 1.0]])
    return opened(made._replace(reward=reward, cost_usd=np.tile([1.0, 2.0, 3.0, 4.0], (160, 1))), where)


def test_variance_vanishes_where_contexts_explain_all(table):
    found = cells(studies.variance(table, [0]))
    assert float(found["1"][0].split()[0]) == pytest.approx((0.25 + 0.25) / 4)
    assert float(found["8"][0].split()[0]) == 0.0
    assert float(found["1"][1].split()[0]) == 0.0
    rng = np.random.default_rng(0)
    values = rng.random((50, 3))
    assert within(values, np.zeros(50, dtype=int)) == pytest.approx(values.var(axis=0).mean())


def test_exploration_of_a_table_without_noise_is_exact(table):
    found = studies.accuracy(table, [0], n_contexts=2)
    assert found.rows[-1][:4] == ["4x", "100.0%", "0 ± 0", "1 ± 0"]
    assert [row[0] for row in found.rows] == ["1x", "2x", "3x", "4x"]


def test_ablations_change_one_setting_and_list_what_they_left_out(table):
    found = studies.ablations(table, [0], [None])
    assert [row[0].split(", ")[-1] for row in found.rows] == [
        *("J=16", "J=8", "J=12", "J=20"),
        *(f"DBSCAN {radius}" for radius in (0.2, 0.4, 0.6, 0.8)),
    ]
    assert "PCA 256 (there are not more than 2 dimensions)" in found.text
    assert {row[2] for row in found.rows} == {"2.0"}


def test_dbscan_finds_the_clusters_and_keeps_the_rest_together():
    rng = np.random.default_rng(0)
    directions = np.eye(3)[[0] * 40 + [1] * 20] + rng.normal(0, 0.01, (60, 3))
    strays = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    contexts = dbscan(0.1)(np.vstack([directions, strays]).astype(np.float32), 0)
    assert sorted(contexts.freq) == pytest.approx([2 / 62, 20 / 62, 40 / 62])


def test_a_fifth_of_the_training_half_is_held_out():
    learned, held = held_out(100, 0)
    assert (len(learned), len(held)) == (40, 10)
    assert not set(learned) & set(held)


def test_the_simulation_draws_regret_and_cost():
    section = studies.simulated([0], 200)
    assert section.text.strip().startswith("200 requests, ")
    regret, cost = section.draw().axes
    assert cells(section)["oracle"][4] == f"{lines(regret)['oracle'][1][-1]:.4f}"
    assert {row[0] for row in section.rows} <= set(lines(regret))
    assert "spend, USD" in cost.get_ylabel()
