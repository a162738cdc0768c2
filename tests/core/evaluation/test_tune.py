"""Variants of methods by constants, and the choice of a constant by leaving tables out."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from support.bench_rows import write_wide
from support.tiny_bench import served
from wiserouter.cli import app
from wiserouter.cli.tune import values_of
from wiserouter.errors import InvalidInput, UnknownModel
from wiserouter.evaluation.baselines import module_of, open_methods
from wiserouter.evaluation.baselines.variants import parse_variant, value_of
from wiserouter.evaluation.bench.leave_one_out import leave_one_out
from wiserouter.evaluation.bench.splits import split_table
from wiserouter.evaluation.bench.tuned_constants import TUNED
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.learning import shrinkage

CONSTANT = "planning.policies.offline.RESOLVE_GROWTH"


@pytest.fixture(scope="module")
def work():
    return split_table(make_table(120, np.random.default_rng(0)), 0, n_contexts=3)


def test_a_variant_has_another_value_while_it_runs_and_no_longer(work):
    usual, same, other = (
        served(name, work, 1e-3)
        for name in ("wr-offline", f"wr-offline@{CONSTANT}={value_of(CONSTANT)!r}", f"wr-offline@{CONSTANT}=30")
    )
    assert usual["given"] == same["given"] != other["given"]
    assert served("wr-offline", work, 1e-3)["given"] == usual["given"]
    assert same["method"] == f"wr-offline@{CONSTANT}={value_of(CONSTANT)!r}"


def test_a_variant_reaches_names_that_were_imported():
    name = "learning.shrinkage.UNIDENTIFIED_STRENGTH"
    [variant] = open_methods([f"zero@{name}=3"])
    seen = []
    variant._method.fit = lambda training, rng: seen.append(shrinkage.UNIDENTIFIED_STRENGTH)
    before = shrinkage.UNIDENTIFIED_STRENGTH
    variant.fit(None, None)
    assert seen == [3.0]
    assert before == shrinkage.UNIDENTIFIED_STRENGTH != 3.0


def test_variants_are_opened_after_their_method():
    names = ["wr-offline@learning.shrinkage.PRIOR_COUNT=3", "zero", "wr-offline"]
    assert [each.name for each in open_methods(names)] == ["wr-offline", names[0], "zero"]
    assert module_of(names[0]) == module_of("wr-offline")
    assert open_methods([names[0]])[0].learns_from == "table"


@pytest.mark.parametrize(
    "name",
    ["wr-offline@learning.nowhere.X=1", "wr-offline@os.path.sep=1", "zero@x", "zero@errors.X=1", "nothing@a.B=1"],
)
def test_a_variant_must_name_a_method_and_a_number(name):
    with pytest.raises(InvalidInput):
        open_methods([name])


def test_the_example_of_the_error_exists():
    with pytest.raises(InvalidInput, match=r"such as learning\.shrinkage\.PRIOR_COUNT; got"):
        values_of(["nowhere.X"], [0.5])
    assert values_of(["learning.shrinkage.PRIOR_COUNT"], [0.5])


def test_the_tuned_constants_exist():
    tried = values_of(TUNED, [0.5, 2.0])
    assert all(len(values) == 3 for values in tried.values()), tried
    assert parse_variant(f"optimistic@{TUNED[0]}=0.5")[1] == {TUNED[0]: 0.5}


def test_a_constant_is_kept_unless_all_folds_agree_on_another():
    better = leave_one_out([1.0, 2.0], np.array([[0.5, 0.5, 0.5], [0.51, 0.52, 0.53]]))
    assert (better.chosen, better.verdict) == ([2.0] * 3, "change to 2")
    assert better.mean == pytest.approx(0.02)
    one = leave_one_out([1.0, 2.0], np.array([[0.5, 0.5, 0.5], [0.8, 0.49, 0.49]]))
    assert (one.best, one.verdict) == (2.0, "keep")
    assert one.chosen[0] == 1.0
    assert one.mean == pytest.approx((0.0 - 0.01 - 0.01) / 3)
    assert leave_one_out([1.0, 2.0], np.ones((2, 3))).verdict == "no effect"


@given(st.integers(2, 5), st.integers(2, 6), st.integers(0, 10_000))
def test_leaving_tables_out_against_a_loop(n_values, n_tables, seed):
    quality = np.random.default_rng(seed).random((n_values, n_tables)).round(2)
    found = leave_one_out(list(range(n_values)), quality)
    for t in range(n_tables):
        means = np.delete(quality, t, axis=1).mean(axis=1)
        assert means[int(found.chosen[t])] == pytest.approx(means.max())
        assert found.gain[t] == pytest.approx(quality[int(found.chosen[t]), t] - quality[0, t])
    assert found.mean <= found.spread + quality.max() - quality.min() + 1e-9


def test_the_command_leaves_models_out_that_its_tables_have(tmp_path):
    write_wide(make_table(20, np.random.default_rng(0)), tmp_path / "t.parquet")
    answer = CliRunner().invoke(app, ["tune", "--suite", str(tmp_path), "--leave-out", "no-such-model"])
    assert isinstance(answer.exception, UnknownModel), answer.output
    assert "no-such-model" in str(answer.exception)


@pytest.mark.slow
def test_the_command_judges_constants_on_the_tables_of_a_folder(tmp_path):
    for seed in (0, 1):
        write_wide(make_table(80, np.random.default_rng(seed)), tmp_path / "tables" / f"t{seed}.parquet")
    asked = ["tune", "--suite", str(tmp_path / "tables"), "--constants", CONSTANT, "--methods", "wr-offline",
             "--seeds", "1", "--budgets", "2", "--jobs", "1", "--report", str(tmp_path)]  # fmt: skip
    found = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    [row] = found["constants"]
    assert (row["constant"], row["method"], len(row["chosen"])) == (CONSTANT, "wr-offline", 2)
    assert f"| {CONSTANT} |" in (tmp_path / "tune.md").read_text(encoding="utf-8")
    assert f"| {CONSTANT} |" in CliRunner().invoke(app, asked).output
