"""`wiserouter fit`: an artifact from a log of past calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from wiserouter.artifacts.file import check_target
from wiserouter.cli.log_options import (
    CostColumn,
    EffortColumn,
    Joined,
    LogArgument,
    ModelColumn,
    PromptColumn,
    RewardColumn,
    ScaleOption,
    read_log,
)
from wiserouter.cli.output import check_no_input, check_writable, err, out, print_json, progress, reporter, table
from wiserouter.cli.parallel_options import AddressOption, BackendOption, Jobs, workers
from wiserouter.errors import InvalidInput
from wiserouter.fitting.encoder_selection import EncoderComparison
from wiserouter.fitting.imports.calls import time_of
from wiserouter.fitting.imports.former_prices import FormerPrice
from wiserouter.learning.residuals.model_selection import CandidateScore, Comparison
from wiserouter.parallel.backends import parallel_backend
from wiserouter.pricing.amounts import usd
from wiserouter.pricing.arms import split_arm
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price, UnlikelyPrice
from wiserouter.router import WiseRouter
from wiserouter.validation import check_replaceable, read_text


def fit(
    log: LogArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The artifact to write.")] = Path("router.wise"),
    encoder: Annotated[
        str,
        typer.Option(
            help="tfidf, tfidf-whole, minilm (extra), tfidf+minilm, column (the log's embedding), or auto: the best."
        ),
    ] = "tfidf",
    contexts: Annotated[int, typer.Option(help="Number of contexts J.")] = 16,
    contexts_of: Annotated[
        Path | None,
        typer.Option(help="Use the contexts and the encoder of this artifact, so that both can be merged."),
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="JSON: model -> Model fields, price in USD per token.")] = None,
    models: Annotated[str | None, typer.Option(help="Keep only these models, separated by commas.")] = None,
    prompt: PromptColumn = None,
    model: ModelColumn = None,
    effort: EffortColumn = None,
    reward: RewardColumn = None,
    cost: CostColumn = None,
    scale: ScaleOption = None,
    joined: Joined = None,
    estimator: Annotated[
        str, typer.Option(help="smoothed means, means, ridge, or auto: the best on held-out queries.")
    ] = "smoothed",
    budget_per_query: Annotated[
        float | None,
        typer.Option(help="USD at which auto compares; by default midway between the useful budgets."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample and the clusters.", min=0)] = 0,
    jobs: Jobs = None,
    backend: BackendOption = None,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit a router on a log of past calls, and save it.

    Example: wiserouter fit calls.parquet -o support.wise

    The log is streamed and may be larger than memory; wiserouter log check shows how it is read.
    For logs of several machines fit the first, the others
    with --contexts-of first.wise, then use wiserouter merge.
    """
    check_writable(output)
    check_replaceable(output)
    priced = read_models(prices) if prices else None
    source = read_log(
        log,
        models=names(models),
        prompt=prompt,
        model=model,
        effort=effort,
        reward=reward,
        cost=cost,
        scale=scale,
        joined=joined,
        prices={one.name: one.price for one in priced or () if one.price is not None},
    )
    check_no_input(output, [*source.paths(), *(joined or ()), prices])
    check_target(output)
    if source.failed_lines:
        err.print(f"left out {source.failed_lines:,} lines of the batch that failed or expired", highlight=False)
    first = None if contexts_of is None else WiseRouter.load(contexts_of)
    with progress(quiet=as_json) as bars, parallel_backend(backend, address):
        router = WiseRouter.fit(
            source,
            encoder=encoder if first is None or first.encoder is None else first.encoder,
            n_contexts=contexts,
            contexts=None if first is None else first.contexts,
            models=priced and used_prices(priced, arm_names(source.models), "log"),
            estimator=estimator,
            rate_usd=budget_per_query,
            seed=seed,
            progress=reporter(bars),
            n_jobs=workers(jobs, backend, None),
        )
    digest = router.save(output)
    if as_json:
        return print_json(_fields(router, output, digest))
    return _show(router, output)


def arm_names(models: Iterable[str]) -> set[str]:
    """Return the names of models, and those of the models whose arms they are."""
    named = set(models)
    return named | {split_arm(name).model for name in named}


