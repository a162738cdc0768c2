"""Artifacts of routers: the parts of a router as a manifest and arrays, written to one file and read back.

The keys `portraits` (summaries of contexts) and `finer` (residuals of queries) are part of the file format.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from wiserouter.artifacts.checks import (
    check_call_sums,
    check_contexts,
    check_estimates,
    check_manifest,
    check_means,
    check_residuals,
    check_smoothing,
    without_negatives,
    without_remainders,
)
from wiserouter.artifacts.file import read_artifact, write_artifact
from wiserouter.artifacts.first_prices import saved_first_prices, take_first_prices
from wiserouter.artifacts.parts import RouterParts
from wiserouter.errors import ArtifactError, DamagedArtifact, InvalidInput, WiseRouterError
from wiserouter.judging.agreement import checked_sums
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.learning.smoothing import Smoothing
from wiserouter.planning.policies import open_policy
from wiserouter.pricing.arms import split_arm
from wiserouter.pricing.pool import Model, Pool
from wiserouter.pricing.prices import Price
from wiserouter.prompts.contexts import Contexts, ContextSummary
from wiserouter.prompts.encoders import Encoder, EncoderLike, encoder_from_state, open_encoder
from wiserouter.prompts.encoders.base import QUICK

logger = logging.getLogger("wiserouter")

_CONTEXT_ARRAYS = ("contexts.centroids", "contexts.freq")
_PREFIXES = ("estimates.", "smoothing.", "encoder.", "finer.", "calls.")
_KINDS = "?biufUS"
"""Kinds of numpy types that an artifact may hold: truth values, whole and real numbers, text, bytes."""


def save(parts: RouterParts, path: str | Path) -> str:
    """Write the parts of a router to one file, replacing it at once or not at all, and return the content's hash.

    Raises
    ------
    ArtifactError
        If the file could not be loaded again; the one at `path` stays as it was.
    """
    contexts, encoder, residuals = parts.contexts, parts.encoder, parts.residuals
    manifest: dict[str, Any] = {
        "models": [_fields_of(model) for model in parts.models],
        "policy": {"name": parts.policy.name, "settings": parts.policy.settings()},
        "encoder": None if encoder is None else {"spec": encoder.spec, "settings": encoder.settings()},
        "portraits": [summary._asdict() for summary in contexts.summaries],
    }
    if contexts.n_queries is not None:
        manifest["n_queries"] = contexts.n_queries
    if residuals is not None:
        manifest["finer"] = residuals.settings()
    if parts.agreements:
        manifest["agreements"] = parts.agreements
    first_prices = saved_first_prices(parts)
    if first_prices:
        manifest["first_prices"] = first_prices
    arrays = {
        "contexts.centroids": contexts.centroids,
        "contexts.freq": contexts.freq,
        **_prefixed("estimates.", without_remainders(parts.estimates.arrays(), deviating=residuals is not None)),
        **_prefixed("smoothing.", parts.estimates.smoothing._asdict() if parts.estimates.smoothing else {}),
        **_prefixed("encoder.", encoder.state() if encoder is not None else {}),
        **_prefixed("finer.", residuals.arrays() if residuals is not None else {}),
        **_prefixed("calls.", dict(parts.call_sums or {})),
    }
    own_encoder = encoder if encoder is not None and encoder.spec == "custom" else None

    def check_loads(draft: Path) -> None:
        try:
            load(draft, own_encoder)
        except ArtifactError as error:
            reason = str(error).removeprefix(f"{draft}: ")
            raise ArtifactError(path, f"not written, since it could not be loaded again: {reason}") from error

    return write_artifact(path, manifest, arrays, check_loads)


def load(path: str | Path, encoder: EncoderLike | None = None) -> RouterParts:
    """Return the parts of the saved router; `encoder` replaces the saved one.

    Raises
    ------
    ArtifactError
        If the file is not an artifact, is damaged, or needs an encoder that no file can hold.
    """
    manifest, arrays = read_artifact(path)
    try:
        return _checked(_parts(path, manifest, arrays, encoder))
    except KeyError as error:
        raise DamagedArtifact(path, f"it lacks {error}: fit it again") from error
    except WiseRouterError as error:
        if isinstance(error, ArtifactError | ImportError):
            raise
        raise DamagedArtifact(path, f"{error}: fit it again") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DamagedArtifact(path, f"its content does not fit together ({error}): fit it again") from error


def _parts(
    path: str | Path, manifest: dict[str, Any], arrays: dict[str, Any], encoder: EncoderLike | None
) -> RouterParts:
    """Return the parts, each checked before it is made."""
    _check_prefixes(arrays)
    check_contexts(arrays)
    check_manifest(manifest)
    models = Pool([_model(fields) for fields in manifest["models"]]).models
    contexts = _contexts(manifest, arrays)
    shape, sums = (contexts.n_contexts, len(models)), _without("estimates.", arrays)
    if "scored" not in sums and "delay_s" not in sums:  # a file of an earlier version
        sums |= {"scored": np.minimum(sums["labels"], sums["invoked"]), "delay_s": np.zeros(shape)}
    check_estimates(sums, shape, deviating=manifest.get("finer") is not None)
    estimates = Estimates.of_arrays(without_negatives(sums, deviating=manifest.get("finer") is not None))
    smoothing = _without("smoothing.", arrays)
    if smoothing:
        check_smoothing(smoothing, shape)
        estimates.smoothing = Smoothing(**smoothing)
    call_sums = _without("calls.", arrays)
    if call_sums:
        check_call_sums(call_sums, shape)
    policy = open_policy(manifest["policy"]["name"], manifest["policy"]["settings"])
    take_first_prices(policy, models, manifest.get("first_prices", {}))
    residuals = _residuals(path, manifest.get("finer"), _without("finer.", arrays), shape, contexts.dim)
    return RouterParts(
        models=models,
        contexts=contexts,
        encoder=_encoder(path, manifest["encoder"], _without("encoder.", arrays), encoder),
        policy=policy,
        estimates=estimates,
        residuals=residuals,
        call_sums=call_sums or None,
        agreements=checked_sums(manifest.get("agreements", {})),
    )


def _checked(parts: RouterParts) -> RouterParts:
    """Return the parts if they work together: the means are finite, and a policy like theirs can plan with them."""
    contexts, estimates = parts.contexts, parts.estimates
    check_means(estimates, deviating=parts.residuals is not None)
    trial = open_policy(parts.policy.name, parts.policy.settings())
    with np.errstate(all="ignore"):
        trial.bind(contexts.freq, estimates.copy(), parts.models)
    _check_dimensions(contexts, parts.encoder)
    return parts


def _check_dimensions(contexts: Contexts, encoder: Encoder | None) -> None:
    """Raise `InvalidInput` if a fitted encoder has other dimensions than the centroids; a single one may have none."""
    if encoder is None or encoder.spec not in QUICK or (contexts.n_contexts == 1 and not contexts.dim):
        return
    got = encoder.encode("").size
    if got != contexts.dim:
        raise InvalidInput(f"the encoder must have the dimensions of the centroids ({contexts.dim}), got {got}")


def _check_prefixes(arrays: dict[str, Any]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind not in _KINDS:
            raise InvalidInput(f"{name} must hold real numbers or text, got {array.dtype}")
        if name not in _CONTEXT_ARRAYS and not name.startswith(_PREFIXES):
            raise InvalidInput(f"the arrays of an artifact must be known ones, got {name!r}")


def _residuals(
    path: str | Path, saved: dict[str, Any] | None, arrays: dict[str, Any], shape: tuple[int, int], dim: int
) -> QueryResiduals | None:
    """Return the estimators of single queries, without the costs by length that early versions fitted."""
    kept = {name: array for name, array in arrays.items() if not name.startswith("length.")}
    check_residuals(saved or {"n_models": shape[1], "residual": None}, kept, shape, dim)
    if len(kept) < len(arrays):
        logger.warning("%s: costs no longer follow the length of a query: the means of its context count", path)
    return None if saved is None or saved["residual"] is None else QueryResiduals.of_arrays(kept)


def _encoder(
    path: str | Path, saved: dict[str, Any] | None, arrays: dict[str, Any], replacement: EncoderLike | None
) -> Encoder | None:
    if replacement is not None:
        return open_encoder(replacement)
    if saved is None:
        if arrays:
            raise InvalidInput(f"the arrays of an artifact must be known ones, got 'encoder.{min(arrays)}'")
        return None
    if saved["spec"] == "custom":
        raise ArtifactError(path, "it was fitted with an encoder of your own: pass it with load(..., encoder=...)")
    return encoder_from_state(saved["spec"], saved["settings"], arrays)


def _contexts(manifest: dict[str, Any], arrays: dict[str, Any]) -> Contexts:
    summaries = [ContextSummary(*map(tuple, (one["terms"], one["prompts"]))) for one in manifest["portraits"]]
    return Contexts(arrays["contexts.centroids"], arrays["contexts.freq"], summaries, manifest.get("n_queries"))


def _fields_of(model: Model) -> dict[str, Any]:
    """Return the fields of a model; those of arms, batch prices and prior uses only where it has some."""
    is_arm = bool(model.params) or model.family != split_arm(model.name).model
    plain = (*(() if is_arm else ("params", "family")), *(() if model.batch_price else ("batch_price",)))
    plain = plain if model.resources else (*plain, "resources")
    return {name: value for name, value in asdict(model).items() if name not in plain}


def _model(fields: dict[str, Any]) -> Model:
    prices = {name: Price(**price) for name in ("price", "batch_price") if (price := fields.get(name)) is not None}
    return Model(**{**fields, **prices})


def _prefixed(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {prefix + name: array for name, array in arrays.items()}


def _without(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
