"""Reads of LiteLLM's Router and proxy, by the names that the version has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from litellm.router import Router

from wiserouter_litellm.deployments.registry import Deployment, id_of
from wiserouter_litellm.errors import SettingsError


def check_litellm() -> None:
    """Refuse a LiteLLM whose router asks no callback which parameters a deployment is called with.

    From 1.110 on, it selects in Rust: of the deployments that a callback returns it reads the ids alone, so that the
    limits and marks of a decision are lost, and its synchronous calls ask no selection that could be replaced.

    Raises
    ------
    SettingsError
        If this is such a version.
    """
    if not hasattr(Router, "async_function_with_fallbacks"):
        rule = f"its version must be below 1.110, got {version('litellm')}, whose router loses what a callback decides"
        remedy = "run pip install 'wiserouter[litellm]', for a proxy with 'litellm[proxy]<1.110'"
        raise SettingsError("litellm", f"{rule}: {remedy}")


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


def call_defaults_of(litellm_router: Router) -> Mapping[str, Any]:
    """Return the parameters that a router adds to each call."""
    if hasattr(litellm_router, "settings"):  # LiteLLM 1.109 and later
        return dict(litellm_router.settings().default_litellm_params or {})
    return litellm_router.default_litellm_params


def issued_id(id_: str) -> str:
    """Return the id of an answer as LiteLLM's router issued it: the proxy encrypts that of a response for its client.

    A client continues and rates an answer by the encrypted id, of which the proxy makes another at each encryption.

    Examples
    --------
    >>> issued_id("chatcmpl-1")
    'chatcmpl-1'
    """
    if "litellm.proxy.proxy_server" not in sys.modules or not id_.startswith("resp_"):
        return id_  # without a proxy nothing is encrypted, and to ask would load the whole of it
    from litellm.proxy.hooks.responses_id_security import ResponsesIDSecurity

    return str(ResponsesIDSecurity()._decrypt_response_id(id_)[0])


def hands_out(litellm_router: Router, deployment: Deployment) -> bool:
    """Return True if a deployment is the router's own object; LiteLLM hands these out, but copies those of a pattern.

    The id does not say so: LiteLLM makes it of the parameters, so that routers with like deployments have like ids.
    """
    return any(row is deployment for row in _rows(litellm_router))


def _rows(litellm_router: Router) -> list[Any]:
    if hasattr(litellm_router, "registry"):  # LiteLLM 1.109 and later
        return list(litellm_router.registry().all())
    return list(litellm_router.model_list)
