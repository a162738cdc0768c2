"""Calls that are not routed by their text, such as embeddings, images, audio and files: charged after the answer.

Nothing bounds such a call beforehand, so a hard budget refuses it. Under an expected limit it goes to the deployment
that LiteLLM picks, with a mark by which its log event is found, and its cost is paid from the same budget.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any

from wiserouter_litellm.billing import bill_of
from wiserouter_litellm.deployments import Deployment, DeploymentInfo
from wiserouter_litellm.group import Group
from wiserouter_litellm.unpaid_costs import UnpaidCosts

UNROUTED_KEY = "wiserouter_unrouted"
"""Key of `model_info` under which the deployment of a call that is not routed carries the budget that pays."""


class RecentIds:
    """The last ids that were seen, so that several log events of one call charge it once.

    Parameters
    ----------
    most : int
        The number of ids that are kept.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._ids: dict[str, None] = {}
        self._most, self._lock = most, Lock()

    def is_new(self, id_: str) -> bool:
        """Return True if the id was not seen before."""
        with self._lock:
            if id_ in self._ids:
                return False
            self._ids[id_] = None
            if len(self._ids) > self._most:
                del self._ids[next(iter(self._ids))]
            return True


def marked_deployments(deployments: Iterable[Deployment], owner: str, group: str, scope: str) -> list[dict[str, Any]]:
    """Return copies of deployments whose calls are charged after the answer.

    Parameters
    ----------
    deployments : iterable of mapping
        The deployments that LiteLLM may pick.
    owner : str
        The recorder whose log events charge the call.
    group, scope : str
        The group and the scope whose budget pays.
    """
    return [
        {
            **one,
            "model_info": {
                **(one.get("model_info") or {}),
                UNROUTED_KEY: {"owner": owner, "group": group, "scope": scope, "id": uuid.uuid4().hex},
            },
        }
        for one in deployments
    ]


def unrouted_mark(model_info: object, owner: str) -> Mapping[str, str] | None:
    """Return the mark in a deployment's `model_info`, if this owner made it."""
    mark = model_info.get(UNROUTED_KEY) if isinstance(model_info, Mapping) else None
    return mark if isinstance(mark, Mapping) and mark.get("owner") == owner else None


def charge_unrouted(
    group: Group, mark: Mapping[str, str], kwargs: Mapping[str, Any], response: object, unpaid: UnpaidCosts
) -> None:
    """Charge the call of a log event to the budget that its mark names, now or when its store answers again."""
    info = group.registry.find(_deployment_id(kwargs))
    cost_usd = float(kwargs.get("response_cost") or 0.0) if info is None else _cost_usd(group, kwargs, response, info)
    if cost_usd > 0:
        unpaid.pay(group, cost_usd, mark["scope"])
    elif info is None:
        group.fault("uncounted_calls", "a deployment without a price answered a call")


def _cost_usd(group: Group, kwargs: Mapping[str, Any], response: object, info: DeploymentInfo) -> float:
    try:
        bill = bill_of(kwargs, response, info)
    except Exception as error:  # an answer that cannot be read was paid for all the same
        group.fault("unpriced_calls", "the bill of a call that is not routed cannot be read", error=error)
        return 0.0
    if bill is None or bill.estimated:
        group.fault(
            "unpriced_calls",
            f"{info.model} answered without a usage block, and LiteLLM has no price for this kind of call: set it in "
            f"litellm_params, such as output_cost_per_image",
        )
    return 0.0 if bill is None else bill.cost_usd


def _deployment_id(kwargs: Mapping[str, Any]) -> object:
    info = (kwargs.get("litellm_params") or {}).get("model_info")
    return info.get("id") if isinstance(info, Mapping) else None
