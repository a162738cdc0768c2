"""An import from its first record to the whole log: scores first, then the calls that they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from wiserouter.errors import LogError
from wiserouter.fitting.imports.calls import ImportedCall, ImportedScore, Recorded
from wiserouter.fitting.imports.log_writer import ImportCounts, LogWriter, stored_prompt
from wiserouter.fitting.imports.nested_calls import NestedCalls
from wiserouter.fitting.imports.postgres import SpendTables
from wiserouter.fitting.imports.records import records_of
from wiserouter.fitting.imports.scores import Scores, plain_scores, with_values
from wiserouter.fitting.imports.sources import Source
from wiserouter.pricing.prices import Price

Report = Callable[[str, int], None]
"""Called with the name of the step and the number of records just read."""

REPORTED_EVERY = 1_000


class Wanted(NamedTuple):
    """The calls to keep.

    Attributes
    ----------
    since_s : float or None
        The earliest start, in seconds since 1970.
    group : str or None
        The name under which the caller asked for a model.
    """

    since_s: float | None = None
    group: str | None = None


def import_files(
    source: Source,
    paths: Sequence[Path],
    scored: Sequence[Path],
    scores: Scores,
    wanted: Wanted,
    log: LogWriter,
    report: Report,
) -> ImportCounts:
    """Write the calls of exported files, each once; a stopped import begins again, since the files may have changed.

    Parameters
    ----------
    source : Source
        The system that exported them.
    paths, scored : sequence of Path
        The files; and files of scores only, of the same system or plain tables of ids and scores.
    scores : Scores
        Which scores to take; those of the files are added.
    wanted : Wanted
        Which calls to keep.
    log : LogWriter
        The log.
    report : callable
        Told of the progress.

    Raises
    ------
    LogError, FileNotFoundError
        If a file cannot be read, or one of scores lacks their fields.
    InvalidInput
        If there are scores of several metrics, and none is named.
    """
    nested = NestedCalls(partial(_is_imported, wanted))
    for path in paths:
        for record in _counted(records_of(path), "scores", report):
            found = list(source.calls(record))
            nested.add(found)
            scores.add(_scores_of(source, record, found))
    _take_files(source, scored, scores, report)
    met: set[int] = set()
    for path in paths:
        for record in _counted(records_of(path), "calls", report):
            _add(_not_met(source.calls(record), met, nested, log.counts), scores, wanted, log)
            log.save(cursor=None)
    log.finish()
    return log.counts


def import_tables(
    source: Source,
    tables: SpendTables,
    scored: Sequence[Path],
    scores: Scores,
    wanted: Wanted,
    log: LogWriter,
    report: Report,
) -> ImportCounts:
    """Write the calls of LiteLLM's tables; an import that was stopped goes on after its last part."""
    for verdict in tables.verdicts():
        scores.add(source.scores(verdict))
    _take_files(source, scored, scores, report)
    for rows, place in tables.pages(wanted.since_s, log.cursor):
        for row in rows:
            _add(source.calls(row), scores, wanted, log)
        report("calls", len(rows))
        log.save(place)
    log.finish()
    return log.counts


def import_pages(
    source: Source,
    pages: Iterable[tuple[Sequence[Recorded], list[str] | None]],
    scored: Iterable[ImportedScore],
    paths: Sequence[Path],
    scores: Scores,
    wanted: Wanted,
    log: LogWriter,
    report: Report,
) -> ImportCounts:
    """Write the calls of pages, each with the cursor after it; a stopped import goes on after its last part."""
    scores.add(scored)
    _take_files(source, paths, scores, report)
    met: set[int] = set()  # what comes in while pages are read by their number moves calls to the next page
    nested = NestedCalls(partial(_is_imported, wanted))
    for found, cursor in _read_ahead(source, pages, nested):
        for calls in found:
            _add(_not_met(calls, met, nested, log.counts), scores, wanted, log)
        report("calls", len(found))
        log.save(cursor)
    log.finish()
    return log.counts


