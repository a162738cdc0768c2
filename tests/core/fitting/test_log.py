import gzip
import json
import math
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.tables import FOLDER, PARETO, ROUTERBENCH, SWEBENCH, needs_tables
from wiserouter import RoutingLog
from wiserouter.errors import InvalidInput, LogError, UnknownModel
from wiserouter.fitting.log.files import reading
from wiserouter.fitting.log.query_keys import query_keys

FORMATS = ("parquet", "csv", "jsonl")
MODELS = ("small", "large", "odd|name, v2")


def write(frame: pl.DataFrame, path):
    {"parquet": frame.write_parquet, "csv": frame.write_csv, "jsonl": frame.write_ndjson}[path.suffix[1:]](path)
    return path


def wide(prompts, reward, cost_usd, models=MODELS):
    columns = {"id": list(range(len(prompts))), "prompt": prompts}
    for k, name in enumerate(models):
        columns |= {f"score|{name}": reward[:, k], f"cost|{name}": cost_usd[:, k]}
    return pl.DataFrame(columns, nan_to_null=True)


def long(prompts, reward, cost_usd, models=MODELS):
    rows = [
        (f"q{i}", prompts[i], models[k], reward[i, k], cost_usd[i, k])
        for i, k in np.argwhere(~(np.isnan(reward) & np.isnan(cost_usd)))
    ]
    schema = ["query_id", "prompt", "model", "reward", "cost_usd"]
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("reward", "cost_usd").fill_nan(None))


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-12, equal_nan=True)


@st.composite
def tables(draw):
    """Draw prompts of every kind, and a table with holes in which each model and query is seen at least once."""
    text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
    odd = st.sampled_from(["", 'say "hi", please', "two\nlines", "Grüße 日本", "null", " "])
    prompts = draw(st.lists(text | odd, min_size=3, max_size=12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (len(prompts), len(MODELS))
    reward, cost = rng.random(shape), rng.exponential(1e-3, shape)
    holes = rng.random(shape) < draw(st.sampled_from([0.0, 0.6]))
    holes[:, 0] = False
    holes[:3] &= ~np.eye(3, dtype=bool)
    reward[holes], cost[holes] = np.nan, np.nan
    reward[rng.random(shape) < 0.1] = np.nan  # answered, not judged
    return prompts, reward, cost


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("layout", [wide, long])
def test_every_format_and_layout_reads_the_same(tmp_path, ending, layout):
    @settings(max_examples=30, deadline=None)
    @given(tables(), st.integers(1, 20))
    def check(table, rows):
        prompts, reward, cost = table
        log = RoutingLog.read(write(layout(*table), tmp_path / f"log.{ending}"), models=MODELS)
        whole = log.table()
        assert whole.prompts == prompts
        same(whole.reward, reward)
        same(whole.cost_usd, cost)
        parts = list(log.batches(rows))
        assert max(len(part.prompts) for part in parts) <= rows
        once = next(iter(log.batches(1_000)))
        assert [p for part in parts for p in part.prompts] == once.prompts
        for field in ("query", "reward", "cost_usd"):
            same(np.concatenate([getattr(part, field) for part in parts]), getattr(once, field))

    check()


def test_compressed_csv(tmp_path):
    import gzip

    with gzip.open(tmp_path / "log.csv.gz", "wb") as file:
        file.write(b"prompt,model,reward,cost_usd\nhi,m,0.5,1e-3\n")
    assert RoutingLog.read(tmp_path / "log.csv.gz").table().cost_usd.tolist() == [[0.001]]


def test_routerbench_columns(tmp_path):
    frame = pl.DataFrame(
        {"prompt": ["a"], "gpt": [1], "gpt|total_cost": [0.01], "gpt|model_response": ["x"], "eval": [0.5]}
    )
    log = RoutingLog.read(write(frame, tmp_path / "log.parquet"))
    assert (log.models, log.table().reward.tolist(), log.table().cost_usd.tolist()) == (("gpt",), [[1.0]], [[0.01]])


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Int8, pl.Boolean, pl.Decimal(10, 2)])
def test_scores_of_any_numeric_type(tmp_path, dtype):
    frame = pl.DataFrame({"prompt": ["a", "b"], "score|m": [1, 0], "cost|m": [0.5, None]}).cast({"score|m": dtype})
    table = RoutingLog.read(write(frame, tmp_path / "log.parquet")).table()
    assert table.reward.ravel().tolist() == [1.0, 0.0]
    assert math.isnan(table.cost_usd[1, 0])


