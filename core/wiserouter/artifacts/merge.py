"""Routers fitted on parts of a log, added up to the one that the whole log would have given.

What a fit with given contexts learns are counts and sums per (context, model), the number of queries per context and
the dearest call of each model. The first two add and the last takes the maximum, so that parts may be merged in any
order and grouping, and equal one fit on all rows up to the rounding of sums. All this holds where the contexts are the
same: same centroids, same encoder; the parts are fitted so with `WiseRouter.fit(contexts=...)`. A query whose calls lie
in several parts is counted in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wiserouter.artifacts.file import content_hash
from wiserouter.artifacts.save_load import load_parts
from wiserouter.errors import InvalidInput, NotMergeable
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.planning.policies import Policy, open_policy
from wiserouter.pricing.pool import Model
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder

_TERMS = tuple(field.name for field in fields(Model) if field.name not in {"name", "max_cost_usd"})


class Part(NamedTuple):
    """What a router is made of.

    Attributes
    ----------
    name : str
        What errors call it.
    models : sequence of Model
        The pool.
    contexts, encoder, policy, estimates, finer
        As `WiseRouter` takes them.
    """

    name: str
    models: Sequence[Model]
    contexts: Contexts
    encoder: Encoder | None
    policy: Policy
    estimates: Estimates
    finer: QueryResiduals | None

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments that make the router."""
        return {name: value for name, value in self._asdict().items() if name != "name"}


def read_part(path: str | Path) -> Part:
    """Return what an artifact holds; raises `ArtifactError` as `WiseRouter.load` does."""
    return Part(str(path), **load_parts(path, None))


def check_distinct(paths: Iterable[str | Path]) -> None:
    """Raise `NotMergeable` if two files have the same content, which would count twice."""
    met: dict[str, str | Path] = {}
    for path in paths:
        twin = met.setdefault(sha256(Path(path).read_bytes()).hexdigest(), path)
        if twin is not path:
            raise NotMergeable(
                f"each part must be given once, {path} has the content of {twin}: leave one out",
                what="content",
                parts=(str(twin), str(path)),
            )


def merge(parts: Sequence[Part], terms_from: Part | None = None, policy: Policy | None = None) -> Part:
    """Return the parts added up.

    Parameters
    ----------
    parts : sequence of Part
        At least two.
    terms_from : Part, optional
        Prices and limits of models come from this one, where the parts differ.
    policy : Policy, optional
        Of the result, where the parts differ.

    Raises
    ------
    InvalidInput
        If there are fewer than two parts.
    NotMergeable
        If contexts, encoders, prices, limits or policies differ, or something was fitted that does not add.
    """
    if len(parts) < 2:
        raise InvalidInput(f"merging needs at least two routers, got {len(parts)}: name more", value=len(parts))
    _check_additive(parts)
    _check_contexts(parts)
    models = _pool(parts, terms_from)
    contexts = _contexts(parts)
    column = {model.name: k for k, model in enumerate(models)}
    estimates = Estimates(contexts.n_contexts, len(models))
    for part in parts:
        estimates.merge(_widened(part, column))
    return Part("merged", models, contexts, parts[0].encoder, policy or _policy(parts), estimates, None)


def contexts_hash(part: Part) -> str:
    """Return a hash of what places a query: the centroids, and the encoder with all that it learned."""
    encoder = part.encoder
    manifest = {"encoder": None if encoder is None else {"spec": encoder.spec, "settings": encoder.settings()}}
    state = {} if encoder is None else {f"encoder.{name}": array for name, array in encoder.state().items()}
    return content_hash(manifest, {"centroids": part.contexts.centroids, **state})


def _check_additive(parts: Sequence[Part]) -> None:
    finer = [part.name for part in parts if part.finer is not None]
    if finer:
        raise NotMergeable(
            f"what judges queries one by one cannot be added up, it is relative to the means of its own log, got it "
            f"in {', '.join(finer)}: fit the parts with estimator='means' and without token_cost, or all logs as one",
            what="finer",
            parts=finer,
        )


