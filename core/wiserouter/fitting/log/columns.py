"""The columns of a log that names them in its own way: which holds the prompt, the model, the score, the cost, tokens.

A place is the name of a column, or a path into one that holds objects, such as `usage.prompt_tokens`. Where the caller
names none, well-known names are looked for; a score that several columns may hold has to be named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wiserouter.errors import LogError
from wiserouter.pricing.arms import EFFORT, EFFORTS

if TYPE_CHECKING:
    import polars as pl

Places = Mapping[str, tuple[str, ...]]
"""The places of each field; the first that is filled counts."""

ANSWERING_MODEL = "response.body.model"
"""The place of the model in an answer of OpenAI's batch service; a line that failed has none."""

TOKENS = ("input_tokens", "output_tokens", "cached_tokens")

_NAMES: dict[str, tuple[str, ...]] = {
    "prompt": (
        *("prompt", "messages", "question", "query", "input", "inputs", "instruction", "user_message"),
        *("body.messages", "body.input"),
    ),
    "model": ("model", "model_name", "model_id", "llm", ANSWERING_MODEL, "body.model"),
    "effort": ("reasoning_effort", "body.reasoning_effort", "body.reasoning.effort"),
    "reward": (
        *("reward", "score", "rating", "thumbs", "thumb", "feedback", "user_score", "label", "correct", "is_correct"),
        *("passed", "success", "resolved", "grade", "quality"),
    ),
    "cost_usd": ("cost_usd", "cost", "total_cost", "total_cost_usd", "response_cost", "spend", "usd"),
    "query_id": ("query_id", "custom_id", "sample_id"),
    "input_tokens": (
        *("input_tokens", "prompt_tokens", "tokens_in", "usage.prompt_tokens", "usage.input_tokens"),
        *("response.body.usage.prompt_tokens", "response.body.usage.input_tokens"),
    ),
    "output_tokens": (
        *("output_tokens", "completion_tokens", "tokens_out", "usage.completion_tokens", "usage.output_tokens"),
        *("response.body.usage.completion_tokens", "response.body.usage.output_tokens"),
    ),
    "cached_tokens": (
        *("cached_tokens", "usage.prompt_tokens_details.cached_tokens", "usage.input_tokens_details.cached_tokens"),
        *("response.body.usage.prompt_tokens_details.cached_tokens",),
        *("response.body.usage.input_tokens_details.cached_tokens",),
    ),
}
"""Names looked for, the surest first; a path counts where its column is there, whatever the column holds."""

_OF_A_BATCH = "custom_id"
"""The column that marks files of OpenAI's batch service, where `response` and `body` are objects."""


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The columns of a log with one row per call; those not given are looked for by well-known names.

    Attributes
    ----------
    prompt, model, reward, cost_usd, query_id : str, optional
        A column, or a path into a column of objects such as "body.messages".
    input_tokens, output_tokens, cached_tokens : str, optional
        Token counts, which with prices replace missing costs; cached tokens are part of the input.
    effort : str, optional
        The reasoning effort of each call, where one model was called with several: each is a model of its own in the
        log, such as "gpt-5@low".

    Examples
    --------
    >>> LogColumns(reward="thumbs").places(["messages", "model", "thumbs", "rating", "cost"], None)["reward"]
    ('thumbs',)
    """

    prompt: str | None = None
    model: str | None = None
    reward: str | None = None
    cost_usd: str | None = None
    query_id: str | None = None
    input_tokens: str | None = None
    output_tokens: str | None = None
    cached_tokens: str | None = None
    effort: str | None = None

    def places(self, columns: Sequence[str], file: Path | None) -> Places:
        """Return the places of each field that a log with these columns has.

        Raises
        ------
        LogError
            If a given column is not there, or several may hold the score.
        """
        found = {one.name: self._places_of(one.name, columns, file) for one in fields(self)}
        return {name: places for name, places in found.items() if places}

    def _places_of(self, field: str, columns: Sequence[str], file: Path | None) -> tuple[str, ...]:
        given = getattr(self, field)
        if given is not None:
            if root_of(given, columns) is None:
                raise LogError(f"the log has no column {given!r} for its {field}: it has {_listed(columns)}", file=file)
            return (given,)
        if field in columns:
            return (field,)
        found = _known_places(field, columns)
        if field == "reward" and len(found) > 1:
            raise LogError(
                f"several columns may hold the score, {_listed(found)}: say which, "
                f"with LogColumns(reward=...) or --reward",
                file=file,
            )
        plain = [place for place in found if place in columns]
        return (plain[0],) if plain else tuple(found)


def root_of(place: str, columns: Sequence[str]) -> str | None:
    """Return the column of a place: itself, or the one that the path begins with; None where there is none."""
    parts = place.split(".")
    starts = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((start for start in starts if start in columns), None)


def expression(places: Sequence[str], schema: pl.Schema) -> pl.Expr:
    """Return the values of a field: of several places the first that is filled."""
    import polars as pl

    values = [_value(place, schema) for place in places]
    return values[0] if len(values) == 1 else pl.coalesce(values)


def arm_names(model: pl.Expr, effort: pl.Expr) -> pl.Expr:
    """Return the names of arms (`wiserouter.pricing.arms`); those of models where a call has no effort."""
    import polars as pl

    word = effort.cast(pl.String).str.strip_chars().str.to_lowercase()
    text = pl.when(word.is_in(sorted(EFFORTS))).then(word).otherwise(pl.lit(f"{EFFORT}=") + word)
    return pl.when(word.fill_null("") == "").then(model).otherwise(model + pl.lit("@") + text)


def _known_places(field: str, columns: Sequence[str]) -> list[str]:
    by_name = {name.strip().lower().replace(" ", "_").replace("-", "_"): name for name in reversed(columns)}
    found = []
    for name in _NAMES[field]:
        root = name.partition(".")[0]
        if name in by_name:
            found.append(by_name[name])
        elif "." in name and root in by_name and (root == "usage" or _OF_A_BATCH in columns):
            found.append(by_name[root] + name[len(root) :])
    return found


def _value(place: str, schema: pl.Schema) -> pl.Expr:
    import polars as pl

    root = root_of(place, schema.names()) or place
    keys = place[len(root) + 1 :].split(".") if len(place) > len(root) else []
    value = pl.col(root)
    dtype: Any = schema[root]
    while keys and isinstance(dtype, pl.Struct):
        inner: dict[str, Any] = {field.name: field.dtype for field in dtype.fields}
        if keys[0] not in inner:
            return pl.lit(None, dtype=pl.String)
        value, dtype = value.struct.field(keys[0]), inner[keys.pop(0)]
    if not keys:
        return value
    if dtype != pl.String:
        return pl.lit(None, dtype=pl.String)
    path = "".join(f"[{key}]" if key.isdigit() else f"['{key}']" for key in keys if "'" not in key)
    return value.str.json_path_match(f"${path}")


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