def used_prices(priced: Sequence[Model], known: Set[str], place: str) -> list[Model]:
    """Return the models of a price list that are known in a place, and say which others are not used.

    All are returned where none is known, which the caller refuses.
    """
    kept = [one for one in priced if one.name in known]
    others = [one.name for one in priced if one.name not in known]
    if kept and others:
        told = f"prices of models that are not in the {place} are not used: {', '.join(others)}"
        err.print(told, highlight=False)
    return kept or list(priced)


def _fields(router: WiseRouter, output: Path, digest: str) -> dict[str, object]:
    return {
        "artifact": str(output),
        "sha256": digest,
        "models": router.pool.names,
        "contexts": router.contexts.n_contexts,
        "queries": router.contexts.n_queries,
        "labels": dict(zip(router.pool.names, _labels(router), strict=True)),
        **_comparison_fields(router.comparison),
        **_encoder_fields(router.encoders),
    }


def _labels(router: WiseRouter) -> list[int]:
    """Return the number of scores of each model."""
    return [round(n) for n in router.estimates.labels.sum(axis=0).tolist()]


def _show(router: WiseRouter, output: Path) -> None:
    labels = _labels(router)
    means = router.estimates.means(shrink=False)
    mean_cost, mean_reward = router.contexts.freq @ means.cost_usd, router.contexts.freq @ means.reward
    rows = [
        (
            name,
            f"{mean_reward[k]:.4f}" if labels[k] else "",
            usd(mean_cost[k]),
            f"{int(router.estimates.calls[:, k].sum()):,}",
            f"{labels[k]:,}",
        )
        for k, name in enumerate(router.pool.names)
    ]
    columns = ("model", "quality", "cost per call", "calls", "scores")
    out.print(table(f"{output}: {router.contexts.n_contexts} contexts", columns, rows))
    unscored = [name for name, n in zip(router.pool.names, labels, strict=True) if not n]
    if unscored:
        out.print(
            f"No score: {', '.join(unscored)}. Quality is taken from priors (the score of --prices, else the prices) "
            f"and learned.",
            highlight=False,
        )
    if router.encoders is not None:
        _show_encoders(router.encoders)
    if router.comparison is not None:
        _show_comparison(router.comparison)
    if router.plan is not None:
        out.print(f"\nUseful budgets: {usd(router.plan.floor_usd)} to {usd(router.plan.ceiling_usd)} per request.")
    out.print(f"Next: wiserouter plan {quote(str(output))}", highlight=False, soft_wrap=True)


def _comparison_fields(comparison: Comparison | None) -> dict[str, object]:
    if comparison is None:
        return {}
    return {
        "rate_usd": comparison.rate_usd,
        "estimators": [one._asdict() for one in comparison.standings],
        "chosen": comparison.chosen._asdict(),
    }


def _encoder_fields(comparison: EncoderComparison | None) -> dict[str, object]:
    if comparison is None:
        return {}
    standings = [one._asdict() for one in comparison.standings]
    return {"encoder": comparison.chosen.encoder, "encoders": standings, "encoder_queries": comparison.n_queries}


def _show_encoders(comparison: EncoderComparison) -> None:
    columns = ("encoder", "quality", "gain", "its error", "")
    chosen = comparison.chosen.encoder
    rows = [
        (
            *(one.encoder, f"{one.value:.4f}", f"{one.gain:+.4f}", f"{one.gain_se:.4f}"),
            "chosen" * (one.encoder == chosen),
        )
        for one in comparison.standings
    ]
    out.print(table(f"\n{comparison.n_queries:,} held-out queries, over several budgets", columns, rows))


def _show_comparison(comparison: Comparison) -> None:
    columns = ("estimator", "quality", "gain", "its error", "spend each", "")
    rows = [_candidate_row(one, chosen=one == comparison.chosen) for one in comparison.standings]
    out.print(table(f"\nHeld-out queries at {usd(comparison.rate_usd)} each", columns, rows))


def _candidate_row(one: CandidateScore, *, chosen: bool) -> tuple[str, ...]:
    figures = (f"{one.value:.4f}", f"{one.gain:+.4f}", f"{one.gain_se:.4f}", usd(one.spend_usd))
    return one.estimator, *figures, "chosen" if chosen else ""


