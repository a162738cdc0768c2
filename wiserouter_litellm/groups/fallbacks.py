"""Fallbacks: the calls that LiteLLM sends on from one of our groups, and the group whose budget pays for them.

A request is made under the budget of the first of our groups that it reaches. LiteLLM may send it on from there: to
the groups of `fallbacks`, `context_window_fallbacks`, `content_policy_fallbacks` and `default_fallbacks`, to those that
the request itself names, after a stream that broke, to the id of a single deployment, or to a `silent_model`. The
group's `fallback_policy` says whether its budget pays for these calls, they are refused, or they are outside of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wiserouter_litellm.deployments.registry import Deployment, id_of
from wiserouter_litellm.errors import FallbackRefused
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.requests.origin import TRACE_KEY

GROUP_NOTE_KEY = "wiserouter_group"
"""Key of the request's metadata under which the group that it was made under is noted."""


def paying_group(
    groups: Mapping[str, Group], noted: str | None, model: str, deployments: Sequence[Deployment]
) -> Group | None:
    """Return the group whose budget pays for a call; None where none of ours does.

    Parameters
    ----------
    groups : mapping of str to Group
        Our groups by name.
    noted : str or None
        The group under which the request was made, where it has been at one of ours before.
    model : str
        The model group that the call is sent to, or the id of a deployment.
    deployments : sequence of mapping
        The deployments that can serve the call.

    Raises
    ------
    FallbackRefused
        If it is a fallback, and the policy of the group refuses it.
    """
    target = groups.get(model) or _group_of(groups, deployments)
    origin = groups.get(noted or "")
    if origin is None or origin is target:
        return target
    if origin.fallback_policy == "refuse":
        raise refusal(origin, model)
    if origin.fallback_policy == "inside":
        return origin
    origin.faults["outside_calls"] += 1
    return target


def refusal(group: Group, target: str, reason: str = "") -> FallbackRefused:
    """Return the error of a fallback that is not sent, counted and logged: LiteLLM answers with the error before it."""
    error = FallbackRefused(group.name, target, reason)
    group.fault("refused_fallbacks", f"a fallback is not sent: {error.message}")
    return error


def noted_group(metadata: Mapping[str, Any], kwargs: Mapping[str, Any], owner: str) -> str | None:
    """Return the name of the group that a request was made under, by our own note or LiteLLM's.

    LiteLLM copies the metadata for a stream before a deployment is selected, so our note is missing where that stream
    breaks. It notes the first group of a request itself, over anything that a client sends.
    """
    note = group_note(metadata, kwargs, owner)
    if note is not None:
        return str(note["group"])
    first = metadata.get("original_model_group")
    return str(first) if kwargs.get("fallback_depth") and first else None


def note_group(
    metadata: dict[str, Any], kwargs: Mapping[str, Any], owner: str, group: str, uncounted: Collection[str] = ()
) -> None:
    """Note the group that a request is made under, and the deployments that may serve it without a reservation.

    All attempts of a request share one note: LiteLLM copies the metadata for a fallback, but not what it holds.
    """
    note = group_note(metadata, kwargs, owner)
    if note is None:
        note = metadata[GROUP_NOTE_KEY] = {"owner": owner, "trace": kwargs.get(TRACE_KEY)}
    note.update(group=group, uncounted=sorted(uncounted))


def group_note(metadata: Mapping[str, Any], kwargs: Mapping[str, Any], owner: str) -> dict[str, Any] | None:
    """Return the note of a request, if this owner made it for this request."""
    note = metadata.get(GROUP_NOTE_KEY)
    is_ours = isinstance(note, dict) and note.get("owner") == owner and note.get("trace") == kwargs.get(TRACE_KEY)
    return note if is_ours else None


def passes_uncounted(
    metadata: Mapping[str, Any], kwargs: Mapping[str, Any], owner: str, deployment: Deployment
) -> bool:
    """Return True if a selection has let this call pass to the deployment without a reservation."""
    note = group_note(metadata, kwargs, owner)
    return note is not None and id_of(deployment) in note["uncounted"]


def _group_of(groups: Mapping[str, Group], deployments: Sequence[Deployment]) -> Group | None:
    """Return the group whose deployments these are, where a call names them by id or by LiteLLM model."""
    names = {str(deployment.get("model_name")) for deployment in deployments}
    return groups.get(names.pop()) if len(names) == 1 else None
