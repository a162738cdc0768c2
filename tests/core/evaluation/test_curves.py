"""Pictures of many methods: one's own in colour, the field in grey, names beside the lines, and a marked budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from support.bench_rows import rows_of
from wiserouter import Plan
from wiserouter.evaluation.curves import FIELD, NAMED, OWN, curve, draw_curves, spread
from wiserouter.evaluation.plots import new_figure, plot_plan, svg_of
from wiserouter.evaluation.report import aggregate, make_section, markdown_of, page_of
from wiserouter.evaluation.report.results_file import About, Results

PLAN = Plan(freq=[1.0], reward=[[0.2, 0.9]], cost_usd=[[0.01, 0.03]])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_names_keep_their_order_and_their_distance(heights):
    placed = spread(heights, 0.075)
    order = np.argsort(heights, kind="stable")
    assert (np.diff(placed[order]) >= 0.075 - 1e-9).all()
    assert placed.max() <= 1.0 + 1e-9
    if len(heights) == 1:
        assert placed[0] == heights[0]


def drawn(**options):
    axes = new_figure(height=3.0).subplots()
    curves = [curve(f"m{i}", [1.0, 2.0], [0.1 * i, 0.1 * i + 0.05]) for i in range(9)]
    draw_curves(axes, [*curves, curve("empty", [np.nan], [1.0])], "m3", **options)
    return axes


@pytest.mark.parametrize(
    ("options", "best"), [({}, {"m8", "m7", "m6", "m5"}), ({"least": True}, {"m0", "m1", "m2", "m4"})]
)
def test_ones_own_is_in_colour_the_best_four_are_named_and_the_rest_is_grey(options, best):
    axes = drawn(**options)
    assert {text.get_text() for text in axes.texts} == best | {"m3"}
    colours = [to_hex(line.get_color()) for line in axes.lines]
    assert (colours.count(OWN), colours.count(NAMED), colours.count(FIELD)) == (1, 4, 4)


def test_own_and_field_differ_in_lightness_for_readers_who_see_no_colour():
    def lightness(colour):
        return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) @ (0.2126, 0.7152, 0.0722) / 255

    assert lightness(FIELD) - lightness(OWN) > 0.35
    assert lightness(FIELD) - lightness(NAMED) > 0.35


def test_the_picture_of_a_plan_marks_the_budget_that_was_asked_for(tmp_path):
    for name, asked in (("none", None), ("asked", 0.02)):
        plot_plan(PLAN, ("small", "large"), tmp_path / f"{name}.svg", asked)
    pictures = {path.stem: path.read_text() for path in tmp_path.iterdir()}
    assert "0.02 USD buys 0.550" in pictures["asked"]  # a comment of matplotlib beside the glyphs
    assert "USD buys" not in pictures["none"]


@pytest.mark.filterwarnings("error")  # a label outside of the axes collapses them, which matplotlib warns of
def test_a_budget_above_all_useful_ones_is_within_the_picture_of_a_plan(tmp_path):
    for asked in (PLAN.ceiling_usd * 1.1, 50.0):
        plot_plan(PLAN, ("small", "large"), tmp_path / "rich.svg", asked)
        assert f"{asked:.3g} USD buys" in (tmp_path / "rich.svg").read_text()


def test_a_report_opens_with_three_sentences_and_one_picture():
    quality = {"wr-offline": [[0.5, 0.5], [0.8, 0.8]], "other": [[0.4, 0.4], [0.9, 0.9]]}
    rows = rows_of(quality, {"wr-offline": 0.9, "other": 1.0})
    about = About("table", "terms", list(quality), list(quality), [1.0, 2.0], {}, {})
    section = make_section("summary", aggregate(Results(rows, about)))
    sentences = section.text.split(". ")
    assert len(sentences) == 3
    assert sentences[0].endswith("at 1 of 2 budgets")
    assert "best other one, `other`" in sentences[1]
    assert sentences[2].startswith("It spends 90.0% of a budget on average and at most 90.0%, and keeps 2 of 2")
    assert svg_of(section.draw()).startswith(b"<?xml")
    page = page_of("title", "terms", [section], {}, {})
    assert page.count("<img") == 1
    assert "<table" not in page
    assert "|" not in markdown_of("title", "terms", [section], {})