def names(models: str | None) -> list[str] | None:
    """Return the names in an option separated by commas."""
    return [name.strip() for name in models.split(",") if name.strip()] if models else None


def read_models(path: Path) -> list[Model]:
    """Return the models of a price file: a JSON object of model name to `Model` fields.

    Raises
    ------
    InvalidInput
        If the file is not such an object.
    UnlikelyPrice
        If a price is likely that of a million tokens.
    """
    text = read_text(path)
    with _reading_prices(path):
        return [_model(name, given, path) for name, (given, _) in _entries(text, path).items()]


def read_former_prices(path: Path) -> dict[str, list[FormerPrice]]:
    """Return the former prices of the models of a price file, by `former_prices`; it raises as `read_models` does."""
    text = read_text(path)
    with _reading_prices(path):
        return {name: former for name, (_, former) in _entries(text, path).items() if former}


def _entries(text: str, path: Path) -> dict[str, tuple[dict[str, Any], list[FormerPrice]]]:
    """Return the fields of each model of a price file, and its former prices."""
    found = _object(json.loads(text, object_pairs_hook=_once), "the file")
    entries = {name: dict(_object(given, f"{name!r}")) for name, given in found.items()}
    former = {name: given.pop("former_prices", []) for name, given in entries.items()}
    return {
        name: (given, _former_prices(former[name], name, path, priced=given.get("price") is not None))
        for name, given in entries.items()
    }


def _former_prices(given: object, name: str, path: Path, *, priced: bool) -> list[FormerPrice]:
    what = f"former_prices of {name!r}"
    if not isinstance(given, list):
        raise TypeError(f"{what} must be a list, got {given!r}")
    if given and not priced:
        raise ValueError(f"{what} need a price, which holds after them")
    return [_former_price(_object(one, what), what, name, path) for one in given]


def _former_price(given: dict[str, Any], what: str, name: str, path: Path) -> FormerPrice:
    before_s = time_of(given.get("before")) if isinstance(given.get("before"), str) else None
    if before_s is None or given.keys() != {"before", "price"}:
        raise ValueError(f'{what} must read [{{"before": "2026-03-01", "price": {{...}}}}], got {given!r}')
    try:
        return FormerPrice(before_s, _price(given["price"], what))
    except UnlikelyPrice as error:
        raise error.of(name, path) from None


@contextmanager
def _reading_prices(path: Path) -> Iterator[None]:
    """Raise `InvalidInput` with the path where a price file is not as it should be."""
    try:
        yield
    except UnlikelyPrice:
        raise
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path} must be JSON, got {error}: is the file complete?") from error
    except RecursionError as error:
        raise InvalidInput(f"{path} must be JSON that is not nested this deep: flatten it") from error
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            f'{path}: prices must read {{"model": {{"price": {{"input": 1e-6, "output": 2e-6}}, '
            f'"max_output_tokens": 4096}}}}: {error}'
        ) from error


def _once(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of a JSON object; raise `ValueError` where one name comes twice."""
    names = [name for name, _ in entries]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} stands there twice: keep one of them")
    return dict(entries)


def _model(name: str, given: dict[str, Any], path: Path) -> Model:
    _check_fields(given, Model, f"{name!r}")
    values = dict(given)
    try:
        for field in ("price", "batch_price"):
            if values.get(field) is not None:
                values[field] = _price(values[field], f"{field} of {name!r}")
        return Model(name, **values)
    except UnlikelyPrice as error:
        raise error.of(name, path) from None


def _price(given: object, what: str) -> Price:
    values = _object(given, what)
    _check_fields(values, Price, what)
    missing = {"input", "output"} - values.keys()
    if missing:
        raise ValueError(f"{what} lacks {', '.join(sorted(missing))}")
    return Price(**values)


def _object(given: object, what: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise TypeError(f"{what} must be an object, got {given!r}")
    return given


def _check_fields(given: Mapping[str, Any], kind: type, what: str) -> None:
    """Raise `ValueError` if a field that the file states is none of a model or price."""
    known = [one.name for one in fields(kind) if one.name != "name"]
    for name in given:
        if name not in known:
            raise ValueError(f"{what} has no field {name!r}, but {', '.join(known)}")
