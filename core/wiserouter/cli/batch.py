"""`wiserouter batch`: a whole batch under one budget: files for the providers, their results settled, and the bill."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple

import typer

from wiserouter.artifacts.save_load import load
from wiserouter.cli.alone import alone
from wiserouter.cli.fit import names, read_models, used_prices
from wiserouter.cli.output import out, print_json, progress, table
from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.anthropic_service import AnthropicService
from wiserouter.integration.batches.folder import BatchFolder, BatchTerms
from wiserouter.integration.batches.gemini_service import GeminiService
from wiserouter.integration.batches.layouts import LAYOUTS, WrittenFile, custom_ids, provider_of
from wiserouter.integration.batches.openai_service import OpenAIService
from wiserouter.integration.batches.provider_batch import ENDED
from wiserouter.integration.batches.report import BatchReport, ModelBill, report_of
from wiserouter.integration.batches.requests import BatchRequest, read_requests
from wiserouter.integration.batches.route import Round, batch_prices, first_round, next_round
from wiserouter.integration.batches.service import BatchService
from wiserouter.integration.batches.settle import fail_requests, rate_results, settle_results
from wiserouter.integration.batches.submit import Job, Services, fetch, left_files, refused_requests, submit
from wiserouter.integration.batches.worst_cases import with_limit
from wiserouter.pricing.amounts import usd
from wiserouter.router import WiseRouter
from wiserouter.routing.batch_methods import BATCH_PRICE

app = typer.Typer(
    help="Route a whole batch under one budget, settle its results, and show its bill.", no_args_is_help=True
)

OPENAI = "https://api.openai.com/v1"


class Provider(NamedTuple):
    """Where a provider's service is found: the variables of its key and address, and the usual address."""

    service: Callable[[str, str], BatchService]
    key: str
    url: str
    usual: str