def test_long_logs_merge_the_calls_of_a_query_and_average_repeats(tmp_path):
    frame = pl.DataFrame(
        {
            "query_id": ["x", "y", "x", "x", "y"],
            "prompt": ["px", "py", "px", "px", "py"],
            "model": ["b", "a", "a", "a", "c"],
            "reward": [0.5, 0.25, 0.0, 1.0, None],
            "cost_usd": [1.0, 2.0, 3.0, 5.0, 7.0],
        }
    )
    log = RoutingLog.read(write(frame, tmp_path / "log.csv"))
    assert log.models == ("a", "b", "c")
    x, y = query_keys(["x", "y"]).tolist()
    assert [part.query.tolist() for part in log.batches(2)] == [[x, y], [x, x], [y]]
    table = log.table()
    assert table.prompts == ["px", "py"]
    same(table.reward, [[0.5, 0.5, np.nan], [0.25, np.nan, np.nan]])
    same(table.cost_usd, [[4.0, 1.0, np.nan], [2.0, np.nan, 7.0]])


def test_a_long_log_without_ids_has_a_query_per_row(tmp_path):
    frame = pl.DataFrame({"prompt": ["p", "p"], "model": ["a", "b"], "reward": [0.5, 1.0], "cost_usd": [1.0, 2.0]})
    table = RoutingLog.read(write(frame, tmp_path / "log.jsonl")).table()
    assert table.query.tolist() == [0, 1]


@pytest.mark.parametrize("layout", [wide, long])
def test_models_are_kept_in_the_order_asked_for(tmp_path, layout):
    reward = np.arange(9).reshape(3, 3) / 10
    path = write(layout(["a", "b", "c"], reward, reward), tmp_path / "log.parquet")
    log = RoutingLog.read(path, models=[MODELS[2], MODELS[0]])
    same(log.table().reward, reward[:, [2, 0]])
    assert sum(len(part.prompts) for part in RoutingLog.read(path, models=[MODELS[1]]).batches(1)) == 3
    with pytest.raises(UnknownModel, match="got 'gpt-9'"):
        RoutingLog.read(path, models=["gpt-9"])
    with pytest.raises(InvalidInput, match="unique"):
        RoutingLog.read(path, models=[MODELS[0], MODELS[0]])
    with pytest.raises(InvalidInput, match="at least one"):
        RoutingLog.read(path, models=[])


BAD_CELLS = [
    ("reward", "high", "must lie in"),
    ("reward", "1.5", "got"),
    ("reward", "-0.1", "must lie in"),
    ("reward", "inf", "must lie in"),
    ("cost_usd", "-0.01", "finite number of at least 0"),
    ("cost_usd", "inf", "finite number"),
    ("cost_usd", "free", "'free'"),
]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize(("column", "value", "says"), BAD_CELLS)
def test_a_bad_cell_is_named_by_file_row_and_column(tmp_path, ending, column, value, says):
    good = {"prompt": "p", "model": "m", "reward": "0.5", "cost_usd": "0.1"}
    frame = pl.DataFrame([good, good, good, good | {column: value}, good])
    path = write(frame, tmp_path / f"log.{ending}")
    log, handed_out = RoutingLog.read(path), []
    with pytest.raises(LogError, match=says) as error:
        handed_out.extend(log.batches(2))
    assert len(handed_out) == 1
    assert (error.value.file, error.value.row, error.value.column, error.value.value) == (path, 4, column, value)
    assert f"{path}, row 4, column '{column}'" in str(error.value)


