"""The log of imported calls: parquet in the long layout, written in parts so that an import can be resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.fitting.imports.calls import ImportedCall
from wiserouter.fitting.imports.former_prices import FormerPrices, price_at
from wiserouter.fitting.imports.litellm import REDACTED
from wiserouter.pricing.prices import Price, Usage, cost_usd
from wiserouter.prompts.half_characters import without_halves
from wiserouter.prompts.messages import question_text
from wiserouter.validation import check_replaceable

PART_ROWS = 50_000
"""Rows of one part: what an import that was stopped reads again at most."""

_STATE = "state.json"
_TEXTS = ("call_id", "prompt", "model", "conversation", "group")
_NUMBERS = ("reward", "cost_usd", "latency_s", "started_s")
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens")

_MAX_TOKENS = 2.0**53
"""Most tokens of a call; larger numbers are no counts, and floats do not hold each of them."""


@dataclass(slots=True)
class ImportCounts:
    """What an import has read.

    Attributes
    ----------
    records, calls : int
        Number of records read, and of calls written.
    cut_prompt, no_cost, free, priced, no_score : int
        Number of calls whose prompt was cut; without a cost, or with one of 0, even after prices; with a cost from
        tokens and prices; and without a score.
    no_prompt, no_model, failed, older, no_time, other_group, repeated : int
        Number of calls left out: without a stored prompt, without the name of a model, failed or answered from a cache
        of answers, from before the start, without a time that could be compared to it, of other groups, found once
        more.
    models : dict of str to int
        Number of calls by model.
    """

    records: int = 0
    calls: int = 0
    cut_prompt: int = 0
    no_cost: int = 0
    free: int = 0
    priced: int = 0
    no_score: int = 0
    no_prompt: int = 0
    no_model: int = 0
    failed: int = 0
    older: int = 0
    no_time: int = 0
    other_group: int = 0
    repeated: int = 0
    models: dict[str, int] = field(default_factory=dict)


class LogWriter:
    """Writes calls to `<file>.parts/`, and the whole log at the end.

    Parameters
    ----------
    path : Path
        The parquet file to write.
    prices : mapping of str to Price
        For calls whose cost was not recorded.
    cut_mark : str
        A text that stands in a prompt that was cut.
    former : mapping of str to sequence of FormerPrice, optional
        Prices of before, for calls of that time.

    Attributes
    ----------
    counts : ImportCounts
        What was read, also before the import was resumed.
    cursor : list or None
        Where an import that was stopped goes on; None at the start.

    Notes
    -----
    A part counts once a cursor after it was kept. Parts after the last cursor are written again by an import that goes
    on, so that no call is written twice.
    """

    def __init__(
        self,
        path: Path,
        prices: dict[str, Price],
        cut_mark: str = "",
        *,
        request: dict[str, Any],
        former: FormerPrices | None = None,
    ) -> None:
        if path.suffix != ".parquet":
            raise InvalidInput(f"the log must be a .parquet file, got {path.name!r}", value=str(path))
        check_replaceable(path)
        self._path, self._prices, self._cut_mark, self._request = path, prices, cut_mark, request
        self._former = former or {}
        self._parts = path.with_name(path.name + ".parts")
        self._rows: list[tuple[Any, ...]] = []
        self.counts, self._n_parts = ImportCounts(), 0
        self.cursor: list[Any] | None = None
        self._resume()

    def _resume(self) -> None:
        state = self._parts / _STATE
        if not state.exists():
            return
        kept = json.loads(state.read_text())
        if kept["request"] != self._request:
            raise InvalidInput(
                f"{self._parts} holds another import that was stopped, {kept['request']}: go on with it, or delete it"
            )
        self.counts, self.cursor = ImportCounts(**kept["counts"]), kept["cursor"]
        self._n_parts = kept["n_parts"]

    def add(self, call: ImportedCall, reward: float | None) -> None:
        """Write one call; one whose prompt was not stored is left out, since it has no context.

        A lone surrogate is written as a question mark; what is no count of tokens, and a negative cost, is missing.
        """
        counted: dict[str, Any] = {name: _count(getattr(call, name)) for name in _COUNTS}
        call = call._replace(model=without_halves(call.model), **counted)
        counts, prompt = self.counts, stored_prompt(call)
        if prompt is None:
            counts.no_prompt += 1
            return
        counts.calls += 1
        counts.models[call.model] = counts.models.get(call.model, 0) + 1
        counts.cut_prompt += bool(self._cut_mark) and self._cut_mark in prompt
        counts.no_score += reward is None
        cost = self._cost_usd(call)
        counts.no_cost += cost is None
        counts.free += cost == 0.0
        tokens = (call.input_tokens, call.output_tokens, call.cached_tokens)
        texts = (call.ids[0] if call.ids else "", prompt, call.model, call.conversation, call.group)
        columns = (without_halves(text) or None for text in texts)
        self._rows.append((*columns, reward, cost, call.latency_s, call.started_s, *tokens))

    def save(self, cursor: list[Any] | None) -> None:
        """Write the rows so far as one part, if they fill one, and keep where to go on after them, if that is known."""
        if len(self._rows) < PART_ROWS:
            return
        self._write_part()
        if cursor is not None:
            self._keep(cursor)

    def finish(self) -> None:
        """Write the whole log, in place of an earlier one, and delete the parts; without a call, write nothing.

        Raises
        ------
        OSError
            If it cannot be written; the import can then go on as one that was stopped.
        """
        import polars as pl

        if not self.counts.calls:
            return
        self._write_part()
        parts = [self._parts / _part(n) for n in range(self._n_parts)]
        written = self._path.with_name(self._path.name + ".new")
        try:
            with _writing(written):
                pl.scan_parquet(parts, glob=False).sink_parquet(written, compression="zstd")
            written.replace(self._path)
        finally:
            written.unlink(missing_ok=True)
        (self._parts / _STATE).unlink(missing_ok=True)  # first, for nothing goes on from some of the parts
        shutil.rmtree(self._parts)

    def _cost_usd(self, call: ImportedCall) -> float | None:
        """Return the cost of a call: 0 is what systems note where they know no price, and a negative one is none."""
        recorded = call.cost_usd if call.cost_usd is not None and call.cost_usd >= 0.0 else None
        if recorded:
            return recorded
        priced = self._priced(call)
        return recorded if priced is None else priced

    def _priced(self, call: ImportedCall) -> float | None:
        name = call.model if call.model in self._prices else call.model.rpartition("/")[2]
        if name not in self._prices or call.input_tokens is None or call.output_tokens is None:
            return None
        price = price_at(self._prices[name], self._former.get(name, ()), call.started_s)
        self.counts.priced += 1
        cached = min(call.cached_tokens or 0.0, call.input_tokens)
        return cost_usd(price, Usage(int(call.input_tokens), int(call.output_tokens), cache_read_tokens=int(cached)))

    def _write_part(self) -> None:
        import polars as pl

        schema = dict.fromkeys(_TEXTS, pl.String) | dict.fromkeys((*_NUMBERS, *_COUNTS), pl.Float64)
        self._parts.mkdir(exist_ok=True)
        frame = pl.DataFrame(self._rows, schema=schema, orient="row").with_columns(pl.col(_COUNTS).cast(pl.Int64))
        part = self._parts / _part(self._n_parts)
        with _writing(part):
            frame.write_parquet(part)
        self._n_parts += 1
        self._rows = []

    def _keep(self, cursor: list[Any]) -> None:
        state = {"request": self._request, "counts": asdict(self.counts), "cursor": cursor, "n_parts": self._n_parts}
        new = self._parts / "state.new"
        new.write_text(json.dumps(state))
        new.replace(self._parts / _STATE)  # the parts so far count from now on


def stored_prompt(call: ImportedCall) -> str | None:
    """Return the text by which a call is routed; None where its prompt was not stored."""
    prompt = question_text(call.prompt)
    return prompt if prompt and prompt != REDACTED else None


def _count(tokens: float | None) -> float | None:
    """Return a number of tokens; None where it is no count."""
    return tokens if tokens is not None and 0.0 <= tokens <= _MAX_TOKENS else None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raise `OSError` where polars cannot write a file."""
    import polars as pl

    try:
        yield
    except pl.exceptions.PolarsError as error:
        first = str(error).split("\n", maxsplit=1)[0]
        raise OSError(f"{path} cannot be written, {first}: make room, and run the same command again") from error


def _part(number: int) -> str:
    return f"{number:05}.parquet"
