"""RouterBench (Hu et al., arXiv 2403.12031): eleven models on eight benchmarks, published as pickled pandas frames.

Columns of the two wide files: `sample_id`, `prompt`, `eval_name`, and per model `<model>` (score),
`<model>|model_response` and `<model>|total_cost` (USD). A prompt is the text of a Python list of its parts. In the
5-shot file 28 rows of ARC-Challenge lack scores, a known fault of the set; they are left out of a file with the
published hash.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wiserouter.errors import LogError
from wiserouter.evaluation.datasets import safe_pickle
from wiserouter.evaluation.datasets.checksums import checked_bytes, pin
from wiserouter.evaluation.datasets.download import Fetch, from_hub
from wiserouter.evaluation.datasets.pandas_frame import Column, columns_of
from wiserouter.evaluation.datasets.wide_table import WideTable, series, wide

if TYPE_CHECKING:
    import polars as pl

REPOSITORY = "withmartian/routerbench"
REVISION = "784021482c3f320c6619ed4b3bb3b41a21424fcb"


class Release(NamedTuple):
    """A published file with the SHA-256 that two independent projects state for it."""

    filename: str
    sha256: str


RELEASES = {
    "0shot": Release("routerbench_0shot.pkl", "ba4f77f19517610a707c374e99322d7750c30fc4ae7ff5527888595a1e65d36d"),
    "5shot": Release("routerbench_5shot.pkl", "fbd7d3d16fba2759a18fa0ad44409d3e0e92ba80d03d90827eed1a6d084c9ffe"),
}
KNOWN = {release.filename: release.sha256 for release in RELEASES.values()}

_COST = "|total_cost"
_RESPONSE = "|model_response"


def download(release: str = "5shot", fetch: Fetch = from_hub) -> Path:
    """Download a published file; `read` checks its hash before reading it."""
    return fetch(REPOSITORY, RELEASES[release].filename, REVISION)


def read(file: Path, *, sha256: str | None = None, drop_faulty: bool = False) -> WideTable:
    """Return the table of a pickled file; no code that the pickle names is run.

    Parameters
    ----------
    file : Path
        A wide file of RouterBench.
    sha256 : str, optional
        The hash that it must have; by default that of the published file of this name, or that of the first use.
    drop_faulty : bool, default False
        Leave out rows with an empty cell or a repeated id; always done for a published file.

    Raises
    ------
    HashMismatch
        If the hash differs.
    ForbiddenPickle
        If it contains anything but plain columns.
    LogError
        If it is damaged, or its columns are not those of RouterBench.
    """
    payload, digest = checked_bytes(file, sha256 or KNOWN.get(file.name))
    columns = columns_of(safe_pickle.load(payload, file), file)
    del payload
    published = digest in KNOWN.values()
    models = _models(list(columns), file)
    table = wide(_frame(columns, models, file), models, file=file, drop_faulty=drop_faulty or published)
    if not published:
        pin(file, digest, asked=sha256 is not None)
    return table


def _models(columns: Sequence[str], file: Path) -> dict[str, tuple[str, str]]:
    """Return the score and cost column of every model, in the order of the scores."""
    if {"model_name", "performance"} <= set(columns):
        raise LogError(f"this is the long file of RouterBench, convert {' or '.join(KNOWN)}", file=file)
    for needed in ("sample_id", "prompt", "eval_name"):
        _need(needed, columns, file)
    named = [c.removesuffix(end) for end in (_COST, _RESPONSE) for c in columns if c.endswith(end)]
    if not named:
        _need(f"<model>{_COST}", columns, file)
    for model in named:
        _need(model, columns, file)
        _need(model + _COST, columns, file)
    return {model: (model, model + _COST) for model in columns if model in named}


def _need(column: str, columns: Sequence[str], file: Path) -> None:
    if column not in columns:
        found = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
        raise LogError(f"the column is missing; found: {found}", file=file, column=column)


def _frame(columns: Mapping[str, Column], models: Mapping[str, tuple[str, str]], file: Path) -> pl.DataFrame:
    import polars as pl

    texts = [series(name, columns[name], file) for name in ("sample_id", "eval_name", "prompt")]
    numbers = [series(name, columns[name], file) for pair in models.values() for name in pair]
    prompts = texts[-1]
    if prompts.dtype == pl.String:
        texts[-1] = pl.Series("prompt", [None if cell is None else joined(cell) for cell in prompts], dtype=pl.String)
    rows = pl.Series("rb_row", range(len(prompts)), dtype=pl.Int32)
    return pl.DataFrame([*texts, rows, *numbers])


def joined(prompt: str) -> str:
    r"""Return a prompt as one text, if it is written as a Python list of parts.

    Examples
    --------
    >>> joined("['Which one?', 'Answer:']")
    'Which one?\nAnswer:'
    >>> joined("[a] or [b]?")
    '[a] or [b]?'
    """
    if not (prompt.startswith("[") and prompt.endswith("]")):
        return prompt
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in a literal
            parts = ast.literal_eval(prompt)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return prompt
    return "\n".join(parts) if all(isinstance(part, str) for part in parts) else prompt
