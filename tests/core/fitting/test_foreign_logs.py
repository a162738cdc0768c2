"""Logs from elsewhere: a file that exceeds a limit is refused in one line, soon and in bounded memory."""

import gzip
import json
import sys
import time

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.memory import output_and_peak_mb
from wiserouter import RoutingLog
from wiserouter.errors import LogError
from wiserouter.fitting.log.jsonl import MAX_DEPTH, _depth
from wiserouter.fitting.log.limits import MAX_COLUMNS, MAX_HEADER_BYTES, MAX_MODELS, MAX_ROW_BYTES

HEADER = "prompt,model,reward,cost_usd\n"
LINE = '{"prompt": "p", "model": "m", "reward": 1, "cost_usd": 1}\n'


def put(tmp_path, name, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path / name


def refusal(path):
    start = time.perf_counter()
    with pytest.raises(LogError) as error:
        RoutingLog.read(path).table()
    assert time.perf_counter() - start < 60.0
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600
    return error.value


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
def test_a_line_nested_too_deep_is_refused(tmp_path, opening, closing, depth):
    nested = opening * depth + "1" + closing * depth
    path = put(tmp_path, "log.jsonl", LINE + "\n" + LINE + LINE.replace("{", f'{{"x": {nested}, ', 1))
    error = refusal(path)
    assert error.row == 3
    assert "nested at most 100 deep" in str(error)


def test_brackets_in_a_text_are_no_nesting(tmp_path):
    prompt = '[{"' * 5_000 + '\\"[' * 5_000
    nested = json.loads("[" * 90 + "]" * 90)
    line = {"prompt": prompt, "model": "m", "reward": 1, "cost_usd": 1, "extra": nested}
    path = put(tmp_path, "log.jsonl", json.dumps(line) + "\n")
    assert RoutingLog.read(path).table().prompts == [prompt]


VALUES = st.recursive(
    st.text("[]{}\\\"' a") | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}\\"'), inner)
)


def depth_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@settings(max_examples=100)
@given(VALUES)
def test_depth_is_that_of_the_parsed_value(value):
    assert _depth(json.dumps(value)) == depth_of(value)


def test_a_line_that_never_closes_a_string_takes_no_time(tmp_path):
    path = put(tmp_path, "log.jsonl", '{"prompt": ' + "[" * 200 + '"' + '\\"' * (MAX_ROW_BYTES // 2 - 200))
    assert "nested at most" in str(refusal(path))


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("log.csv", HEADER + "p,m,1,1\n", ",m,1,1\n"),
        ("log.csv", HEADER + 'p,m,1,1\n"', '",m,1,1\n'),
        ("log.jsonl", LINE + '{"prompt": "', '"}\n'),
    ],
)
def test_a_row_that_is_too_long_is_refused(tmp_path, name, start, end):
    path = put(tmp_path, name, start + "x" * (MAX_ROW_BYTES + 1) + end)
    assert "at most 8,388,608 bytes, got more from line" in str(refusal(path))


def test_a_quote_that_stays_open_is_refused_where_it_opens(tmp_path):
    error = refusal(put(tmp_path, "log.csv", HEADER + 'p,m,1,1\n"p,m,1,1\n' + "p,m,1,1\n" * 1_500_000))
    assert "got more from line 3 on: shorten its texts, or close the quote" in str(error)


def test_a_text_that_is_too_long_is_refused_in_any_format(tmp_path):
    frame = pl.DataFrame({"prompt": ["p", "x" * (MAX_ROW_BYTES + 1)], "score|m": [1, 1], "cost|m": [1, 1]})
    frame.write_parquet(tmp_path / "log.parquet")
    error = refusal(tmp_path / "log.parquet")
    assert (error.row, error.column) == (2, "prompt")