@pytest.mark.parametrize("value", [1.5, -0.5, math.inf])
def test_a_bad_number_in_parquet_is_named(tmp_path, value):
    frame = pl.DataFrame({"prompt": ["a", "b"], "score|m": [0.5, value], "cost|m": [0.1, 0.1]})
    with pytest.raises(LogError, match="a reward must lie in") as error:
        RoutingLog.read(write(frame, tmp_path / "log.parquet")).table()
    assert (error.value.row, error.value.column, error.value.value) == (2, "score|m", value)


@pytest.mark.parametrize("column", ["prompt", "model"])
def test_missing_text_is_named(tmp_path, column):
    frame = pl.DataFrame({"prompt": ["a", "b"], "model": ["m", "m"], "reward": [0.5, 0.5], "cost_usd": [0.1, 0.1]})
    path = write(frame.with_columns(pl.lit(None, dtype=pl.String).alias(column)), tmp_path / "log.parquet")
    with pytest.raises(LogError, match=f"row 1, column '{column}': text is missing"):
        RoutingLog.read(path).table()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"prompt": ["a"], "model": ["m"], "reward": [1]}, "lacks cost_usd; found: prompt, model, reward"),
        ({"text": ["a"], "score|m": [1], "cost|m": [1]}, "read as wide, it lacks prompt"),
        ({"prompt": ["a"], "score|m": [1]}, "lacks model, cost_usd"),
        ({"id": [1]}, "a log must be wide"),
    ],
)
def test_columns_that_fit_no_layout(tmp_path, columns, says):
    with pytest.raises(LogError, match=says):
        RoutingLog.read(write(pl.DataFrame(columns), tmp_path / "log.parquet"))


def test_a_wanted_layout_is_kept_to(tmp_path):
    frame = pl.DataFrame({"prompt": ["a"], "model": ["m"], "reward": [0.5], "cost_usd": [0.1]})
    with pytest.raises(LogError, match="read as wide, it has no column pair of any model"):
        RoutingLog.read(write(frame, tmp_path / "log.parquet"), layout="wide")


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("columns", [("prompt", "model", "reward", "cost_usd"), ("prompt", "score|m", "cost|m")])
def test_an_empty_log_is_refused(tmp_path, ending, columns):
    path = write(pl.DataFrame(schema=dict.fromkeys(columns, pl.String)), tmp_path / f"log.{ending}")
    with pytest.raises(LogError, match=r"log\."):
        RoutingLog.read(path).table()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.parquet", b"PAR1 this is no table"),
        ("log.jsonl", b'{"prompt": "a", "model": "m", "reward": 1, "cost_usd": 1}\n{"prompt": \n'),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LogError, match="damaged or malformed") as error:
        RoutingLog.read(tmp_path / name).table()
    assert error.value.file == tmp_path / name
    assert error.value.__cause__ is not None


def test_a_file_without_permission_is_not_called_damaged(tmp_path):
    path = tmp_path / "log.csv"
    with pytest.raises(LogError, match=r"^[^ ]*log.csv: the file cannot be read: .*Permission denied"), reading(path):
        raise PermissionError(13, "Permission denied", str(path))


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.csv: no such file"):
        RoutingLog.read(tmp_path / "missing.csv")
    (tmp_path / "log.xlsx").write_text("x")
    with pytest.raises(LogError, match=r"must end in \.parquet, .* got 'log\.xlsx'"):
        RoutingLog.read(tmp_path / "log.xlsx")


def test_arrays_of_the_wrong_shape_are_refused():
    with pytest.raises(InvalidInput, match=r"shape \(1, 2\), got \(1, 1\)"):
        RoutingLog.from_arrays(["a"], [[0.5]], [[0.5]], ["m", "n"])
    with pytest.raises(LogError, match="reward must lie in"):
        RoutingLog.from_arrays(["a"], [[1.5]], [[0.5]], ["m"]).table()


@pytest.mark.parametrize("given", [{"prompts": "ab"}, {"models": "mn"}], ids=str)
def test_a_plain_text_is_no_list_of_texts(given):
    arrays = {"prompts": ["a", "b"], "models": ["m", "n"], "reward": [[0.5, 1.0]] * 2, "cost_usd": [[0.1, 0.2]] * 2}
    with pytest.raises(InvalidInput, match=r"(prompts|models) must be a list of texts, got the text '(ab|mn)'"):
        RoutingLog.from_arrays(**arrays | given)


