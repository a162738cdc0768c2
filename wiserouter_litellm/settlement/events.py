"""The deployment of an event: which one LiteLLM's log events and hooks are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter_litellm.deployments.arms import ARM_KEY
from wiserouter_litellm.deployments.registry import DeploymentInfo
from wiserouter_litellm.groups.group import DECISION_KEY, Group
from wiserouter_litellm.requests.json_objects import MAPPING
from wiserouter_litellm.requests.origin import metadata_of
from wiserouter_litellm.settlement.other_surfaces import UNROUTED_KEY


def answering(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `model_info` of the deployment that answered."""
    return about_to_be_sent(kwargs.get("litellm_params") or {})


def attempted(kwargs: Mapping[str, Any]) -> object:
    """Return the `model_info` of an attempt's own deployment; the metadata may hold that of the next attempt."""
    return (kwargs.get("litellm_params") or {}).get("model_info")


def about_to_be_sent(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `model_info` of a call; where another callback took our mark out, LiteLLM's metadata still have it."""
    found = [info for each in (kwargs, metadata_of(kwargs)) if isinstance(info := each.get("model_info"), MAPPING)]
    marked = (info for info in found if DECISION_KEY in info or UNROUTED_KEY in info)
    return next(marked, found[0] if found else {})


def info_of(group: Group, model_info: Mapping[str, Any]) -> DeploymentInfo | None:
    """Return the deployment of a call; LiteLLM gives it another id where the request brings credentials."""
    ids = (model_info.get("id"), model_info.get("original_model_id"))
    return group.registry.find(*ids, arm=model_info.get(ARM_KEY))
