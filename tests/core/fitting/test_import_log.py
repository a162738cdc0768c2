"""The log that an import writes: resumed after a stop, and its cells as a fit reads them."""

import json

import polars as pl
import pytest

from support.recorded_calls import PAYLOAD, source
from wiserouter import Price
from wiserouter.errors import InvalidInput
from wiserouter.fitting.imports import log_writer
from wiserouter.fitting.imports.calls import ImportedCall
from wiserouter.fitting.imports.log_writer import LogWriter
from wiserouter.fitting.imports.run_import import Wanted, import_files, import_pages, request_of
from wiserouter.fitting.imports.scores import Scores


def write_files(log, folder):
    """Import 13 calls of two files."""
    paths = [folder / "a.jsonl", folder / "b.jsonl"]
    for path, numbers in zip(paths, (range(7), range(7, 13)), strict=True):
        lines = [json.dumps({**PAYLOAD, "litellm_call_id": f"c-{n:02}"}) for n in numbers]
        path.write_text("\n".join(lines))
    return import_files(source("litellm-payloads"), paths, [], Scores(), Wanted(), log, lambda *_: None)


def write_pages(log, folder):
    """Import 13 calls of pages of two, from the cursor on; there is none after the last page."""
    records = [{**PAYLOAD, "litellm_call_id": f"c-{n:02}"} for n in range(13)]
    starts = range(0 if log.cursor is None else int(log.cursor[0]), 13, 2)
    pages = [(records[n : n + 2], [str(n + 2)] if n + 2 < 13 else None) for n in starts]
    return import_pages(source("litellm-payloads"), pages, [], [], Scores(), Wanted(), log, lambda *_: None)


@pytest.mark.parametrize("part_rows", [1, 3, 5, 20])
@pytest.mark.parametrize("write", [write_files, write_pages])
def test_an_import_that_was_stopped_or_had_no_room_at_its_end_counts_no_call_twice(
    write, part_rows, tmp_path, monkeypatch
):
    monkeypatch.setattr(log_writer, "PART_ROWS", part_rows)
    log = tmp_path / "log.parquet"

    class Stopped(Exception):
        pass

    class StoppingWriter(LogWriter):
        def add(self, call, reward):
            if self.counts.calls == 11:
                raise Stopped
            super().add(call, reward)

    def full(*_, **__):
        raise pl.exceptions.ComputeError("No space left on device (os error 28)\nmore")

    with pytest.raises(Stopped):
        write(StoppingWriter(log, {}, request={}), tmp_path)
    with monkeypatch.context() as disk, pytest.raises(OSError, match=r"No space left .*make room") as refused:
        disk.setattr(pl.LazyFrame, "sink_parquet", full)
        write(LogWriter(log, {}, request={}), tmp_path)
    assert "\n" not in str(refused.value)
    counts = write(LogWriter(log, {}, request={}), tmp_path)
    assert (counts.calls, counts.models) == (13, {"gpt-mini": 13})
    assert pl.read_parquet(log)["call_id"].to_list() == [f"c-{n:02}" for n in range(13)]
    assert not list(tmp_path.glob("log.parquet.*"))


def test_an_import_that_was_killed_while_it_deleted_its_parts_begins_again(tmp_path, monkeypatch):
    monkeypatch.setattr(log_writer, "PART_ROWS", 3)
    log = tmp_path / "log.parquet"

    def killed(parts):
        (parts / "00000.parquet").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as kill, pytest.raises(KeyboardInterrupt):
        kill.setattr(log_writer.shutil, "rmtree", killed)
        write_pages(LogWriter(log, {}, request={}), tmp_path)
    assert write_pages(LogWriter(log, {}, request={}), tmp_path).calls == 13
    assert pl.read_parquet(log)["call_id"].to_list() == [f"c-{n:02}" for n in range(13)]


def test_a_call_that_moves_to_the_next_page_counts_once(tmp_path):
    first, second, third = ({**PAYLOAD, "litellm_call_id": f"c-{n}"} for n in range(3))
    pages = [([first, second], ["2"]), ([second, third], None)]
    log = LogWriter(tmp_path / "log.parquet", {}, request={})
    counts = import_pages(source("litellm-payloads"), pages, [], [], Scores(), Wanted(), log, lambda *_: None)
    assert (counts.calls, counts.repeated) == (3, 1)


