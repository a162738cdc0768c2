"""Checked cells: from text and number columns to arrays; an error names row and column of the bad cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from wiserouter.errors import LogError
from wiserouter.fitting.log.limits import MAX_COST_USD, MAX_ROW_BYTES
from wiserouter.fitting.log.scores import UNIT, WORDS, Scale
from wiserouter.prompts.messages import question_text
from wiserouter.types import Embedding, FloatArray, IntArray

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

_COST_RULE = f"a cost in USD must be a finite number of at least 0, and at most {MAX_COST_USD:,.0f}"
_TOKENS_RULE = "a number of tokens must be a finite number of at least 0"
_EMPTY = "correct it, or leave it empty"


def earliest(reads: Iterable[Callable[[], T]]) -> list[T]:
    """Return the results of the reads; if some fail, raise the error of the first bad row, for any batch size."""
    done: list[T] = []
    errors: list[LogError] = []
    for read in reads:
        try:
            done.append(read())
        except LogError as error:
            errors.append(error)
    if errors:
        raise min(errors, key=lambda error: error.row or 0)
    return done


class Fault(NamedTuple):
    """A rule that cells of a column break.

    Attributes
    ----------
    column : str
        As the log names it.
    rule, remedy : str
        The rule, and the ways out.
    rows : ndarray of bool
        True for the cells that break it.
    cells : polars.Series or None
        The cells, where an error shows them.
    """

    column: str
    rule: str
    remedy: str
    rows: NDArray[np.bool_]
    cells: Any = None

    def error(self, first_row: int, file: Path | None) -> LogError:
        """Return the error of the first bad cell."""
        row = int(self.rows.argmax())
        value = None if self.cells is None else self.cells[row]
        got = "" if self.cells is None else f", got {value!r}"
        return LogError(
            f"{self.rule}{got}: {self.remedy}", file=file, row=first_row + row, column=self.column, value=value
        )


class Checked(NamedTuple):
    """The values of a column, and the rules that some of its cells break."""

    values: Any
    faults: list[Fault]


@dataclass(frozen=True, slots=True)
class Cells:
    """A frame of a file, and its first row in the file.

    Attributes
    ----------
    frame : polars.DataFrame
        Some rows.
    first_row : int
        The number of its first row, from 1.
    file : Path or None
        Named in errors.
    scale : Scale
        That of the scores.
    shown : callable
        Returns the name of a column in errors.
    before : int
        Rows of the log in the files before this one.
    """

    frame: pl.DataFrame
    first_row: int
    file: Path | None
    scale: Scale = UNIT
    shown: Callable[[str], str] = field(default=str)
    before: int = 0

    @property
    def row_numbers(self) -> IntArray:
        """The numbers of the rows in the log, from 0."""
        return self.before + self.first_row - 1 + np.arange(self.frame.height)

    def texts(self, column: str) -> list[str]:
        """Return a column of text; a missing one is an error, an empty one is not."""
        values: list[str] = self._sound(self.check_texts(column))
        return values

    def run_ids(self, column: str) -> list[str]:
        """Return a column of ids of runs; a call without one is a run of its own."""
        values, too_long = self._texts(column)
        known: list[str | None] = self._sound(Checked(values.to_list(), too_long))
        return [one or f"\0row {row}" for one, row in zip(known, self.row_numbers.tolist(), strict=True)]

    def names(self, column: str) -> list[str]:
        """Return a column of names without the blanks around them; a missing or an empty one is an error."""
        values: list[str] = self._sound(self.check_names(column))
        return values

    def prompts(self, column: str) -> list[str]:
        """Return a column of prompts, where lists of messages become the question that they ask."""
        values: list[str] = self._sound(self.check_prompts(column))
        return values

    def rewards(self, column: str) -> FloatArray:
        """Return a column of scores as rewards in [0, 1]; null, NaN and empty text are NaN: not observed."""
        values: FloatArray = self._sound(self.check_rewards(column))
        return values

    def costs(self, column: str) -> FloatArray:
        """Return a column of finite amounts of at least 0; null, NaN and empty text are NaN: not observed."""
        values: FloatArray = self._sound(self.check_costs(column))
        return values

    def tokens(self, column: str) -> FloatArray:
        """Return a column of token counts; null, NaN and empty text are NaN: not counted."""
        values: FloatArray = self._sound(self.check_tokens(column))
        return values

    def embeddings(self, column: str) -> Embedding:
        """Return a column of lists of numbers as a matrix; missing ones, other lengths and NaN are errors."""
        import polars as pl

        cells = self.frame[column]
        if not isinstance(cells.dtype, pl.List | pl.Array) or not cells.dtype.inner.is_numeric():
            raise self._refusal(
                f"an embedding must be a list of numbers, got {cells.dtype}: convert the column", column
            )
        lists = cells.cast(pl.List(pl.Float32))
        dim = int(lists.list.len().max() or 0)  # type: ignore[arg-type]  # of numbers
        finite = lists.list.eval(pl.element().is_finite().fill_null(value=False)).list.all()
        sound = (lists.list.len() == dim) & finite & (dim > 0)
        rule = f"an embedding must hold {dim} finite numbers as the others do"
        bad = ~sound.fill_null(value=False)
        self._sound(Checked(None, self._fault(column, rule, "embed the prompt again, or drop the row", bad)))
        return lists.explode(empty_as_null=False).to_numpy().reshape(len(lists), dim)

    def check_texts(self, column: str) -> Checked:
        """Return a column of text with the rules that it breaks."""
        values, too_long = self._texts(column)
        missing = self._fault(column, "text is missing", "fill it in or drop the row", values.is_null())
        return Checked(values.to_list(), missing + too_long)

    def _texts(self, column: str) -> tuple[pl.Series, list[Fault]]:
        """Return a column of text, null where one is missing, and those that are too long."""
        import polars as pl

        cells = self.frame[column]
        if cells.dtype.is_nested() or cells.dtype in (pl.Binary, pl.Object):
            raise self._refusal(f"text is wanted, got {cells.dtype}: convert the column", column)
        values = cells.cast(pl.String)
        long = (values.str.len_bytes() > MAX_ROW_BYTES).fill_null(value=False)
        return values, self._fault(column, f"a text must have at most {MAX_ROW_BYTES:,} bytes", "shorten it", long)

    def check_names(self, column: str) -> Checked:
        """Return a column of names with the rules that it breaks; a blank text is no name."""
        import polars as pl

        texts, faults = self.check_texts(column)
        values = [text and text.strip() for text in texts]
        empty = pl.Series([value == "" for value in values], dtype=pl.Boolean)
        return Checked(values, faults + self._fault(column, "a name is empty", "fill it in or drop the row", empty))

    def check_prompts(self, column: str) -> Checked:
        """Return a column of prompts with the rules that it breaks."""
        import polars as pl

        cells = self.frame[column]
        if cells.dtype.is_nested() or cells.dtype == pl.Object:
            texts = [None if value is None else question_text(value) for value in cells.to_list()]
            unread = pl.Series([text is None for text in texts], dtype=pl.Boolean)
            return Checked(
                texts,
                self._fault(
                    column,
                    f"a prompt must be a text or messages, got {cells.dtype}",
                    "fill it in or drop the row",
                    unread,
                ),
            )
        values, faults = self.check_texts(column)
        if cells.dtype == pl.String and cells.str.contains(r"^\s*[\[{]").any():
            values = [text and question_text(text) for text in values]
        return Checked(values, faults)

    def check_rewards(self, column: str) -> Checked:
        """Return a column of rewards with the rules that it breaks."""
        import polars as pl

        cells = self._plain(column)
        if cells.dtype == pl.Boolean:
            return Checked(cells.cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64), [])
        low, high = self.scale.low, self.scale.high
        rule = f"a reward must lie in [{low:g}, {high:g}]"
        scaled = "" if self.scale != UNIT else "give its scale (Scale(1, 5), --scale 1..5), "
        verdict = np.full(len(cells), np.nan)
        if cells.dtype == pl.String:
            verdict = _verdicts(cells)
            cells = pl.select(pl.when(pl.Series(np.isnan(verdict))).then(cells)).to_series()
        values, faults = self._numbers(cells, column, (low, high), rule, scaled + _EMPTY)
        rewards = (values - self.scale.worst) / (self.scale.best - self.scale.worst)
        return Checked(np.where(np.isnan(verdict), rewards, verdict), faults)

    def check_costs(self, column: str) -> Checked:
        """Return a column of costs with the rules that it breaks; a text may begin with a dollar sign."""
        import polars as pl

        cells = self._plain(column)
        if cells.dtype == pl.String:
            cells = cells.str.strip_chars().str.strip_prefix("$")
        return self._numbers(cells, column, (0.0, MAX_COST_USD), _COST_RULE, _EMPTY)

    def check_tokens(self, column: str) -> Checked:
        """Return a column of token counts with the rules that it breaks."""
        return self._numbers(self._plain(column), column, (0.0, np.inf), _TOKENS_RULE, _EMPTY)

    def _plain(self, column: str) -> pl.Series:
        """Return the cells of a column; those of a categorical one are texts."""
        import polars as pl

        cells = self.frame[column]
        return cells.cast(pl.String) if cells.dtype in (pl.Categorical, pl.Enum) else cells

    def _numbers(self, cells: pl.Series, column: str, within: tuple[float, float], rule: str, remedy: str) -> Checked:
        """Return the cells as floats; those that are text, infinite or out of bounds break the rule."""
        import polars as pl

        if cells.dtype == pl.String:
            cells = cells.str.strip_chars().replace("", None)
        elif not (cells.dtype.is_numeric() or cells.dtype == pl.Null):
            raise self._refusal(f"{rule}, got a column of {cells.dtype}: convert it", column)
        values = cells.cast(pl.Float64, strict=False)
        array = values.to_numpy().astype(np.float64)  # null is NaN
        bad = (array < within[0]) | (array > within[1]) | np.isinf(array)
        if cells.dtype != pl.Float64:
            bad |= (values.is_null() & cells.is_not_null()).to_numpy()
        return Checked(array, [Fault(self.shown(column), rule, remedy, bad, cells)] if bad.any() else [])

    def _fault(self, column: str, rule: str, remedy: str, rows: pl.Series) -> list[Fault]:
        return [Fault(self.shown(column), rule, remedy, rows.to_numpy())] if rows.any() else []

    def _sound(self, checked: Checked) -> Any:
        """Return the values, or raise the error of the first bad cell."""
        if checked.faults:
            raise min(
                (one.error(self.first_row, self.file) for one in checked.faults), key=lambda error: error.row or 0
            )
        return checked.values

    def _refusal(self, message: str, column: str) -> LogError:
        return LogError(message, file=self.file, column=self.shown(column))


def _verdicts(cells: pl.Series) -> FloatArray:
    """Return the rewards of the cells that hold a verdict such as "thumbs up"; NaN for the others."""
    import polars as pl

    words = cells.str.strip_chars().str.to_lowercase()
    rewards = words.replace_strict(WORDS, default=None, return_dtype=pl.Float64)
    return rewards.fill_null(float("nan")).to_numpy().astype(np.float64)