@pytest.mark.parametrize(
    ("table", "says"), [([[0.1, 0.2], [0.3]], "got rows of different lengths"), ([["good", 0.2]], "could not convert")]
)
def test_a_table_that_is_none_is_named(table, says):
    whole = [[0.1, 0.2], [0.3, 0.4]]
    for name, tables in (("reward", (table, whole)), ("cost_usd", (whole, table))):
        with pytest.raises(InvalidInput, match=f"{name} must be a table of numbers, a row for each query.*{says}"):
            RoutingLog.from_arrays(["a", "b"], *tables, ["m", "n"])


# Edges of the formats


def put(tmp_path, name, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path / name


def refusal(path):
    with pytest.raises(LogError) as error:
        RoutingLog.read(path).table()
    return error.value


LONG_HEADER = "prompt,model,reward,cost_usd\n"


def test_csv_with_quotes_marks_and_empty_cells(tmp_path):
    body = '\ufeffprompt,model,reward,cost_usd\r\n"a ""b"",\nc",m,true, 1e-3 \r\n"",m,NaN,\r\n'
    table = RoutingLog.read(put(tmp_path, "log.csv", body)).table()
    assert table.prompts == ['a "b",\nc', ""]
    same(table.reward, [[1.0], [np.nan]])
    same(table.cost_usd, [[0.001], [np.nan]])


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
@pytest.mark.parametrize(
    ("rows", "row", "got"),
    [
        ("p,m,1,1\np,m,1,1,9,9\n", 2, 6),
        ("p,m,1,1,\n", 1, 5),
        ('"a, ""b"",\nc,,,,",m,1,1\r\n\np,m,1,1\nno, thanks,m,1,1\n', 4, 5),
    ],
)
def test_a_row_with_too_many_cells_is_named(tmp_path, name, rows, row, got):
    body = (LONG_HEADER + rows).encode()
    error = refusal(put(tmp_path, name, gzip.compress(body) if name.endswith(".gz") else body))
    assert (error.row, error.value, error.file) == (row, got, tmp_path / name)
    assert f"row {row}: a row of a csv must have at most the 4 cells of its header, got {got}: quote" in str(error)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_jsonl_may_begin_with_a_byte_order_mark(tmp_path, pack):
    rows = [{"prompt": "é", "model": "m", "reward": 1, "cost_usd": 0.1}] * 3
    body = "\ufeff" + "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_bytes(pack(body.encode()))
    assert [batch.prompts for batch in RoutingLog.read(tmp_path / "a.jsonl").batches(9)] == [["é"] * 3]


def test_an_empty_cell_of_csv_is_no_prompt(tmp_path):
    error = refusal(put(tmp_path, "log.csv", LONG_HEADER + "p,m,1,1\n,m,1,1\n"))
    assert (error.row, error.column) == (2, "prompt")


def test_a_jsonl_key_may_come_late(tmp_path):
    first = '{"prompt": "p", "score|a": 1, "cost|a": 0.1}\n' * 3000
    path = put(tmp_path, "log[1].jsonl", first + '\n{"prompt": "p", "score|b": true, "cost|b": 2}\n')
    log = RoutingLog.read(path)
    assert log.models == ("a", "b")
    same(log.table().reward[[0, -1]], [[1, np.nan], [np.nan, 1]])


@pytest.mark.parametrize("line", ['{"prompt": "p",', '{"prompt": "p", "score|a": NaN, "cost|a": 1}', "3"])
def test_a_malformed_line_of_jsonl_is_named(tmp_path, line):
    good = '{"prompt": "p", "score|a": 1, "cost|a": 1}\n'
    error = refusal(put(tmp_path, "log.jsonl", good + "\n" + good + line + "\n" + good))
    assert (error.row, error.value) == (3, line)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.csv", LONG_HEADER.encode() + b"\xff\xfe,m,1,1\n"),
        ("log.csv.gz", gzip.compress(LONG_HEADER.encode() + b"p,m,1,1\n" * 9000)[:-12]),
    ],
)
def test_more_damage(tmp_path, name, content):
    error = refusal(put(tmp_path, name, content))
    assert "damaged or malformed" in str(error)
    assert error.__cause__ is not None