@pytest.mark.parametrize(
    "other",
    [
        ({"scale": "1..10"}, {"m": Price(1e-6, 2e-6)}),
        ({"scale": "1..5"}, {"m": Price(1e-6, 3e-6)}),
        ({"scale": "1..5", "score": "helpful"}, {"m": Price(1e-6, 2e-6)}),
    ],
)
def test_an_import_goes_on_only_with_the_same_scores_and_prices(other, tmp_path, monkeypatch):
    monkeypatch.setattr(log_writer, "PART_ROWS", 1)
    begun = request_of("litellm", ["postgresql://u:secret@h/db"], Wanted(), {"scale": "1..5"}, {"m": Price(1e-6, 2e-6)})
    log = LogWriter(tmp_path / "a.parquet", {}, request=begun)
    log.add(ImportedCall(("a",), "m", prompt="hi"), None)
    log.save(["after a"])
    assert LogWriter(tmp_path / "a.parquet", {}, request=begun).cursor == ["after a"]
    with pytest.raises(InvalidInput, match="holds another import that was stopped") as refused:
        LogWriter(tmp_path / "a.parquet", {}, request=request_of("litellm", ["h/db"], Wanted(), *other))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("field", ["prompt", "model", "conversation", "group", "id"])
def test_a_half_of_a_character_becomes_a_question_mark_as_in_a_fit(field, tmp_path):
    fields = {"model": "m", "prompt": "whole 😀"} | ({} if field == "id" else {field: "cut \ud83d"})
    log = LogWriter(tmp_path / "a.parquet", {}, request={})
    log.add(ImportedCall(("cut \ud83d",) if field == "id" else ("a",), **fields), None)
    log.finish()
    row = pl.read_parquet(tmp_path / "a.parquet").row(0, named=True)
    assert row["call_id" if field == "id" else field] == "cut ?"
    assert row["prompt"] == ("cut ?" if field == "prompt" else "whole 😀")
    assert "\ud83d" not in str(log.counts)


@pytest.mark.parametrize("tokens", [1e19, 1e300, -1.0])
def test_what_is_no_count_of_tokens_is_missing(tokens, tmp_path):
    log = LogWriter(tmp_path / "a.parquet", {"m": Price(1e-6, 2e-6)}, request={})
    log.add(ImportedCall(("a",), "m", prompt="hi", input_tokens=tokens, output_tokens=7.0), None)
    log.finish()
    row = pl.read_parquet(tmp_path / "a.parquet").row(0, named=True)
    assert (row["input_tokens"], row["output_tokens"], row["cost_usd"], log.counts.no_cost) == (None, 7, None, 1)


@pytest.mark.parametrize(("prices", "cost"), [({}, None), ({"m": Price(1e-6, 2e-6)}, 24e-6)])
def test_a_negative_cost_is_missing_so_that_the_log_can_be_fitted(prices, cost, tmp_path):
    log = LogWriter(tmp_path / "a.parquet", prices, request={})
    log.add(ImportedCall(("a",), "m", prompt="hi", input_tokens=10.0, output_tokens=7.0, cost_usd=-0.5), None)
    log.finish()
    assert pl.read_parquet(tmp_path / "a.parquet")["cost_usd"].to_list() == [cost]
    assert (log.counts.no_cost, log.counts.priced) == (int(cost is None), int(cost is not None))


@pytest.mark.parametrize(("prices", "cost"), [({}, 0.0), ({"m": Price(1e-6, 2e-6)}, 24e-6), ({"m": Price(0, 0)}, 0.0)])
def test_a_cost_of_0_is_priced_for_so_systems_note_one_that_they_do_not_know(prices, cost, tmp_path):
    log = LogWriter(tmp_path / "a.parquet", prices, request={})
    log.add(ImportedCall(("a",), "m", prompt="hi", input_tokens=10.0, output_tokens=7.0, cost_usd=0.0), None)
    log.finish()
    assert pl.read_parquet(tmp_path / "a.parquet")["cost_usd"].to_list() == [cost]
    assert (log.counts.free, log.counts.priced) == (int(cost == 0.0), len(prices))


def test_a_cost_that_litellm_could_not_compute_is_missing():
    unpriced = {"error_str": "This model isn't mapped yet", "model": "gpt-mini"}
    payload = {**PAYLOAD, "response_cost": 0.0, "response_cost_failure_debug_info": unpriced}
    assert [call.cost_usd for call in source("litellm-payloads").calls(payload)] == [None]


def test_prices_count_cached_tokens_at_their_price(tmp_path):
    log = LogWriter(tmp_path / "a.parquet", {"m": Price(1e-6, 2e-6, cache_read=1e-7)}, request={})
    log.add(
        ImportedCall(("a",), "openai/m", prompt="hi", input_tokens=100.0, output_tokens=10.0, cached_tokens=40.0), None
    )
    log.finish()
    assert pl.read_parquet(tmp_path / "a.parquet")["cost_usd"][0] == pytest.approx(60e-6 + 4e-6 + 20e-6)
