"""Reads of a `litellm.Router`, by the names that its version has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litellm.router import Router

from wiserouter_litellm.deployments import Deployment, id_of


def deployments_of(litellm_router: Router, group: str) -> list[Deployment]:
    """Return the deployments of a group, under their own model names."""
    if hasattr(litellm_router, "registry"):  # LiteLLM 1.109 and later
        registry = litellm_router.registry()
        rows = registry.deployments(group) or []
    else:
        rows = litellm_router.get_model_list(model_name=group) or []
    everything = _rows(litellm_router)
    ids = {id_of(row) for row in rows}
    return [deployment for deployment in everything if id_of(deployment) in ids]


def ownership(litellm_router: Router) -> Callable[[str], bool]:
    """Return the function that returns True if a deployment of an id is one of the router's."""
    if hasattr(litellm_router, "registry"):
        return lambda deployment_id: bool(litellm_router.registry().has_deployment(deployment_id))
    return litellm_router.has_model_id


def hands_out(litellm_router: Router, deployment: Deployment) -> bool:
    """Return True if a deployment is the router's own object; LiteLLM hands these out, but copies those of a pattern.

    The id does not say so: LiteLLM makes it of the parameters, so that routers with like deployments have like ids.
    """
    return any(row is deployment for row in _rows(litellm_router))


def _rows(litellm_router: Router) -> list[Any]:
    if hasattr(litellm_router, "registry"):  # LiteLLM 1.109 and later
        return list(litellm_router.registry().all())
    return list(litellm_router.model_list)