def test_damage_in_the_middle_of_a_parquet(tmp_path):
    prompts = [f"prompt number {i}" for i in range(5000)]
    frame = pl.DataFrame({"prompt": prompts, "score|a": [0.5] * 5000, "cost|a": [0.5] * 5000})
    content = bytearray(write(frame, tmp_path / "log.parquet").read_bytes())
    content[1000:4000] = b"\xff" * 3000
    assert "damaged or malformed" in str(refusal(put(tmp_path, "log.parquet", bytes(content))))


def test_a_column_twice(tmp_path):
    error = refusal(put(tmp_path, "log.csv", "prompt,score|a,cost|a,score|a,cost|a\np,1,1,0,0\n"))
    assert error.column == "score|a"


@pytest.mark.parametrize(("half", "other"), [("score|b", "cost|b"), ("cost|b", "score|b")])
def test_half_a_model_is_refused(tmp_path, half, other):
    error = refusal(put(tmp_path, "log.csv", f"prompt,score|a,cost|a,{half}\n"))
    assert error.column == half
    assert f"{other!r} is missing" in str(error)


@pytest.mark.parametrize(
    ("column", "values"),
    [("prompt", [["chat"]]), ("prompt", [b"x"]), ("score|a", [[1.0]]), ("cost|a", [True]), ("cost|a", [b"1"])],
)
def test_columns_of_another_type(column, values):
    frame = pl.DataFrame({"prompt": ["p"], "score|a": [1], "cost|a": [1]}).with_columns(pl.Series(column, values))
    with pytest.raises(LogError, match="got") as error:
        RoutingLog.from_frame(frame).table()
    assert error.value.column == column


@pytest.mark.parametrize("rows", [1, 2, 8192])
def test_the_first_bad_row_is_named_whatever_the_batch(rows):
    log = RoutingLog.from_arrays(["p"] * 3, [[0, 0], [0, 9], [9, 0]], np.zeros((3, 2)), ("small", "large"))
    with pytest.raises(LogError) as error:
        list(log.batches(rows))
    assert (error.value.row, error.value.column) == (2, "score|large")


def test_rows_are_counted_across_slices(tmp_path):
    cost = np.zeros(70_000)
    cost[69_000] = -1.0
    frame = pl.DataFrame({"prompt": ["p"] * 70_000, "score|a": cost * 0, "cost|a": cost})
    batches = RoutingLog.read(write(frame, tmp_path / "log.parquet")).batches(30_000)
    assert [next(batches).query[[0, -1]].tolist() for _ in range(2)] == [[0, 29_999], [30_000, 59_999]]
    with pytest.raises(LogError, match="row 69001, column"):
        next(batches)


@pytest.mark.parametrize("ending", FORMATS)
def test_a_stream_may_be_left(tmp_path, ending):
    frame = pl.DataFrame({"prompt": ["p"] * 5000, "score|a": [0.5] * 5000, "cost|a": [0.5] * 5000})
    stream = RoutingLog.read(write(frame, tmp_path / f"log.{ending}")).batches(10)
    assert len(next(stream).prompts) == 10
    stream.close()


def test_importing_loads_no_polars():
    code = "import sys, wiserouter; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_tables
@pytest.mark.parametrize(
    ("name", "shape", "missing"), [(ROUTERBENCH, (3178, 11), 28), (PARETO, (1779, 4), 0), (SWEBENCH, (500, 10), 0)]
)
def test_the_public_tables(name, shape, missing):
    table = RoutingLog.read(FOLDER / f"{name}.parquet").table()
    assert table.reward.shape == table.cost_usd.shape == shape
    assert np.isnan(table.reward).any(axis=1).sum() == missing
