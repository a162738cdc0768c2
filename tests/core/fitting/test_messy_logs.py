"""Logs as people have them: other names of columns, other scores, messages as prompts, tokens in place of costs."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from wiserouter import Model, Price, RoutingLog, WiseRouter
from wiserouter.cli import app
from wiserouter.errors import InvalidInput, LogError
from wiserouter.fitting.log import LogColumns, Scale
from wiserouter.fitting.log.scores import reward_of
from wiserouter.fitting.log.survey import survey

PRICES = {"small": Price(1e-6, 2e-6, cache_read=1e-7), "large": Price(1e-5, 3e-5)}
MESSAGES = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": [{"type": "text", "text": "sort a list"}]},
    {"role": "assistant", "content": "How?"},
    {"role": "user", "content": "yes, go on"},
]


def put(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def wiserouter(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


# Scores


@pytest.mark.parametrize(
    ("cells", "scale", "rewards"),
    [
        ([1, 3, 5, None], (1, 5), [0, 0.5, 1, np.nan]),
        (["1", " 5 ", "", "2"], (1, 5), [0, 1, np.nan, 0.25]),
        ([-1, 1, 0], (-1, 1), [0, 1, 0.5]),
        ([1, 6], (6, 1), [1, 0]),
        ([True, False, None], (0, 1), [1, 0, np.nan]),
        (["True", "FALSE", "thumbs up", "👎", "pass", "wrong", ""], (0, 1), [1, 0, 1, 0, 1, 0, np.nan]),
        (["up", "4"], (1, 5), [1, 0.75]),
        ([0.25, 1.0], (0, 1), [0.25, 1]),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_scores_of_any_scale(tmp_path, cells, scale, rewards, ending):
    frame = pl.DataFrame({"prompt": ["p"] * len(cells), "model": "m", "reward": pl.Series(cells), "cost_usd": 0.1})
    getattr(frame, {"csv": "write_csv", "parquet": "write_parquet", "jsonl": "write_ndjson"}[ending])(
        tmp_path / f"log.{ending}"
    )
    log = RoutingLog.read(tmp_path / f"log.{ending}", scale=scale)
    found = np.concatenate([batch.reward[:, 0] for batch in log.batches()])
    np.testing.assert_allclose(found, rewards)


@given(st.floats(-100, 100), st.floats(-100, 100), st.floats(0, 1))
def test_a_scale_maps_its_ends_to_0_and_1(worst, best, share):
    if abs(best - worst) < 1e-6:
        return
    scale = Scale(worst, best)
    assert (scale.reward(worst), scale.reward(best)) == (0.0, 1.0)
    inside = min(max(worst + share * (best - worst), scale.low), scale.high)
    assert reward_of(inside, scale) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("text", ["", "1", "1..1", "a..b", "1..5..9", "nan..1"])
def test_a_scale_that_is_none_is_refused(text):
    with pytest.raises(InvalidInput, match="scale"):
        Scale.parse(text)


def test_a_score_off_the_scale_names_the_way_out():
    frame = pl.DataFrame({"prompt": ["p"], "model": "m", "reward": [5], "cost_usd": 0.1})
    with pytest.raises(LogError, match=r"row 1, column 'reward': a reward must lie in \[0, 1\], got 5: give its scale"):
        RoutingLog.from_frame(frame).table()


# Columns


@pytest.mark.parametrize(
    ("columns", "places"),
    [
        (["messages", "model_name", "rating", "response_cost"], ("messages", "model_name", "rating", "response_cost")),
        (["Question", "Model", "Is Correct", "spend"], ("Question", "Model", "Is Correct", "spend")),
        (["prompt", "model", "reward", "cost_usd", "rating", "cost"], ("prompt", "model", "reward", "cost_usd")),
    ],
)
def test_well_known_names_are_found(columns, places):
    found = LogColumns().places(columns, None)
    assert tuple(found[name][0] for name in ("prompt", "model", "reward", "cost_usd")) == places


def test_one_of_several_scores_has_to_be_named(tmp_path):
    rows = [{"prompt": "p", "model": "m", "thumbs": "up", "rating": 2, "cost": 0.1}]
    path = put(tmp_path / "log.jsonl", rows)
    with pytest.raises(LogError, match="several columns may hold the score, rating, thumbs: say which"):
        RoutingLog.read(path)
    assert RoutingLog.read(path, columns=LogColumns(reward="thumbs")).table().reward.item() == 1.0
    rated = RoutingLog.read(path, columns=LogColumns(reward="rating"), scale=(1, 5))
    assert rated.table().reward.item() == 0.25
    with pytest.raises(LogError, match="no column 'stars' for its reward"):
        RoutingLog.read(path, columns=LogColumns(reward="stars"))


def test_a_path_leads_into_objects(tmp_path):
    rows = [{"input": {"q": "hi"}, "meta": {"llm": "m", "eval": {"ok": True}}, "cost": 0.1}]
    columns = LogColumns(prompt="input.q", model="meta.llm", reward="meta.eval.ok")
    for name in ("log.jsonl", "log.parquet"):
        put(tmp_path / name, rows) if name.endswith("jsonl") else pl.DataFrame(rows).write_parquet(tmp_path / name)
        table = RoutingLog.read(tmp_path / name, columns=columns).table()
        assert (table.prompts, table.reward.item()) == (["hi"], 1.0)


def test_errors_name_the_column_of_the_file(tmp_path):
    path = put(tmp_path / "log.jsonl", [{"question": "p", "model": "m", "rating": 9, "cost": 0.1}])
    with pytest.raises(LogError, match="column 'rating'"):
        RoutingLog.read(path).table()


# Prompts


@pytest.mark.parametrize(
    "cell",
    [
        MESSAGES,
        {"messages": MESSAGES},
        json.dumps(MESSAGES),
        [{"type": "system", "data": {"content": "Brief."}}, {"type": "human", "data": {"content": "sort a list"}}],
        [[{"lc": 1, "id": ["langchain", "HumanMessage"], "kwargs": {"content": "sort a list"}, "type": "constructor"}]],
        [{"role": "user", "parts": [{"type": "text", "content": "sort a list"}]}],
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "sort a list"}]}],
    ],
)
def test_of_messages_the_question_is_taken(tmp_path, cell):
    path = put(tmp_path / "log.jsonl", [{"prompt": cell, "model": "m", "cost": 0.1}, {"prompt": "hi", "model": "m"}])
    assert RoutingLog.read(path).table().prompts == ["sort a list", "hi"]


@pytest.mark.parametrize("text", ['{"a": 1}', "[1, 2]", "[draft] a text", '{"role": broken', '[{"role"' * 5_000, "{}"])
def test_other_texts_in_brackets_are_left_alone(text):
    frame = pl.DataFrame({"prompt": [text], "model": "m", "reward": 1.0, "cost_usd": 0.1})
    assert RoutingLog.from_frame(frame).table().prompts == [text]


@pytest.mark.parametrize("to_frame", [pl.DataFrame, pd.DataFrame])
def test_frames_hold_messages_as_objects(to_frame):
    texts = [one for one in MESSAGES if isinstance(one["content"], str)]  # polars has no cells of several types
    frame = to_frame(
        {"messages": [MESSAGES if to_frame is pd.DataFrame else texts, texts], "model": ["m", "m"], "cost": [0.1, 0.2]}
    )
    router = WiseRouter.fit(frame, n_contexts=1)
    assert router.estimates.cost.sum() == pytest.approx(0.3)


# Costs


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_cost_may_begin_with_a_dollar_sign(tmp_path, ending):
    frame = pl.DataFrame({"prompt": ["p"] * 3, "model": "m", "cost_usd": ["$0.001", " $2", ""]})
    getattr(frame, {"csv": "write_csv", "jsonl": "write_ndjson"}[ending])(tmp_path / f"log.{ending}")
    np.testing.assert_allclose(RoutingLog.read(tmp_path / f"log.{ending}").table().cost_usd[:, 0], [0.001, 2, np.nan])


def test_tokens_and_prices_replace_missing_costs(tmp_path):
    rows = [
        {"prompt": "p", "model": "small", "usage": {"prompt_tokens": 100, "completion_tokens": 10}},
        {
            "prompt": "p",
            "model": "small",
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 60}},
        },
        {"prompt": "p", "model": "large", "usage": {"input_tokens": 10, "output_tokens": 1}},
        {"prompt": "p", "model": "large", "usage": {"input_tokens": 10, "output_tokens": 1}, "cost": 0.5},
    ]
    path = put(tmp_path / "log.jsonl", rows)
    costs = np.concatenate([one.cost_usd for one in RoutingLog.read(path, prices=PRICES).batches()])
    expected = [100e-6 + 20e-6, 40e-6 + 6e-6 + 20e-6, 1e-4 + 3e-5, 0.5]
    np.testing.assert_allclose(np.nansum(costs, axis=1), expected)
    with pytest.raises(LogError, match="takes a price of every model, got none of large, small"):
        RoutingLog.read(put(tmp_path / "few.jsonl", rows[:3])).table()
    models = [Model(name, price) for name, price in PRICES.items()]
    router = WiseRouter.fit(tmp_path / "few.jsonl", n_contexts=1, models=models)
    assert router.estimates.calls.sum() == 3


# OpenAI batches


def batch_files(folder):
    requests = [
        {
            "custom_id": f"r{i}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "small", "messages": [{"role": "user", "content": f"question {i}"}]},
        }
        for i in range(3)
    ]
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    answers = [
        {
            "id": f"batch_req_{i}",
            "custom_id": f"r{i}",
            "response": {"status_code": 200, "request_id": "x", "body": {"model": "small", "usage": usage}},
            "error": None,
        }
        for i in (2, 0, 1)  # the service keeps no order
    ]
    scores = [{"custom_id": f"r{i}", "rating": i + 1} for i in range(3)]
    names = ("requests.jsonl", "answers.jsonl", "scores.jsonl")
    return [put(folder / name, rows) for name, rows in zip(names, (requests, answers, scores), strict=True)]


def test_the_files_of_a_batch_are_joined(tmp_path):
    requests, answers, scores = batch_files(tmp_path)
    log = RoutingLog.read(answers, joined=[requests, scores], prices=PRICES, scale=(1, 5))
    table = log.table()
    assert table.prompts == ["question 2", "question 0", "question 1"]
    np.testing.assert_allclose(table.reward[:, 0], [0.5, 0.0, 0.25])
    np.testing.assert_allclose(table.cost_usd, 120e-6)


def test_files_to_join_need_an_id_that_comes_once(tmp_path):
    _, answers, _ = batch_files(tmp_path)
    with pytest.raises(LogError, match="got 'r0' again"):
        RoutingLog.read(answers, joined=[put(tmp_path / "two.jsonl", [{"custom_id": "r0", "rating": 1}] * 2)])
    with pytest.raises(LogError, match="they share no column"):
        RoutingLog.read(answers, joined=[put(tmp_path / "other.jsonl", [{"name": "r0"}])])


def test_ids_that_are_kept_as_floats_are_joined_to_whole_numbers(tmp_path):
    log, scores = tmp_path / "log.parquet", tmp_path / "scores.parquet"
    calls = {"id": [1, 2, 2**53], "prompt": ["a", "b", "c"], "model": ["m"] * 3, "cost_usd": [0.1] * 3}
    pl.DataFrame(calls).write_parquet(log)
    pl.DataFrame({"id": [2.0**53, None, 2.0, float("nan")], "score": [0.75, 1.0, 0.25, 1.0]}).write_parquet(scores)
    reward = RoutingLog.read(log, joined=[scores]).table().reward[:, 0]
    assert np.array_equal(reward, [np.nan, 0.25, 0.75], equal_nan=True)


def test_a_file_of_which_no_id_is_in_the_log_is_refused(tmp_path):
    log = put(tmp_path / "log.jsonl", [{"id": f"r{n}", "prompt": "a", "model": "m", "cost_usd": 1} for n in range(2)])
    scores = put(tmp_path / "scores.jsonl", [{"id": "0", "score": 1}])
    rule = r"must have ids of the log, got '0' first and none of log.jsonl, where the first is 'r0': write them alike"
    with pytest.raises(LogError, match=rule):
        RoutingLog.read(log, joined=[scores])
    folder = tmp_path / "days"  # of a log of several files, each has the scores of some
    folder.mkdir()
    put(folder / "a.jsonl", [{"id": "0", "prompt": "a", "model": "m", "cost_usd": 1}])
    log.rename(folder / "b.jsonl")
    reward = RoutingLog.read(folder, joined=[scores]).table().reward[:, 0]
    assert np.array_equal(reward, [1.0, np.nan, np.nan], equal_nan=True)


@pytest.mark.parametrize("later", [1, 1.0, "1", None], ids=["whole", "float", "text", "none"])
def test_scores_may_be_in_a_file_of_each_day(tmp_path, later):
    log = put(tmp_path / "log.jsonl", [{"id": f"r{n}", "prompt": "a", "model": "m", "cost_usd": 1} for n in range(4)])
    monday = put(tmp_path / "monday.jsonl", [{"id": "r0", "score": 0}, {"id": "r2", "score": None}])
    tuesday = put(tmp_path / "tuesday.jsonl", [{"id": f"r{n}", "score": later, "cost_usd": 9} for n in (0, 1, 2)])
    table = RoutingLog.read(log, joined=[monday, tuesday]).table()
    found = np.nan if later is None else 1.0
    assert np.array_equal(table.reward[:, 0], [0.0, found, found, np.nan], equal_nan=True)
    np.testing.assert_allclose(table.cost_usd, 1.0)


def test_files_are_joined_by_a_column_that_is_no_id_only_where_it_names_one_row(tmp_path):
    calls = [{"trace": f"t{i}", "model": "small", "prompt": f"q{i}", "cost_usd": 0.1} for i in range(3)]
    log = put(tmp_path / "log.jsonl", calls)
    scores = put(tmp_path / "scores.jsonl", [{"trace": "t1", "score": 1}])
    assert np.isnan(RoutingLog.read(log, joined=[scores]).table().reward[:, 0]).tolist() == [True, False, True]
    with pytest.raises(LogError, match="both have model, which is none"):
        RoutingLog.read(log, joined=[put(tmp_path / "scores.jsonl", [{"model": "small", "score": 1}])])


@pytest.mark.parametrize("response", [{"status_code": 500, "body": {"error": {"message": "no"}}}, None])
@pytest.mark.parametrize("jobs", [(), ("--jobs", 2)])
def test_lines_of_a_batch_that_failed_are_left_out_and_counted(tmp_path, response, jobs):
    requests, answers, scores = batch_files(tmp_path)
    asked = [json.loads(line) for line in requests.read_text().splitlines()]
    for one in asked:
        one["body"]["model"] = "alias"
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    rows[1] |= {"response": response, "error": {"code": "batch_expired"}}
    options = ["--with", put(requests, asked), "--with", scores, "--scale", "1..5"]
    options += ["--prices", put(tmp_path / "prices.json", [{"small": {"price": {"input": 1e-6, "output": 2e-6}}}])]
    put(answers, rows)
    found = json.loads(wiserouter("log", "check", answers, *options, "--json"))
    assert (list(found["models"]), found["rows"], found["failed_lines"]) == (["small"], 2, 1)
    assert "Left out: 1 lines of the batch that failed" in wiserouter("log", "check", answers, *options)
    options += ["-o", tmp_path / "r.wise", "--contexts", 1, "--json", *jobs]
    assert json.loads(wiserouter("fit", answers, *options))["labels"] == {"small": 2}


# The command


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        ((0, 85), "try --scale 0..100"),
        ((1, 4), "try --scale 1..5"),
        ((-0.5, 1), "try --scale -1..1"),
        ((0, 9), "try --scale 0..10"),
        ((1, 4, float("inf")), "go from 1 to 4: try --scale 1..5"),
        ((0, 300), "give theirs with --scale WORST..BEST"),
    ],
)
def test_check_suggests_a_usual_scale_that_holds_the_scores(tmp_path, scores, says):
    pl.DataFrame({"prompt": "q", "model": "m", "cost": 0.1, "score": list(map(float, scores))}).write_parquet(
        tmp_path / "log.parquet"
    )
    assert says in wiserouter("log", "check", tmp_path / "log.parquet")


def test_a_price_list_may_hold_more_models_than_the_log(tmp_path, capsys):
    path = put(
        tmp_path / "log.jsonl", [{"prompt": f"q{i}", "model": "small", "cost": 0.1, "score": 1} for i in range(4)]
    )
    price = {"price": {"input": 1e-6, "output": 2e-6}}
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"small": price, "newest": price}))
    options = ("--prices", prices, "-o", tmp_path / "r.wise", "--contexts", 1, "--json")
    assert json.loads(wiserouter("fit", path, *options))["models"] == ["small"]
    prices.write_text(json.dumps({"newest": price}))
    with pytest.raises(InvalidInput, match=r"models must be in the log \(small\), got 'newest'"):
        wiserouter("fit", path, *options)


def test_check_shows_the_mapping_the_models_and_what_is_refused(tmp_path):
    rows = [
        {"question": f"q{i}", "model": "small" if i % 2 else "large", "rating": (i % 5) + 1, "cost": 0.1, "note": "x"}
        for i in range(10)
    ]
    rows += [{"question": None, "model": "small", "rating": 3, "cost": 0.1}, {**rows[0], "cost": -1}]
    path = put(tmp_path / "log.jsonl", rows)
    printed = wiserouter("log", "check", path)
    assert "try --scale 1..5" in printed
    found = json.loads(wiserouter("log", "check", path, "--scale", "1..5", "--json"))
    assert found["mapping"] == {"prompt": "question", "model": "model", "reward": "rating", "cost_usd": "cost"}
    assert (found["rows"], found["calls"]) == (12, 11)
    assert {one["column"]: one["rows"] for one in found["refused"]} == {"question": 1, "cost": 1}
    assert found["models"]["large"] == {
        "calls": 6, "scores": 6, "costs": 5, "mean_reward": pytest.approx(0.41666, abs=1e-4), "mean_cost_usd": 0.1
    }  # fmt: skip
    shown = wiserouter("log", "check", path, "--scale", "1..5")
    assert "Refused, 1 rows: row 11, column 'question': text is missing" in shown
    assert "11 calls, without the cells that are refused" in shown
    assert "Not used: note" in shown


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize(
    ("change", "code"),
    [({}, 0), ({"reward": 5}, 1), ({"cost_usd": None}, 1), ({"prompt": None}, 1), ({"cost_usd": "free"}, 1)],
)
def test_check_ends_with_1_where_a_fit_would_refuse_the_log(tmp_path, change, code, options):
    path = put(tmp_path / "log.jsonl", [{"prompt": "q", "model": "small", "reward": 1, "cost_usd": 0.1, **change}] * 2)
    assert CliRunner().invoke(app, ["log", "check", str(path), *options]).exit_code == code
    fitted = CliRunner().invoke(app, ["fit", str(path), "-o", str(tmp_path / "r.wise")])
    assert (fitted.exit_code == 0) == (code == 0)


def test_check_names_the_models_whose_costs_are_missing(tmp_path):
    row = {"prompt": "q", "model": "small", "reward": 1.0, "cost_usd": None}
    path = put(tmp_path / "log.jsonl", [row, {**row, "model": "large", "cost_usd": 0.1}])
    shown = wiserouter("log", "check", path)
    assert "No cost of small: give their costs" in shown
    assert "Next:" not in shown
    assert "Next: wiserouter fit" in wiserouter("log", "check", put(path, [{**row, "cost_usd": 0.1}]))


@pytest.mark.parametrize("name", ["", "  "])
@pytest.mark.parametrize("command", [("log", "check"), ("fit", "-o", "unused.wise")])
def test_a_call_with_an_empty_name_of_a_model_is_named_by_its_row(tmp_path, command, name):
    row = {"prompt": "q", "model": "small", "reward": 1, "cost": 0.1}
    path = put(tmp_path / "log.jsonl", [row, {**row, "model": name}])
    with pytest.raises(LogError, match=r"row 2, column 'model': a name is empty"):
        wiserouter(*command, path)


def test_the_next_command_is_quoted_for_the_shell(tmp_path):
    path = put(
        tmp_path / "a file [bold] with a long name, longer than a line.jsonl",
        [{"prompt": "q", "model": "m", "cost_usd": 0.1}] * 2,
    )
    assert f"Next: wiserouter fit '{path}', with the same options" in wiserouter("log", "check", path)


def test_check_names_no_column_as_unused_of_which_a_part_is_read(tmp_path):
    row = {"prompt": "q", "model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 5}, "usage_note": "x"}
    assert "Not used: usage_note\n" in wiserouter("log", "check", put(tmp_path / "log.jsonl", [row] * 2))


def test_check_takes_what_a_fit_takes(tmp_path):
    path = put(tmp_path / "log.jsonl", [{"prompt": "q", "model": "m", "cost_usd": 0.1}] * 2)
    for log in (path, tmp_path, tmp_path / "*.jsonl", path.as_uri()):
        assert f"Next: wiserouter fit '{log}'".replace("'", "") in wiserouter("log", "check", log).replace("'", "")


def test_check_agrees_with_the_reader(tmp_path):
    requests, answers, scores = batch_files(tmp_path)
    log = RoutingLog.read(answers, joined=[requests, scores], scale=(1, 3))
    found = survey(log)
    assert found.unpriced == ("small",)
    table = log.priced(PRICES).table()
    one = survey(log.priced(PRICES)).models["small"]
    assert (one.mean_reward, one.mean_cost_usd) == pytest.approx((table.reward.mean(), table.cost_usd.mean()))


def test_fit_prints_the_labels_of_each_model(tmp_path):
    rows = [
        {"question": f"q{i}", "model": "small" if i % 2 else "large", "thumbs": "up" if i % 4 else None, "cost": 0.1}
        for i in range(12)
    ]
    rows += [{"question": "q", "model": "silent", "thumbs": None, "cost": 0.2}]
    path, artifact = put(tmp_path / "log.jsonl", rows), tmp_path / "r.wise"
    fitted = json.loads(wiserouter("fit", path, "-o", artifact, "--contexts", 2, "--json"))
    assert fitted["labels"] == {"large": 3, "silent": 0, "small": 6}
    assert "No score: silent." in wiserouter("fit", path, "-o", artifact, "--contexts", 2)


def test_fit_takes_the_files_of_a_batch(tmp_path):
    requests, answers, scores = batch_files(tmp_path)
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"small": {"price": {"input": 1e-6, "output": 2e-6}}}))
    options = ("--with", requests, "--with", scores, "--scale", "1..5", "--prices", prices)
    fitted = json.loads(wiserouter("fit", answers, *options, "-o", tmp_path / "r.wise", "--contexts", 1, "--json"))
    assert fitted["labels"] == {"small": 3}


def test_blanks_around_names_of_models_and_columns_do_not_count(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"{ask},{model},0.5, 0.01" for ask in ("a", "b", "c") for model in ("small", " small", "large ", "large")]
    path.write_text("prompt , model, reward, cost\n" + "\n".join(rows) + "\n")
    log = RoutingLog.read(path)
    assert log.models == ("large", "small")
    assert np.nansum(log.table().cost_usd, axis=0) == pytest.approx([0.06, 0.06])
    assert {name: one.calls for name, one in survey(log).models.items()} == {"large": 6, "small": 6}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("log.tsv", "a\tb\n", r"got 'log.tsv': convert it, such as with polars.read_csv\(file, separator="),
        ("log.json", "[]", r"got 'log.json': convert it, such as with polars.read_json\(file\).write_ndjson"),
        ("log.xlsx", "PK", "got 'log.xlsx': export it as csv, in UTF-8 and with commas"),
        ("log.jsonl.gz", "", "got 'log.jsonl.gz': unpack it"),
        ("log", "", "got 'log': export it so, or correct the name"),
        ("log.csv", "", "the log must hold at least one row, got an empty file"),
        ("log.jsonl", " \n\n", "the log must hold at least one row, got an empty file"),
        ("log.parquet", "", "the log must hold at least one row, got an empty file"),
        ("log.csv", "sep=;\nprompt;model\n", "the first line must name the columns, got 'sep=;': delete that line"),
        ("log.jsonl", '[{"prompt": "a"}]', r"convert the list, such as with polars.read_json\(file\).write_ndjson"),
        ("log.csv", "prompt,model,Cost (USD)\na,m,1\n", r"name it with --cost COLUMN \(in Python LogColumns\)"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_the_way_out(tmp_path, name, text, says):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(LogError, match=says):
        RoutingLog.read(path)


def test_the_lack_of_prompts_says_that_rows_of_one_id_are_one_query(tmp_path, caplog):
    rows = [{"query_id": 7, "prompt": f"word{i}", "model": "m", "reward": 0.5, "cost_usd": 0.1} for i in range(40)]
    WiseRouter.fit(put(tmp_path / "log.jsonl", rows), n_contexts=2)
    assert "the log has no more different prompts (rows of one query_id count as one)" in caplog.text


@pytest.mark.parametrize("field", ["model", "reward", "cost_usd", "input_tokens", "effort"])
def test_a_column_that_a_wide_log_cannot_have_is_refused(tmp_path, field):
    path = put(tmp_path / "log.jsonl", [{"prompt": "hi", "score|small": 1.0, "cost|small": 0.1, "thumbs": 0}])
    with pytest.raises(LogError, match=rf"score\|<model> and cost\|<model>, got a column for {field}: leave that out"):
        RoutingLog.read(path, columns=LogColumns(**{field: "thumbs"}))
    assert RoutingLog.read(path, columns=LogColumns(prompt="prompt", query_id="thumbs")).models == ("small",)