def _read_ahead(
    source: Source, pages: Iterable[tuple[Sequence[Recorded], list[str] | None]], nested: NestedCalls
) -> Iterator[tuple[list[list[ImportedCall]], list[str] | None]]:
    """Yield the calls of each page once the next one is read: a page may end between two calls within each other."""
    before = None
    for records, cursor in pages:
        found = [list(source.calls(record)) for record in records]
        for calls in found:
            nested.add(calls)
        if before is not None:
            yield before
        before = found, cursor
    if before is not None:
        yield before


def _take_files(source: Source, paths: Iterable[Path], scores: Scores, report: Report) -> None:
    """Take files of scores, after all other scores; records without one are counted, files without fields refused."""
    for path in paths:
        named, unread = False, None
        for record in _counted(records_of(path), "scores", report):
            found = _scores_of(source, record, source.calls(record))
            scores.add(found)
            filled = with_values(record)
            named = named or bool(found or _scores_of(source, filled, source.calls(filled)))
            if not found:
                scores.unread, unread = scores.unread + 1, record
        if unread is not None and not named:
            rule = "a file of scores must have the id of a call and its score"
            got = f"got the fields {', '.join(map(str, unread))}"
            raise LogError(f"{rule}, {got:.300}: name them call_id and score", file=path)
    scores.check()


def _scores_of(source: Source, record: Recorded, calls: Iterable[ImportedCall]) -> list[ImportedScore]:
    """Return the scores of a record; of one that is neither a score nor a call, those of a row of a plain table."""
    found = list(source.scores(record))
    return found or ([] if any(call.model for call in calls) else plain_scores(record))


def _not_met(
    calls: Iterable[ImportedCall], met: set[int], nested: NestedCalls, counts: ImportCounts
) -> Iterator[ImportedCall]:
    """Yield the calls that are not in an earlier record, as where the exports of two months overlap by a day."""
    for call in calls:
        key = hash(repr(call))
        if nested.repeats(call) or (call.ids and call.started_s is not None and key in met):
            counts.repeated += 1
        else:
            met.add(key)
            yield nested.named(call)


def _is_imported(wanted: Wanted, call: ImportedCall) -> bool:
    """Return True if a call is written, unless it repeats another one."""
    return _left_out_as(call, wanted) is None and stored_prompt(call) is not None


def _left_out_as(call: ImportedCall, wanted: Wanted) -> str | None:
    """Return the count of the calls that are left out like this one; None where it is wanted."""
    if call.failed:
        return "failed"
    if wanted.since_s is not None and call.started_s is None:
        return "no_time"
    if wanted.since_s is not None and call.started_s is not None and call.started_s < wanted.since_s:
        return "older"
    if wanted.group is not None and call.group != wanted.group:
        return "other_group"
    return None if call.model else "no_model"


def _add(calls: Iterable[ImportedCall], scores: Scores, wanted: Wanted, log: LogWriter) -> None:
    """Write the calls of a record that are wanted, and count the others."""
    counts = log.counts
    counts.records += 1
    for call in calls:
        left_out = _left_out_as(call, wanted)
        if left_out is None:
            log.add(call, scores.reward_of(call))
        else:
            setattr(counts, left_out, getattr(counts, left_out) + 1)


def _counted(records: Iterator[Recorded], step: str, report: Report) -> Iterator[Recorded]:
    number = 0
    for number, record in enumerate(records, start=1):
        yield record
        if number % REPORTED_EVERY == 0:
            report(step, REPORTED_EVERY)
    report(step, number % REPORTED_EVERY)


def request_of(
    source: str, inputs: Sequence[str], wanted: Wanted, terms: Mapping[str, Any], prices: Mapping[str, Price]
) -> dict[str, Any]:
    """Return the terms of an import, by which it is resumed, without any password."""
    priced = {name: repr(price) for name, price in prices.items()}
    addresses = [one.rpartition("@")[2] for one in inputs]
    return {"source": source, "inputs": addresses, **wanted._asdict(), **terms, "prices": priced}