def _check_contexts(parts: Sequence[Part]) -> None:
    hashes = [contexts_hash(part) for part in parts]
    others = [part.name for part, one in zip(parts, hashes, strict=True) if one != hashes[0]]
    if others:
        raise NotMergeable(
            f"parts must have the same contexts and encoder, got {hashes[0][:12]} in {parts[0].name} and others in "
            f"{', '.join(others)}: fit these logs again with `wiserouter fit LOG --contexts-of {parts[0].name}`, or "
            f"WiseRouter.fit(log, encoder=first.encoder, contexts=first.contexts)",
            what="contexts",
            parts=(parts[0].name, *others),
        )


def _contexts(parts: Sequence[Part]) -> Contexts:
    """Return the contexts with the frequencies of all queries."""
    first = parts[0].contexts
    portraits = next((part.contexts.portraits for part in parts if part.contexts.portraits), ())
    unknown = [part.name for part in parts if part.contexts.n_queries is None]
    if not unknown:
        queries = [np.rint(part.contexts.freq * (part.contexts.n_queries or 0)) for part in parts]
        return first.counted(np.sum(queries, axis=0)).portrayed(portraits)
    if all(np.array_equal(part.contexts.freq, first.freq) for part in parts):
        return Contexts(first.centroids, first.freq, portraits)
    raise NotMergeable(
        f"to add up frequencies each part must say of how many queries they are, {', '.join(unknown)} does not: "
        f"fit it again with this version",
        what="n_queries",
        parts=unknown,
    )


def _pool(parts: Sequence[Part], terms_from: Part | None) -> list[Model]:
    """Return all models: in the order of the parts where they agree on it, else sorted by name."""
    orders = {tuple(model.name for model in part.models) for part in parts}
    names = next(iter(orders)) if len(orders) == 1 else sorted({name for order in orders for name in order})
    chosen = {} if terms_from is None else {model.name: model for model in terms_from.models}
    return [replace(chosen.get(name) or _agreed(name, parts), max_cost_usd=_dearest(name, parts)) for name in names]


def _agreed(name: str, parts: Sequence[Part]) -> Model:
    """Return a model as all parts have it; raises `NotMergeable` where they differ."""
    met = [(part.name, model) for part in parts for model in part.models if model.name == name]
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


def _dearest(name: str, parts: Sequence[Part]) -> float | None:
    """Return the most that a call costs in any part, or None if some part has calls that nothing bounds."""
    bounds = [bound for part in parts for bound in _bounds(name, part)]
    known = [bound for bound in bounds if bound is not None]
    return max(known) if known and len(known) == len(bounds) else None


def _bounds(name: str, part: Part) -> Iterable[float | None]:
    """Yield the bound of a part that knows the model; none where it has neither bound nor call."""
    for k, model in enumerate(part.models):
        if model.name == name and (model.max_cost_usd is not None or part.estimates.calls[:, k].any()):
            yield model.max_cost_usd


def _policy(parts: Sequence[Part]) -> Policy:
    """Return a fresh policy like that of all parts."""
    name, settings = parts[0].policy.name, parts[0].policy.settings()
    others = [part.name for part in parts if (part.policy.name, part.policy.settings()) != (name, settings)]
    if others:
        raise NotMergeable(
            f"parts must have the same policy, got {name} {settings} in {parts[0].name} and others in "
            f"{', '.join(others)}: give the one to go on with, merge(..., policy=...)",
            what="policy",
            parts=(parts[0].name, *others),
        )
    return open_policy(name, settings)


def _widened(part: Part, column: dict[str, int]) -> Estimates:
    """Return the sums of a part with a column for each model of all parts."""
    columns = [column[model.name] for model in part.models]
    wide = {name: np.zeros((len(array), len(column))) for name, array in part.estimates.arrays().items()}
    for name, array in part.estimates.arrays().items():
        wide[name][:, columns] = array
    return Estimates.of_arrays(wide)