def test_a_header_that_is_too_long_or_has_too_many_columns_is_refused(tmp_path):
    long = refusal(put(tmp_path, "log.csv", "prompt," + "x" * MAX_HEADER_BYTES + "\n"))
    assert "a header must have at most 1,048,576 bytes" in str(long)
    many = refusal(put(tmp_path, "log.csv", "prompt" + ",x" * MAX_COLUMNS + "\n"))
    assert "at most 5,000 columns, got 5,001" in str(many)
    pl.DataFrame({"prompt": ["p"]} | {f"x{i}": [1] for i in range(MAX_COLUMNS)}).write_parquet(tmp_path / "x.parquet")
    assert "at most 5,000 columns, got 5,001" in str(refusal(tmp_path / "x.parquet"))


def test_too_many_keys_of_a_jsonl_are_refused(tmp_path):
    lines = "".join(f'{{"prompt": "p", "score|{i}": 1, "cost|{i}": 1}}\n' for i in range(50_000))
    assert "at most 5,000 columns, got 5,001" in str(refusal(put(tmp_path, "log.jsonl", lines)))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_too_many_models_are_refused(tmp_path, ending):
    names = [f"m{i}" for i in range(MAX_MODELS + 1)]
    wide = pl.DataFrame({"prompt": ["p"]} | {f"{kind}|{name}": [1] for name in names for kind in ("score", "cost")})
    long = pl.DataFrame({"prompt": ["p"] * 1001, "model": names, "reward": [1] * 1001, "cost_usd": [1] * 1001})
    for name, frame in (("wide", wide), ("long", long)):
        path = tmp_path / f"{name}.{ending}"
        {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[ending](path)
        assert "at most 1,000 models" in str(refusal(path))


@pytest.mark.parametrize("name", ["log.csv.gz", "log.csv"])
@pytest.mark.parametrize("row", [b"x" * 5_000 + b",m,1,1\n", b"\0" * 100])
def test_a_gzip_bomb_is_refused(tmp_path, name, row):
    packed = gzip.compress(HEADER.encode() + row * (2**27 // len(row)), compresslevel=9)
    assert "at most" in str(refusal(put(tmp_path, name, packed)))


READ = """
import sys
from wiserouter import RoutingLog
from wiserouter.errors import LogError
try:
    RoutingLog.read(sys.argv[1]).table()
except LogError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_a_gzip_bomb_is_refused_in_bounded_memory(tmp_path):
    with gzip.open(tmp_path / "log.csv.gz", "wb", compresslevel=1) as file:
        file.write(HEADER.encode())
        for _ in range(60):
            file.write(bytes(2**24))
    said, peak_mb = output_and_peak_mb(READ, str(tmp_path / "log.csv.gz"))
    assert "a row must have at most" in said
    assert peak_mb < 400


def test_a_log_that_packs_well_is_still_read(tmp_path):
    rows = "".join(f"prompt {i},m,1,1\n" for i in range(2_000))
    path = put(tmp_path, "log.csv.gz", gzip.compress((HEADER + rows).encode()))
    assert len(RoutingLog.read(path).table().prompts) == 2_000


def test_carriage_returns_alone_are_named(tmp_path):
    path = put(tmp_path, "log.csv", (HEADER + "a,m,0.5,0.25\n" * 3).replace("\n", "\r").encode())
    assert r"lines must end with a line feed, got carriage returns alone: use `tr '\r' '\n'" in str(refusal(path))


@pytest.mark.parametrize("name", ["a\rnote", 'a ""short""\r, note'])
def test_a_carriage_return_in_a_quoted_name_of_a_column_is_read(tmp_path, name):
    text = HEADER.replace("\n", f',"{name}"\n') + "a,m,0.5,0.25,x\n" * 3
    assert len(RoutingLog.read(put(tmp_path, "log.csv", text.encode())).table().prompts) == 3


@pytest.mark.parametrize("cost", [1e10, 1e308])
def test_a_cost_beyond_any_call_is_refused_by_its_row(tmp_path, cost):
    path = put(tmp_path, "log.csv", (HEADER + f"a,m,0.5,0.25\nb,m,0.5,{cost}\n").encode())
    assert "row 2, column 'cost_usd': a cost in USD must be" in str(refusal(path))


@pytest.mark.parametrize("head", [b"\x28\xb5\x2f\xfd", b"x\x9c"])
def test_other_compression_is_refused(tmp_path, head):
    assert "by gzip or not at all" in str(refusal(put(tmp_path, "log.csv", head + b"rest")))


@pytest.mark.parametrize(
    ("name", "sign", "decimal"),
    [("semicolons", ";", ","), ("semicolons", ";", "."), ("tabs", "\t", ","), ("vertical bars", "|", ".")],
)
def test_other_separators_are_named_and_converted_by_the_command_of_the_error(tmp_path, name, sign, decimal):
    rows = HEADER.replace(",", sign) + sign.join(["a, b", "m", f"0{decimal}5", f"0{decimal}25"]) + "\n"
    path = put(tmp_path, "log.csv", b"\xef\xbb\xbf" + rows.encode())
    error = str(refusal(path))
    assert f"a csv must have commas between its columns and points in its decimals, got {name}: " in error
    assert f"polars.read_csv(file, separator={sign!r}, decimal_comma=True).write_csv(new)" in error
    pl.read_csv(path, separator=sign, decimal_comma=True).write_csv(tmp_path / "new.csv")
    table = RoutingLog.read(tmp_path / "new.csv").table()
    assert (table.prompts, table.reward.item(), table.cost_usd.item()) == (["a, b"], 0.5, 0.25)


def test_a_quote_that_is_never_closed_is_named_by_its_line(tmp_path):
    rows = HEADER + "p,m,1,1\n" + '"never closed,m,1,1\n' + "p,m,1,1\n" * 3
    error = str(refusal(put(tmp_path, "log.csv", rows.encode())))
    assert "each quote must be closed, got one that is open from line 3 to the end: close it" in error


@pytest.mark.parametrize("number", ["1" + "0" * 400, "9" * 39, "-1e309"])
def test_a_number_that_cannot_be_read_is_named_by_its_row(tmp_path, number):
    lines = [LINE.rstrip("\n"), '{"prompt": "p", "model": "m", "reward": 1, "cost_usd": ' + number + "}"]
    found = refusal(put(tmp_path, "log.jsonl", "\n".join(lines).encode()))
    assert found.row == 2
    assert "a number must be at most 1.8e308, and have at most 38 digits" in str(found)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(("name", "text"), [("log.csv", HEADER + "p,m,1,1\n"), ("log.jsonl", LINE)])
def test_utf_16_is_named(tmp_path, name, text, encoding):
    error = refusal(put(tmp_path, name, text.encode(encoding)))
    assert "it seems to be UTF-16; convert it to UTF-8 with `iconv -f UTF-16 -t UTF-8`" in str(error)


@pytest.mark.parametrize(("name", "text"), [("log.csv", HEADER + "Grüße,m,1,1\n"), ("log.jsonl", LINE * 2)])
def test_latin_1_is_named(tmp_path, name, text):
    error = refusal(put(tmp_path, name, text.replace('"p"', '"é"').encode("latin-1")))
    assert "that is no UTF-8, 0x" in str(error)
    assert "it seems to be Latin-1 or Windows-1252; convert it to UTF-8 with `iconv -f WINDOWS-1252" in str(error)
    assert f"line {2 if name == 'log.csv' else 1} has" in str(error)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_is_refused_or_harmless(tmp_path_factory, data):
    name, content = data.draw(
        st.sampled_from(
            [
                ("log.csv", (HEADER + 'p,m,1,1\n"q, ""r""",n,0.5,0.1\n').encode()),
                ("log.jsonl", (LINE * 3).encode()),
                ("log.csv.gz", gzip.compress((HEADER + "p,m,1,1\n" * 9).encode(), mtime=0)),
            ]
        )
    )
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path = put(tmp_path_factory.getbasetemp(), name, bytes(changed))
    try:
        RoutingLog.read(path).table()
    except LogError as error:
        assert str(path) in str(error)  # noqa: PT017
