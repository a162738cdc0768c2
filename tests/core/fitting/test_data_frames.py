"""Logs given as data frames, and what is no log."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

from wiserouter import RoutingLog, WiseRouter
from wiserouter.errors import InvalidInput, LogError
from wiserouter.fitting.log.data_frames import opened_log

WIDE = {
    "prompt": ["hi", "bye", "what?"],
    "score|small": [1.0, 0.0, None],
    "cost|small": [0.1, 0.2, None],
    "score|large": [1.0, 1.0, 0.5],
    "cost|large": [1.0, 2.0, 3.0],
}
LONG = {
    "prompt": ["hi", "hi", "bye"],
    "model": ["small", "large", "small"],
    "reward": [1, 1, 0],
    "cost_usd": [0.1, 1.0, 0.2],
}
FRAMES = {"polars": pl.DataFrame, "lazy": pl.LazyFrame, "pandas": pd.DataFrame}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("columns", [WIDE, LONG], ids=["wide", "long"])
def test_a_frame_is_read_as_a_file_of_its_columns(frame, columns, tmp_path):
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    expected = RoutingLog.read(tmp_path / "log.parquet").table()
    found = opened_log(FRAMES[frame](columns)).table()
    assert found.prompts == expected.prompts
    for name in ("reward", "cost_usd"):
        pd.testing.assert_frame_equal(*(pd.DataFrame(getattr(one, name)) for one in (found, expected)))


@pytest.mark.parametrize("frame", FRAMES)
def test_a_router_is_fitted_on_a_frame(frame):
    router = WiseRouter.fit(FRAMES[frame](WIDE), n_contexts=1)
    assert router.pool.names == ("small", "large")
    assert router.estimates.calls.sum() == 5


@pytest.mark.parametrize("log", [5, None, [("hi", 1.0)], {"prompt": ["hi"]}, pd.Series([1])], ids=repr)
def test_what_is_no_log_is_refused_plainly(log):
    with pytest.raises(InvalidInput, match=r"log must be a RoutingLog, the path of a file, or a data frame"):
        WiseRouter.fit(log)


def test_a_frame_of_other_columns_is_refused_as_a_file_is():
    with pytest.raises(LogError, match="prompt"):
        WiseRouter.fit(pd.DataFrame({"text": ["hi"]}))


def test_missing_values_of_nullable_columns_are_not_observed():
    frame = pd.DataFrame(LONG).astype({"prompt": "string", "reward": "Int64", "cost_usd": "Float64"})
    frame.loc[2, ["reward", "cost_usd"]] = pd.NA
    table = opened_log(frame).table()
    assert np.isnan(table.reward).sum() == np.isnan(opened_log(pd.DataFrame(LONG)).table().reward).sum() + 1
    assert np.nansum(table.cost_usd) == pytest.approx(1.1)


def test_missing_prompts_of_pandas_are_named_by_their_row():
    frame = pd.DataFrame(LONG).astype({"prompt": "string"})
    frame.loc[1, "prompt"] = pd.NA
    with pytest.raises(LogError, match="row 2, column 'prompt': text is missing"):
        opened_log(frame).table()


@pytest.mark.parametrize(
    "scores",
    [[True, 1, 0.5], [1, 0.5, None], ["up", 0, 0.5], [Decimal(1), 0.5, None], pd.Categorical(["up", "down", "up"])],
    ids=str,
)
def test_columns_of_several_types_are_read_as_a_csv_of_them(tmp_path, scores):
    frame = pd.DataFrame({**LONG, "reward": pd.Series(scores, dtype=None if hasattr(scores, "codes") else object)})
    frame["note"] = [1, "a", (2, "b")]  # a column that is not used
    frame.to_csv(tmp_path / "log.csv", index=False)
    expected = RoutingLog.read(tmp_path / "log.csv").table().reward
    np.testing.assert_array_equal(opened_log(frame).table().reward, expected)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["up", "down"])], ids=["categorical", "enum"])
def test_verdicts_of_categories_are_scores(kind):
    frame = pl.DataFrame(LONG | {"reward": ["up", "down", "up"]})
    found = opened_log(frame.with_columns(pl.col("reward").cast(kind))).table().reward
    np.testing.assert_array_equal(found, opened_log(frame).table().reward)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["$0.1", "0.5", ""])], ids=["categorical", "enum"])
def test_costs_of_categories_are_read_as_their_texts(kind):
    frame = pl.DataFrame(LONG | {"cost_usd": ["$0.1", "0.5", ""]})
    found = opened_log(frame.cast({"cost_usd": kind})).table().cost_usd
    np.testing.assert_array_equal(found, opened_log(frame).table().cost_usd)
