"""LiteLLM's own pre-call checks beside our selection: what those that run after it would keep, it looks up before.

LiteLLM asks the callbacks that filter deployments one after the other, in the order in which they were added. In a
proxy its checks (`optional_pre_call_checks`) are added after our callback, and would choose among deployments that were
ranked and reserved already. So a selection asks them first. Some checks pin a request to the deployment that served its
session, key or prompt before; a pin is a preference, which gives way to the budget. Others exclude deployments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import litellm
from litellm.integrations.custom_logger import CustomLogger

from wiserouter.errors import BudgetExhausted
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.selection import RoutingRequest, Selection

PINS = frozenset({"DeploymentAffinityCheck", "EncryptedContentAffinityCheck", "PromptCachingDeploymentCheck"})
"""The checks of LiteLLM that pin a request to a deployment."""

EXCLUSIONS = frozenset({"RouterBudgetLimiting"})
"""The checks of LiteLLM that exclude deployments."""


class Filtered(NamedTuple):
    """The deployments that may serve a request, and those of them that it is pinned to; all where it is not."""

    able: list[Any]
    pinned: list[Any]

    @property
    def others(self) -> list[Any]:
        """Those that it is not pinned to."""
        pinned = {id(each) for each in self.pinned}
        return [each for each in self.able if id(each) not in pinned]


async def filtered_by_later_checks(callback: CustomLogger, model: str, healthy: list[Any], *request: Any) -> Filtered:
    """Return the deployments that LiteLLM's checks after a callback will keep.

    Parameters
    ----------
    callback : CustomLogger
        The callback that selects.
    model : str
        The model group.
    healthy : list of mapping
        The deployments.
    *request
        Messages, keyword arguments and span, as LiteLLM passes them.
    """
    later = _after(callback)
    if not later:
        return Filtered(healthy, healthy)
    able = await _kept(later, EXCLUSIONS, model, healthy, *request)
    return Filtered(able, await _kept(later, PINS, model, able, *request))


async def aselect_from(group: Group, routing: RoutingRequest, filtered: Filtered) -> Selection:
    """Choose among the deployments that a request is pinned to, and among the others where the budget bears none.

    What a request continues comes before a pin.
    """
    is_pinned = len(filtered.pinned) < len(filtered.able) and not routing.references
    pinned = routing.among(filtered.pinned) if is_pinned else routing
    if not is_pinned or not pinned.candidates:
        return await group.aselect(routing)
    try:
        return await group.aselect(pinned)
    except BudgetExhausted:
        others = routing.among(filtered.others)
        if not others.candidates:
            raise
        group.faults["moved_pins"] += 1
        return await group.aselect(others)


def move_before_pins(callback: CustomLogger) -> None:
    """Move a callback before the checks that pin, so that a pin can give way to the budget.

    LiteLLM may be going through the present list, so that one is left as it is.
    """
    others = [one for one in litellm.callbacks if one is not callback]
    first = next((i for i, one in enumerate(others) if _is_one_of(one, PINS)), len(others))
    litellm.callbacks = [*others[:first], callback, *others[first:]]


async def _kept(
    checks: Sequence[Any], names: frozenset[str], model: str, deployments: list[Any], *request: Any
) -> list[Any]:
    for check in checks:
        if deployments and _is_one_of(check, names):
            deployments = await check.async_filter_deployments(model, deployments, *request)
    return deployments


def _after(callback: CustomLogger) -> list[Any]:
    callbacks = list(litellm.callbacks)
    return callbacks[callbacks.index(callback) + 1 :] if callback in callbacks else []


def _is_one_of(callback: object, names: frozenset[str]) -> bool:
    return type(callback).__name__ in names and type(callback).__module__.startswith("litellm.")
