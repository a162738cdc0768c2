"""A round of a batch: its requests allocated, its files written, its costs reserved."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from wiserouter.budgets.budget import Budget
from wiserouter.errors import InfeasibleBudget, InvalidInput
from wiserouter.integration.batches.folder import BatchFolder, BatchTerms, Sent
from wiserouter.integration.batches.layouts import LAYOUTS, WrittenFile, provider_of, write_files
from wiserouter.integration.batches.requests import BatchRequest
from wiserouter.integration.batches.together import together
from wiserouter.integration.batches.worst_cases import worst_cases_usd
from wiserouter.pricing.arms import split_arm
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.router import WiseRouter
from wiserouter.routing.batch_methods import batch_decisions, batch_factor
from wiserouter.stores import Store
from wiserouter.types import Decision

Done = Callable[[], object]
"""Called after each request."""

FILES = "files.json"
"""In the folder of a round: what its files hold."""


class Round(NamedTuple):
    """A round that is complete."""

    number: int
    files: tuple[WrittenFile, ...]
    expected_cost_usd: float
    expected_reward: float


def batch_prices(models: Sequence[Model], price_factor: float) -> tuple[dict[str, Price], dict[str, float]]:
    """Return the batch price of each model, and its costs over those of plain calls.

    A model without a batch price has its plain price times `price_factor`.

    Raises
    ------
    InvalidInput
        If a model has no price: its results could not be charged.
    """
    unpriced = [one.name for one in models if one.price is None and one.batch_price is None and not one.retired]
    if unpriced:
        raise InvalidInput(
            f"each model needs a price to charge its tokens, got none for {', '.join(unpriced)}: give --prices FILE, "
            f"or leave it out with --models",
            value=unpriced[0],
        )
    prices = {one.name: one.batch_price or _scaled(one.price, price_factor) for one in models}
    factors = {one.name: batch_factor(one) if one.batch_price else price_factor for one in models}
    return {name: price for name, price in prices.items() if price is not None}, factors


def _scaled(price: Price | None, factor: float) -> Price | None:
    if price is None:
        return None
    scaled: dict[str, Any] = {name: None if one is None else factor * one for name, one in asdict(price).items()}
    return Price(**scaled)


def first_round(folder: BatchFolder, done: Done | None = None) -> Round:
    """Allocate all requests of a batch, or go on where a run was stopped.

    Raises
    ------
    InvalidInput
        If the round is complete already, or a request cannot be written for the provider of its model.
    InfeasibleBudget
        If the cheapest models cost more than the budget.
    """
    if folder.is_complete(1):
        raise InvalidInput(f"{folder.path} is routed: settle its results, or choose another folder", value=folder.path)
    with folder.opened() as (router, _):
        requests, terms = folder.requests(), folder.terms
        router.start(Budget(terms.budget_usd, len(requests), "hard" if terms.hard else "expected"))
        if not folder.rounds:
            _decide(folder, router, 1, list(enumerate(requests)), terms.budget_usd, terms.confidence)
        return _finish(folder, router, 1, done)


def next_round(folder: BatchFolder, done: Done | None = None) -> Round:
    """Allocate the requests that failed with what is left of the budget, or go on where a run was stopped.

    Raises
    ------
    InvalidInput
        If no request failed, or the first round is not complete.
    InfeasibleBudget
        If the cheapest models cost more than what is left.
    """
    number = folder.rounds
    if not number or (number == 1 and not folder.is_complete(1)):
        raise InvalidInput(f"{folder.path} is not routed yet: run wiserouter batch route again", value=folder.path)
    with folder.opened() as (router, store):
        if folder.is_complete(number):
            number += 1
            failed = failed_requests(folder, store)
            if not failed:
                raise InvalidInput(f"no request of {folder.path} has failed: settle more results first")
            requests = folder.requests()
            left_usd = router.snapshot().room_usd if folder.terms.hard else router.account().each[0].plannable_usd
            _decide(folder, router, number, [(at, requests[at]) for at in failed], max(left_usd, 0.0), None)
        return _finish(folder, router, number, done)


def failed_requests(folder: BatchFolder, store: Store) -> list[int]:
    """Return the requests whose last result was a failure, in order."""
    last = {one.request: one.decision.id for one in folder.sent()}
    return sorted(at for at, custom_id in last.items() if store.find(custom_id).state == "released")


def _decide(
    folder: BatchFolder,
    router: WiseRouter,
    number: int,
    requests: Sequence[tuple[int, BatchRequest]],
    budget_usd: float,
    confidence: float | None,
) -> None:
    """Allocate requests, write their files, and then the list of the round; nothing is reserved."""
    terms, models = folder.terms, router.pool.models
    worst_usd = worst_cases_usd([one for _, one in requests], models, terms.prices) if terms.hard else None
    try:
        allocation = router.allocate(
            [one.text for _, one in requests],
            budget_usd,
            eligible=terms.models,
            confidence=confidence,
            price_factor=terms.factors,
            capacities=_left(folder, terms),
            worst_case_usd=worst_usd,
            hard=terms.hard,
        )
    except InfeasibleBudget as error:
        needed, n = error.floor_usd * len(requests), len(requests)
        how = "if all of them cost the most that they can" if terms.hard else "with the margin asked for"
        raise InvalidInput(
            f"the budget must pay for {n:,} requests at the cheapest models, {needed:.6g} USD {how}, "
            f"got {budget_usd:.6g}: raise it, or send fewer requests",
            value=budget_usd,
        ) from error
    decisions = batch_decisions(allocation, budget_usd, "default", router.now())
    if worst_usd is not None:
        decisions = [
            _holding(one, float(most[router.pool.index(one.model)]))
            for one, most in zip(decisions, worst_usd, strict=True)
        ]
    sent = [Sent(number, one.id, at, decision) for (at, one), decision in zip(requests, decisions, strict=True)]
    _write_round(folder, number, sent, dict(requests), router, terms)
    folder.decide(number, sent)


def _holding(decision: Decision, worst_usd: float) -> Decision:
    """Return a decision that reserves its worst case."""
    return decision._replace(reserved_usd=worst_usd, expected_cost_usd=min(decision.expected_cost_usd, worst_usd))


def _left(folder: BatchFolder, terms: BatchTerms) -> dict[str, int]:
    """Return the capacities that earlier rounds have left."""
    used = [one.decision.model for one in folder.sent()] if terms.capacities else []
    return {name: max(0, most - used.count(name)) for name, most in terms.capacities.items()}


def _write_round(
    folder: BatchFolder,
    number: int,
    sent: Sequence[Sent],
    requests: Mapping[int, BatchRequest],
    router: WiseRouter,
    terms: BatchTerms,
) -> None:
    path, files = folder.begin(number), list[WrittenFile]()
    for model in router.pool.models:
        mine = [one for one in sent if one.decision.model == model.name]
        provider = provider_of(model.name, terms.providers)
        convert, wire = LAYOUTS[provider].request, _wire_name(model)
        lines = (convert(one.decision.id, wire, _with(requests[one.request], model), terms.max_tokens) for one in mine)
        files += [one._replace(sent_as=wire) for one in write_files(path, model.name, provider, lines)]
    (path / FILES).write_text(json.dumps([one._asdict() for one in files], indent=1), encoding="utf-8")


def _with(request: BatchRequest, model: Model) -> dict[str, Any]:
    """Return the body of a request with the parameters of an arm, which come first."""
    return {**request.body, **model.params}


def _wire_name(model: Model) -> str:
    """Return the name of a model at its provider: without its parameters, and without the provider."""
    name = split_arm(model.family or model.name).model
    provider, _, rest = name.partition("/")
    return rest if rest and provider in LAYOUTS else name


def _finish(folder: BatchFolder, router: WiseRouter, number: int, done: Done | None) -> Round:
    """Reserve the costs of a decided round, each once however often this is run, and let its files be sent."""
    decisions = [one.decision for one in folder.sent(number)]
    for _ in together(router.reserve_decision, decisions):
        if done is not None:
            done()
    folder.complete(number)
    return Round(
        number,
        written_files(folder, number),
        sum(one.expected_cost_usd for one in decisions),
        sum(one.expected_reward for one in decisions) / len(decisions),
    )


def written_files(folder: BatchFolder, number: int) -> tuple[WrittenFile, ...]:
    """Return the files of a complete round."""
    rows = json.loads((folder.files(number) / FILES).read_text(encoding="utf-8"))
    return tuple(WrittenFile(**row) for row in rows)