PROVIDERS = {
    "openai": Provider(OpenAIService, "OPENAI_API_KEY", "OPENAI_BASE_URL", OPENAI),
    "anthropic": Provider(AnthropicService, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
    "gemini": Provider(GeminiService, "GEMINI_API_KEY", "GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),
}

Folder = Annotated[Path, typer.Argument(help="The folder that wiserouter batch route has written.")]
ServiceUrl = Annotated[
    str, typer.Option(envvar="OPENAI_BASE_URL", help="The address of the service with OpenAI's routes.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def route(
    prompts: Annotated[
        Path, typer.Argument(help="JSON lines: requests of an OpenAI batch, or objects with id and prompt or messages.")
    ],
    artifact: Annotated[Path, typer.Option(help="The artifact of a fitted router.")],
    budget: Annotated[float, typer.Option(help="USD that the batch may cost, second rounds included.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write; it keeps prompts and ledger.")],
    confidence: Annotated[
        float | None,
        typer.Option(help="Hold a margin back, so that the cost stays within the budget so probably: 0.95."),
    ] = None,
    hard: Annotated[
        bool,
        typer.Option("--hard", help="Never exceed the budget: the most that the requests can cost has to fit into it."),
    ] = False,
    models: Annotated[str | None, typer.Option(help="Only these models, separated by commas.")] = None,
    capacity: Annotated[
        list[str] | None, typer.Option(help="MODEL=N: at most N requests for this model; repeatable.")
    ] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(help=f"MODEL=PROVIDER where the name does not say it: {', '.join(LAYOUTS)}; repeatable."),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="JSON: model -> Model fields, such as price and batch_price, in USD per token.")
    ] = None,
    price_factor: Annotated[
        float, typer.Option(help="Price in the batch over that of a plain call, for models without a batch_price.")
    ] = BATCH_PRICE,
    max_tokens: Annotated[
        int,
        typer.Option(help="Limit of the output where a request sets none: for Anthropic, which needs one, and --hard."),
    ] = 4_096,
    as_json: AsJson = False,
) -> None:
    """Choose a model for each request under one budget, and write the batch files of OpenAI, Anthropic and Gemini.

    Example: wiserouter batch route prompts.jsonl --artifact support.wise --budget 50 -o night

    A run that was stopped is resumed by the same command.
    """
    if hard and confidence is not None:
        raise InvalidInput(f"--hard is certain: give no --confidence, got {confidence:g}", value=confidence)
    folder = BatchFolder(output)
    go_on: Callable[[], object] = partial(_check_same, folder, prompts, budget)
    begin = go_on
    if not folder.rounds:
        router, requests = _router(artifact, prices), _requests(prompts, max_tokens, hard=hard)
        pool = [one for one in router.pool.models if not models or one.name in (names(models) or ())]
        priced, factors = batch_prices(pool, price_factor)
        for one in names(models) or ():
            router.pool.index(one)
        limits = {name: _whole(value, name) for name, value in _pairs(capacity, "--capacity", router)}
        stated = dict(_pairs(provider, "--provider", router))
        terms = BatchTerms(
            budget_usd=budget,
            prices=priced,
            factors=factors,
            providers={one.name: provider_of(one.name, stated) for one in pool},
            max_tokens=max_tokens,
            models=names(models),
            capacities=limits,
            confidence=confidence,
            hard=hard,
        )
        begin = partial(BatchFolder.create, output, router, requests, terms)
    output.mkdir(parents=True, exist_ok=True)
    with _alone(folder), _counted("requests", quiet=as_json) as done:
        (go_on if folder.rounds else begin)()  # another command may have begun it meanwhile
        made = first_round(folder, done)
    _show_round(folder, made, as_json=as_json)


@app.command()
def settle(
    folder: Folder,
    results: Annotated[
        list[Path] | None, typer.Argument(help="Result and error files of the providers, as downloaded.")
    ] = None,
    failed: Annotated[
        list[Path] | None,
        typer.Option(help="A file of a round that a provider refused, or whose job ended without results; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Charge the results of a batch, each once however often this is run; what failed can be sent again.

    Example: wiserouter batch settle night batch_abc_output.jsonl batch_abc_error.jsonl
    """
    known = BatchFolder.known(folder)
    if not results and not failed:
        raise InvalidInput("settle needs files of results, or --failed with the files that failed as a whole, got none")
    refused = [(name, "the file failed") for path in failed or () for name in custom_ids(path)]
    with _alone(known), _counted("lines", quiet=as_json) as done:
        counts = settle_results(known, results or (), done)
        counts = counts.plus(fail_requests(known, refused)) if refused else counts
    if as_json:
        return print_json(asdict(counts))
    out.print(f"{counts.charged:,} charged, {usd(counts.cost_usd)}; {counts.failed:,} failed", highlight=False)
    notes = (
        (counts.before, "settled before"),
        (counts.unpriced, "without a usage: they count at their expected cost"),
        (counts.other, "of other batches, or no results"),
    )
    for n, text in notes:
        if n:
            out.print(f"{n:,} {text}", highlight=False)
    if counts.failed:
        out.print(f"Next: wiserouter batch retry {quote(str(folder))}", highlight=False, soft_wrap=True)
    return None


@app.command("submit")
def send(folder: Folder, url: ServiceUrl = OPENAI, as_json: AsJson = False) -> None:
    """Send the files of a batch to the providers whose key is set; each file is sent once.

    Example: wiserouter batch submit night

    Keys are in OPENAI_API_KEY, ANTHROPIC_API_KEY and GEMINI_API_KEY, other addresses in OPENAI_BASE_URL,
    ANTHROPIC_BASE_URL and GEMINI_BASE_URL. Files of providers without a key are left.
    """
    known, services = BatchFolder.known(folder), _services(url)
    with _alone(known):
        jobs = submit(known, services)
    if not as_json:
        for provider, n in left_files(known, services).items():
            out.print(f"{n:,} files of {provider} are left: {PROVIDERS[provider].key} is not set", highlight=False)
    return _show_jobs(folder, jobs, as_json=as_json)


@app.command()
def poll(
    folder: Folder,
    url: ServiceUrl = OPENAI,
    wait: Annotated[float | None, typer.Option(help="Ask every so many seconds until all batches have ended.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch the results of the batches that were submitted, and settle them.

    Example: wiserouter batch poll night --wait 60
    """
    known, services = BatchFolder.known(folder), _services(url)
    settled: set[Path] = set()
    while True:
        with _alone(known), _counted("lines", quiet=as_json) as done:
            jobs, results = fetch(known, services)
            settle_results(known, [path for path in results if path not in settled], done)
            fail_requests(known, refused_requests(known, jobs))
        settled.update(results)
        if wait is None or all(job.status in ENDED for job in jobs):
            return _show_jobs(folder, jobs, as_json=as_json)
        time.sleep(wait)


@app.command()
def retry(folder: Folder, as_json: AsJson = False) -> None:
    """Send the requests that failed in another round, with what is left of the budget.

    Example: wiserouter batch retry night
    """
    known = BatchFolder.known(folder)
    with _alone(known), _counted("requests", quiet=as_json) as done:
        made = next_round(known, done)
    _show_round(known, made, as_json=as_json)


@app.command()
def feedback(
    folder: Folder,
    scores: Annotated[Path, typer.Argument(help="JSON lines with custom_id or id, and score in [0, 1].")],
    as_json: AsJson = False,
) -> None:
    """Learn the scores of answers; a score that is given again replaces the one before.

    Example: wiserouter batch feedback night scores.jsonl
    """
    with _counted("scores", quiet=as_json) as done:
        counts = rate_results(BatchFolder.known(folder), scores, done)
    if as_json:
        return print_json(asdict(counts))
    return out.print(
        f"{counts.taken:,} scores learned; {counts.unknown:,} without an answered request", highlight=False
    )


@app.command()
def report(folder: Folder, as_json: AsJson = False) -> None:
    """Show the bill of a batch: costs and quality by model, what failed and why, and what is left.

    Example: wiserouter batch report night
    """
    found = report_of(BatchFolder.known(folder))
    return print_json(asdict(found)) if as_json else _show_report(folder, found)


def _router(artifact: Path, prices: Path | None) -> WiseRouter:
    """Return the router of an artifact, with the prices of a file."""
    parts = load(artifact, None)
    if prices is not None:
        known = [one.name for one in parts.models]
        stated = {one.name: one for one in used_prices(read_models(prices), set(known), "artifact")}
        if stated.keys().isdisjoint(known):
            rule = f"{prices} must name models of the artifact ({', '.join(known)}), got {', '.join(stated)}"
            raise InvalidInput(f"{rule}: name them as it does", value=sorted(stated))
        parts = parts._replace(models=[stated.get(one.name, one) for one in parts.models])
    return WiseRouter(**parts.settings())


def _requests(path: Path, max_tokens: int, *, hard: bool) -> list[BatchRequest]:
    """Return the requests of a file; each has a limit of its output where the budget is hard."""
    found = read_requests(path)
    return [with_limit(one, max_tokens) for one in found] if hard else found


def _pairs(given: Sequence[str] | None, option: str, router: WiseRouter) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a repeated option."""
    for one in given or ():
        name, sign, value = one.rpartition("=")
        if not sign:
            raise InvalidInput(f"{option} must read MODEL=VALUE, got {one!r}", value=one)
        router.pool.index(name)
        yield name, value


def _services(url: str) -> Services:
    """Return the services of the providers whose key is in the environment."""
    found: dict[str, BatchService] = {}
    for name, one in PROVIDERS.items():
        if key := os.environ.get(one.key):
            found[name] = one.service(url if name == "openai" else os.environ.get(one.url) or one.usual, key)
    if not found:
        keys = ", ".join(one.key for one in PROVIDERS.values())
        raise InvalidInput(f"one of the environment variables {keys} must hold the key of a provider")
    return found


def _show_jobs(folder: Path, jobs: Sequence[Job], *, as_json: bool) -> None:
    if as_json:
        return print_json({"jobs": [asdict(one) for one in jobs]})
    rows = [(one.file, str(one.round), one.batch_id, one.status or "sent", one.error) for one in jobs]
    out.print(table(f"{folder}: batches", ("file", "round", "batch", "status", "error"), rows))
    ended = all(one.status in ENDED for one in jobs)
    command = f"wiserouter batch {'report' if ended else 'poll'} {quote(str(folder))}"
    out.print(f"Next: {command}", highlight=False, soft_wrap=True)
    return None


def _whole(value: str, name: str) -> int:
    if not value.isdecimal():
        raise InvalidInput(f"--capacity must read {name}=N with a whole number, got {value!r}", value=value)
    return int(value)


def _check_same(folder: BatchFolder, prompts: Path, budget: float) -> None:
    """Raise `InvalidInput` if a run that was stopped had other requests or another budget."""
    if folder.is_complete(1):
        return
    terms, same = folder.terms, folder.requests()
    if terms.budget_usd != budget or same != _requests(prompts, terms.max_tokens, hard=terms.hard):
        raise InvalidInput(
            f"{folder.path} was begun with other requests or another budget: choose another folder", value=folder.path
        )


def _alone(folder: BatchFolder) -> AbstractContextManager[None]:
    """Wait until no other command changes the folder."""
    return alone(folder.path / "lock", folder.path)


@contextmanager
def _counted(what: str, *, quiet: bool) -> Iterator[Callable[[], object]]:
    """Count steps on a progress bar."""
    with progress(quiet=quiet) as bars:
        task = bars.add_task(what, total=None)
        yield lambda: bars.advance(task)


def _show_round(folder: BatchFolder, made: Round, *, as_json: bool) -> None:
    path = folder.files(made.number)
    if as_json:
        fields = made._asdict() | {"folder": str(path), "files": [one._asdict() for one in made.files]}
        return print_json(fields)
    rows = [_file_row(one) for one in made.files]
    columns = ("file", "model", "requests", "bytes")
    out.print(table(f"{path}, expected cost {usd(made.expected_cost_usd)}", columns, rows, left=2))
    return out.print(
        f"Expected quality {made.expected_reward:.4f}\nNext: send the files, then wiserouter batch settle "
        f"{quote(str(folder.path))} RESULTS",
        highlight=False,
        soft_wrap=True,
    )


def _file_row(one: WrittenFile) -> tuple[str, ...]:
    return one.file, one.model, f"{one.requests:,}", f"{one.bytes:,}"


def _show_report(folder: Path, found: BatchReport) -> None:
    rows = [_bill_row(name, bill) for name, bill in found.models.items()]
    columns = ("model", "requests", "answered", "failed", "open", "cost", "expected", "quality")
    title = f"{folder}: {found.answered:,} of {found.requests:,} requests answered, in round {found.rounds}"
    out.print(table(title, columns, rows))
    out.print(
        f"Budget {usd(found.budget_usd)}: {usd(found.spent_usd)} spent, {usd(found.open_usd)} expected of open "
        f"requests, {usd(found.left_usd)} left",
        highlight=False,
        soft_wrap=True,
    )
    for reason, n in sorted(found.errors.items(), key=lambda one: -one[1])[:10]:
        out.print(f"{n:,} failed: {reason}", highlight=False, soft_wrap=True)


def _bill_row(name: str, bill: ModelBill) -> tuple[str, ...]:
    quality = f"{bill.reward / bill.scores:.4f} ({bill.scores:,})" if bill.scores else ""
    counts = (bill.requests, bill.charged, bill.failed, bill.open)
    return name, *(f"{n:,}" for n in counts), usd(bill.cost_usd), usd(bill.expected_usd), quality
