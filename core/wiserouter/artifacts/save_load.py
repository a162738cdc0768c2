"""What of a router goes into an artifact, and how it comes back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wiserouter.artifacts.file import read_artifact, write_artifact
from wiserouter.errors import ArtifactError, DamagedArtifact, WiseRouterError
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.planning.policies import open_policy
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price
from wiserouter.prompts.contexts import Contexts, ContextSummary
from wiserouter.prompts.encoders import Encoder, EncoderLike, encoder_from_state, open_encoder

if TYPE_CHECKING:
    from wiserouter.router import WiseRouter


def save_router(router: WiseRouter, estimates: Estimates, finer: QueryResiduals | None, path: str | Path) -> str:
    """Write models, contexts, encoder and policy of a router with what it learned, and return the content's hash."""
    encoder = router.encoder
    manifest: dict[str, Any] = {
        "models": [asdict(model) for model in router.pool.models],
        "policy": {"name": router.policy.name, "settings": router.policy.settings()},
        "encoder": None if encoder is None else {"spec": encoder.spec, "settings": encoder.settings()},
        "portraits": [portrait._asdict() for portrait in router.contexts.portraits],
    }
    if router.contexts.n_queries is not None:
        manifest["n_queries"] = router.contexts.n_queries
    if finer is not None:
        manifest["finer"] = finer.settings()
    arrays = {
        "contexts.centroids": router.contexts.centroids,
        "contexts.freq": router.contexts.freq,
        **_prefixed("estimates.", estimates.arrays()),
        **_prefixed("encoder.", encoder.state() if encoder is not None else {}),
        **_prefixed("finer.", finer.arrays() if finer is not None else {}),
    }
    return write_artifact(path, manifest, arrays)


def load_parts(path: str | Path, encoder: EncoderLike | None) -> dict[str, Any]:
    """Return the keyword arguments that make the saved router; `encoder` replaces the saved one.

    Raises
    ------
    ArtifactError
        If the file is not an artifact, is damaged, or needs an encoder that no file can hold.
    """
    manifest, arrays = read_artifact(path)
    try:
        return {
            "models": [_model(fields) for fields in manifest["models"]],
            "contexts": _contexts(manifest, arrays),
            "estimates": Estimates.of_arrays(_without("estimates.", arrays)),
            "finer": _finer(manifest.get("finer"), _without("finer.", arrays)),
            "policy": open_policy(manifest["policy"]["name"], manifest["policy"]["settings"]),
            "encoder": _encoder(path, manifest["encoder"], _without("encoder.", arrays), encoder),
        }
    except (KeyError, TypeError) as error:
        raise DamagedArtifact(path, f"it lacks {error}: fit it again") from error
    except WiseRouterError as error:
        if isinstance(error, ArtifactError | ImportError):
            raise
        raise DamagedArtifact(path, f"{error}: fit it again") from error


def _encoder(
    path: str | Path, saved: dict[str, Any] | None, arrays: dict[str, Any], replacement: EncoderLike | None
) -> Encoder | None:
    if replacement is not None:
        return open_encoder(replacement)
    if saved is None:
        return None
    if saved["spec"] == "custom":
        raise ArtifactError(path, "it was fitted with an encoder of your own: pass it with load(..., encoder=...)")
    return encoder_from_state(saved["spec"], saved["settings"], arrays)


def _contexts(manifest: dict[str, Any], arrays: dict[str, Any]) -> Contexts:
    """Return the contexts; artifacts of earlier versions say less of them."""
    portraits = [ContextSummary(*map(tuple, (one["terms"], one["prompts"]))) for one in manifest.get("portraits", ())]
    return Contexts(arrays["contexts.centroids"], arrays["contexts.freq"], portraits, manifest.get("n_queries"))


def _finer(settings: dict[str, Any] | None, arrays: dict[str, Any]) -> QueryResiduals | None:
    return None if settings is None else QueryResiduals.of_arrays(settings, arrays)


def _model(fields: dict[str, Any]) -> Model:
    price = fields.pop("price")
    return Model(**fields, price=None if price is None else Price(**price))


def _prefixed(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {prefix + name: array for name, array in arrays.items()}


def _without(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
