"""`wiserouter tune`: constants of the decision and the learning, judged by leaving tables out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from wiserouter.cli.bench_output import Ticker
from wiserouter.cli.fit import names
from wiserouter.cli.leave_out_option import LeaveOut, left_out
from wiserouter.cli.output import out, print_json, progress
from wiserouter.cli.parallel_options import AddressOption, BackendOption, Jobs, workers
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.baselines import open_methods
from wiserouter.evaluation.baselines.variants import value_of
from wiserouter.evaluation.bench.leave_one_out import LeaveOneOut, leave_one_out
from wiserouter.evaluation.bench.suite import BenchSettings, benches, open_suite, run_suite
from wiserouter.evaluation.bench.tuned_constants import TUNED
from wiserouter.parallel.backends import parallel_backend
from wiserouter.validation import write_whole

if TYPE_CHECKING:
    import polars as pl

HEAD = ("constant", "value", "method", "range", "leave-one-out gain", "best value", "its gain", "verdict")


def tune(
    suite: Annotated[Path, typer.Option(help="A folder of tables.")],
    constants: Annotated[
        str | None, typer.Option(help="Only these, separated by commas, such as learning.shrinkage.PRIOR_COUNT.")
    ] = None,
    factors: Annotated[str, typer.Option(help="Multiples of each value to try, separated by commas.")] = "0.5,2",
    methods: Annotated[str, typer.Option(help="Methods to judge by.")] = "wr-offline,optimistic",
    seeds: Annotated[int, typer.Option(help="Number of splits.", min=1)] = 2,
    budgets: Annotated[int, typer.Option(help="Number of budgets per table.", min=1)] = 6,
    leave_out: LeaveOut = None,
    jobs: Jobs = None,
    backend: BackendOption = None,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
    report: Annotated[Path, typer.Option(help="Folder of the report and of the finished rows.")] = Path("bench"),
) -> None:
    """Judge constants by leave-one-table-out: one at a time, half and double.

    For each table, the value that is best on the other tables is compared with the
    value in use. The mean difference is the leave-one-out gain: what choosing the
    constant again would give on a table that no one has seen. Nothing is changed.
    Writes REPORT/tune.md.

    Example: wiserouter tune --suite tables --constants learning.shrinkage.PRIOR_COUNT

    JSON: {"tables", "constants": [{"constant", "value", "method", "range", "gain",
    "gain_error", "best", "best_gain", "chosen", "verdict"}]}.
    """
    logging.getLogger("wiserouter").setLevel(logging.ERROR)
    tried = values_of(names(constants) or TUNED, _numbers(factors))
    judged = names(methods) or ()
    variants = {(name, method): _variants(method, name, tried[name]) for name in tried for method in judged}
    opened = open_methods([*judged, *(each for some in variants.values() for each in some[1:])])
    tables = open_suite(suite, leave_out=left_out(leave_out))
    work = benches(tables, opened, BenchSettings(tuple(range(seeds)), budgets))
    n_jobs = workers(jobs, backend, 2)
    with progress(quiet=as_json) as bars, parallel_backend(backend, address):
        ticker = Ticker(sum(len(bench.keys()) for bench in work), bars)
        rows = {each.table.name: frame for each, frame in run_suite(work, report / "done", jobs=n_jobs, tick=ticker)}
    quality = _quality(rows, [each.name for each in opened])
    found = [
        _evidence(name, method, tried[name], leave_one_out(tried[name], np.array([quality[each] for each in some])))
        for (name, method), some in variants.items()
    ]
    text = _markdown(found, list(rows), seeds)
    write_whole(report / "tune.md", text)
    if as_json:
        return print_json({"tables": list(rows), "constants": found})
    out.print(text, highlight=False, soft_wrap=True)
    return None


def values_of(constants: Iterable[str], factors: Sequence[float]) -> dict[str, list[float]]:
    """Return the values to try of each constant: the one in use, then its multiples."""
    tried = {}
    for name in constants:
        usual = value_of(name)
        multiples = [type(usual)(scaled(name, usual, factor)) for factor in factors]
        tried[name] = list(dict.fromkeys([usual, *(each for each in multiples if each != usual)]))
    return tried


def scaled(constant: str, usual: float, factor: float) -> float:
    """Return a multiple of a constant: of the distance from 1 for a growth or a decay; the factor itself for 0.

    Examples
    --------
    >>> scaled("a.STRENGTH", 8.0, 0.5), scaled("a.REFRESH_GROWTH", 1.02, 2), scaled("a.DRIFT", 0.0, 0.5)
    (4.0, 1.04, 0.5)
    """
    if constant.endswith(("GROWTH", "DECAY", "MEMORY")):
        return 1.0 + (usual - 1.0) * factor
    return usual * factor if usual else factor


def _variants(method: str, constant: str, values: Sequence[float]) -> list[str]:
    return [method, *(f"{method}@{constant}={value!r}" for value in values[1:])]


def _numbers(text: str) -> list[float]:
    try:
        return [float(each) for each in names(text) or ()]
    except ValueError as error:
        raise InvalidInput(f"--factors must be numbers separated by commas, got {text!r}", value=text) from error


def _quality(rows: Mapping[str, pl.DataFrame], methods: list[str]) -> dict[str, list[float]]:
    """Return the quality of each method on each table, at equal spend where it overspends, mean over budgets."""
    from wiserouter.evaluation.report.comparison import grid_of, judged_of

    of_tables = [judged_of(grid_of(frame, methods)).mean(axis=(1, 2)) for frame in rows.values()]
    return {name: [float(each[i]) for each in of_tables] for i, name in enumerate(methods)}


def _evidence(constant: str, method: str, values: Sequence[float], found: LeaveOneOut) -> dict[str, Any]:
    error = found.error
    return {
        "constant": constant,
        "value": values[0],
        "method": method,
        "range": found.spread,
        "gain": found.mean,
        "gain_error": None if np.isnan(error) else error,
        "best": found.best,
        "best_gain": found.best_gain,
        "chosen": found.chosen,
        "verdict": found.verdict,
    }


def _cells(row: Mapping[str, Any]) -> list[str]:
    error = "" if row["gain_error"] is None else f" ± {row['gain_error']:.4f}"
    return [
        row["constant"],
        f"{row['value']:g}",
        row["method"],
        f"{row['range']:.4f}",
        f"{row['gain']:+.4f}{error}",
        f"{row['best']:g}",
        f"{row['best_gain']:+.4f}",
        row["verdict"],
    ]


def _markdown(found: Iterable[Mapping[str, Any]], tables: Sequence[str], seeds: int) -> str:
    from wiserouter.evaluation.report.markdown import table_of

    terms = f"{len(tables)} tables ({', '.join(tables)}), {seeds} seeds, one constant at a time."
    return f"# Constants by leave-one-table-out\n\n{terms}\n\n{table_of(HEAD, map(_cells, found))}\n"
