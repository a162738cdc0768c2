"""The sum of routers fitted on parts of a log: the router that a fit on the whole log would have given.

A fit with given contexts learns counts and sums per (context, model), the number of queries per context and the most
expensive call of each model. Counts and sums add up and the last is a maximum, so parts can be merged in any order and
grouping, and the result equals one fit on all rows up to the rounding of sums. This holds where the contexts are the
same: same centroids, same encoder, as `WiseRouter.fit(contexts=...)` fits them. A query whose calls lie in several
parts is counted in each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from hashlib import file_digest
from pathlib import Path

import numpy as np

from wiserouter.artifacts.file import content_hash
from wiserouter.artifacts.first_prices import add_first_prices
from wiserouter.artifacts.parts import RouterParts
from wiserouter.errors import InvalidInput, MissingArtifact, NotMergeable
from wiserouter.learning.estimates import Estimates
from wiserouter.planning.policies import Policy, open_policy
from wiserouter.pricing.pool import Model
from wiserouter.prompts.contexts import Contexts

_TERMS = tuple(field.name for field in fields(Model) if field.name not in {"name", "max_cost_usd"})


NamedParts = tuple[str, RouterParts]
"""The parts of a router, with the name that errors call it by."""


def check_distinct(routers: Sequence[object]) -> None:
    """Raise `NotMergeable` if a router is given twice, or two files have the same content: it would count twice."""
    if isinstance(routers, str | Path):
        told = f"routers must be a list of routers or artifacts, got {str(routers)!r} alone: list it with others"
        raise InvalidInput(told, value=routers)
    places: dict[int, int] = {}
    met: dict[str, str | Path] = {}
    for i, path in enumerate(routers, start=1):
        if not isinstance(path, str | Path):
            if (first := places.setdefault(id(path), i)) != i:
                parts = (f"router {first}", f"router {i}")
                text = f"each part must be given once, {parts[1]} is the same as {parts[0]}: leave one out"
                raise NotMergeable(text, what="content", parts=parts)
            continue
        if not Path(path).exists():
            raise MissingArtifact(path)
        with Path(path).open("rb") as file:
            twin = met.setdefault(file_digest(file, "sha256").hexdigest(), path)
        if twin is not path:
            raise NotMergeable(
                f"each part must be given once, {path} has the content of {twin}: leave one out",
                what="content",
                parts=(str(twin), str(path)),
            )


def merge(
    routers: Sequence[NamedParts],
    terms_from: RouterParts | None = None,
    policy: Policy | None = None,
    *,
    means_only: bool = False,
) -> RouterParts:
    """Return the sum of several routers.

    Parameters
    ----------
    routers : sequence of (str, RouterParts)
        At least two, each with the name that errors call it by.
    terms_from : RouterParts, optional
        Prices and limits of models come from this one, where the routers differ.
    policy : Policy, optional
        Of the result, where the routers differ.
    means_only : bool, default False
        Leave out estimates of single queries, which do not add.

    Raises
    ------
    InvalidInput
        If there are fewer than two routers.
    NotMergeable
        If contexts, encoders, prices, limits or policies differ, or something was fitted that does not add.
    """
    if len(routers) < 2:
        raise InvalidInput(f"merging needs at least two routers, got {len(routers)}: name more", value=len(routers))
    if not means_only:
        _check_additive(routers)
    _check_contexts(routers)
    models = _pool(routers, terms_from)
    contexts = _contexts(routers)
    column = {model.name: k for k, model in enumerate(models)}
    estimates = Estimates(contexts.n_contexts, len(models))
    for _, parts in routers:
        estimates.merge(_widened(parts, column))
    policy = policy or _policy(routers)
    add_first_prices(policy, [parts for _, parts in routers])
    agreements = _agreements([parts for _, parts in routers])
    return RouterParts(models, contexts, routers[0][1].encoder, policy, estimates, agreements=agreements or None)


def contexts_hash(parts: RouterParts) -> str:
    """Return the hash of everything that assigns a query: the centroids, and the encoder with all that it learned."""
    encoder = parts.encoder
    manifest = {"encoder": None if encoder is None else {"spec": encoder.spec, "settings": encoder.settings()}}
    state = {} if encoder is None else {f"encoder.{name}": array for name, array in encoder.state().items()}
    return content_hash(manifest, {"centroids": parts.contexts.centroids, **state})


def _check_additive(routers: Sequence[NamedParts]) -> None:
    fitted = [name for name, parts in routers if parts.residuals is not None]
    if fitted:
        raise NotMergeable(
            f"estimates of single queries cannot be added up, since they are relative to the means of their own log, "
            f"got some in {', '.join(fitted)}: add up the means alone with merge(..., means_only=True) or "
            f"`wiserouter merge --means-only`, or fit all logs as one",
            what="residuals",
            parts=fitted,
        )


def _check_contexts(routers: Sequence[NamedParts]) -> None:
    hashes = [contexts_hash(parts) for _, parts in routers]
    first = routers[0][0]
    others = [name for (name, _), one in zip(routers, hashes, strict=True) if one != hashes[0]]
    if others:
        raise NotMergeable(
            f"parts must have the same contexts and encoder, got {hashes[0][:12]} in {first} and others in "
            f"{', '.join(others)}: fit these logs again with `wiserouter fit LOG --contexts-of {first}`, or "
            f"WiseRouter.fit(log, encoder=first.encoder, contexts=first.contexts)",
            what="contexts",
            parts=(first, *others),
        )


def _contexts(routers: Sequence[NamedParts]) -> Contexts:
    """Return the contexts with the frequencies of all queries."""
    each = [parts.contexts for _, parts in routers]
    first = each[0]
    summaries = next((contexts.summaries for contexts in each if contexts.summaries), ())
    unknown = [name for name, parts in routers if parts.contexts.n_queries is None]
    if not unknown:
        queries = [np.rint(contexts.freq * (contexts.n_queries or 0)) for contexts in each]
        return first.counted(np.sum(queries, axis=0)).with_summaries(summaries)
    if all(np.array_equal(contexts.freq, first.freq) for contexts in each):
        return Contexts(first.centroids, first.freq, summaries)
    raise NotMergeable(
        f"to add up frequencies each part must hold the number of its queries, {', '.join(unknown)} does not: "
        f"fit it again with this version",
        what="n_queries",
        parts=unknown,
    )


def _pool(routers: Sequence[NamedParts], terms_from: RouterParts | None) -> list[Model]:
    """Return all models: in the order of the routers where they agree on it, else sorted by name."""
    orders = {tuple(model.name for model in parts.models) for _, parts in routers}
    names = next(iter(orders)) if len(orders) == 1 else sorted({name for order in orders for name in order})
    chosen = {} if terms_from is None else {model.name: model for model in terms_from.models}
    return [
        replace(chosen.get(name) or _agreed(name, routers), max_cost_usd=_max_cost_usd(name, routers)) for name in names
    ]


def _agreed(name: str, routers: Sequence[NamedParts]) -> Model:
    """Return a model as all routers have it; raise `NotMergeable` where they differ."""
    met = [(where, model) for where, parts in routers for model in parts.models if model.name == name]
    for term in _TERMS:
        values = {where: getattr(model, term) for where, model in met}
        if any(value != getattr(met[0][1], term) for value in values.values()):
            got = ", ".join(f"{value} in {where}" for where, value in values.items())
            raise NotMergeable(
                f"parts must have the same {term} of model {name!r}, got {got}: choose one with "
                f"`--prices-from {met[0][0]}`, or merge(..., prices_from=...)",
                what=term,
                parts=values,
            )
    return met[0][1]


def _max_cost_usd(name: str, routers: Sequence[NamedParts]) -> float | None:
    """Return the most that a call costs in any part, or None if some part has calls that nothing bounds."""
    bounds = [bound for _, parts in routers for bound in _bounds(name, parts)]
    known = [bound for bound in bounds if bound is not None]
    return max(known) if known and len(known) == len(bounds) else None


def _bounds(name: str, parts: RouterParts) -> Iterable[float | None]:
    """Yield the bound of a router that knows the model; none where it has neither bound nor call."""
    for k, model in enumerate(parts.models):
        if model.name == name and (model.max_cost_usd is not None or parts.estimates.calls[:, k].any()):
            yield model.max_cost_usd


def _policy(routers: Sequence[NamedParts]) -> Policy:
    """Return a fresh policy like that of all routers."""
    where, first = routers[0][0], routers[0][1].policy
    name, settings = first.name, first.settings()
    others = [one for one, parts in routers if (parts.policy.name, parts.policy.settings()) != (name, settings)]
    if others:
        raise NotMergeable(
            f"parts must have the same policy, got {name} {settings} in {where} and others in "
            f"{', '.join(others)}: choose the policy of the result, merge(..., policy=...)",
            what="policy",
            parts=(where, *others),
        )
    return open_policy(name, settings)


def _agreements(routers: Iterable[RouterParts]) -> dict[str, dict[str, list[float]]]:
    """Return the sums over the calls that a judge and a person have scored, by source and model."""
    total: dict[str, dict[str, list[float]]] = {}
    for parts in routers:
        for source, of_models in (parts.agreements or {}).items():
            met = total.setdefault(source, {})
            for model, sums in of_models.items():
                met[model] = np.add(met.get(model, 0.0), sums).tolist()
    return total


def _widened(parts: RouterParts, column: dict[str, int]) -> Estimates:
    """Return the sums of a router with a column for each model of all routers."""
    columns = [column[model.name] for model in parts.models]
    wide = {name: np.zeros((len(array), len(column))) for name, array in parts.estimates.arrays().items()}
    for name, array in parts.estimates.arrays().items():
        wide[name][:, columns] = array
    return Estimates.of_arrays(wide)
