"""Feedback, status and what-if on the proxy, behind its own authentication.

The routes are plain functions: FastAPI runs them in threads, where they may wait for a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query
from litellm.proxy._types import LiteLLMRoutes, LitellmUserRoles, UserAPIKeyAuth
from litellm.proxy.auth.user_api_key_auth import user_api_key_auth
from pydantic import BaseModel, ConfigDict, Field

from wiserouter import WiseRouter
from wiserouter.errors import AlreadySettled, NotStarted, StoreError, UnknownDecision
from wiserouter_litellm.errors import UnknownCall
from wiserouter_litellm.feedback_keys import keys_to_try
from wiserouter_litellm.group import Group
from wiserouter_litellm.scopes import OWN
from wiserouter_litellm.wise_callback import Recorder

FEEDBACK = "/wiserouter/feedback"
RETRY_AFTER_S = 2
_ADMINS = frozenset({LitellmUserRoles.PROXY_ADMIN, LitellmUserRoles.PROXY_ADMIN_VIEW_ONLY})

Caller = Annotated[UserAPIKeyAuth, Depends(user_api_key_auth)]


class Feedback(BaseModel):
    """A score of one answer."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    id: str = Field(min_length=1, max_length=256, description="call id, decision id or response id of the answer")
    score: float = Field(ge=0, le=1, description="0 is useless, 1 is perfect", strict=True)
    comment: str | None = Field(None, max_length=2_000)


def mount(app: FastAPI, recorder: Recorder) -> None:
    """Add the routes to the proxy's application; those of an earlier configuration serve this one from now on."""
    first = not hasattr(app.state, "wiserouter")
    app.state.wiserouter = recorder
    for routes in (LiteLLMRoutes.openai_routes, LiteLLMRoutes.llm_api_routes):  # else only administrators may post
        if FEEDBACK not in routes.value:
            routes.value.append(FEEDBACK)
    if first:
        app.include_router(router_of(lambda: app.state.wiserouter))


def router_of(recorder: Callable[[], Recorder]) -> APIRouter:
    """Return the routes over the groups of whichever callback there is now."""
    router = APIRouter(prefix="/wiserouter", tags=["wiserouter"])

    @router.post("/feedback")
    def feedback(body: Feedback, caller: Caller) -> dict[str, Any]:
        """Take a user's score of an answer of this key; a second one replaces the first."""
        with _told():
            replaced = recorder().feedback(
                body.id, body.score, comment=body.comment, caller=caller.api_key, any_caller=_is_admin(caller)
            )
        return {"status": "recorded", "replaced": replaced}

    @router.get("/status")
    def status(caller: Caller) -> dict[str, Any]:
        """Return where every budget stands."""
        _only_admins(caller)
        return {"groups": {name: group_status(group) for name, group in recorder().groups.items()}}

    @router.get("/plan")
    def plan(
        caller: Caller,
        group: str,
        budget_usd: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
        requests: Annotated[int | None, Query(ge=1)] = None,
        scope: str = OWN,
    ) -> dict[str, Any]:
        """Return what a budget would buy over the requests to come; by default what the running one still buys."""
        _only_admins(caller)
        groups = recorder().groups
        if group not in groups:
            raise HTTPException(404, f"group must be one of {', '.join(groups)}, got {group!r}")
        with _told():
            return what_if(groups[group], budget_usd, requests, scope)

    @router.get("/explain/{call}")
    def explain(caller: Caller, call: str) -> dict[str, Any]:
        """Return why a decision fell as it did; by decision id, call id or response id."""
        _only_admins(caller)
        with _told():
            return explained(recorder(), call, caller.api_key)

    return router


@contextmanager
def _told() -> Iterator[None]:
    """Turn what is refused into its HTTP status."""
    try:
        yield
    except (UnknownCall, UnknownDecision, NotStarted) as error:
        raise HTTPException(404, str(error)) from None
    except AlreadySettled as error:
        raise HTTPException(409, str(error)) from None
    except StoreError as error:
        raise HTTPException(503, str(error), {"retry-after": str(RETRY_AFTER_S)}) from error


def explained(recorder: Recorder, call: str, caller: str | None) -> dict[str, Any]:
    """Return the group and the explanation of a decision, or of the one behind a call.

    Raises
    ------
    UnknownCall
        If there is none.
    StoreUnavailable
        If a store cannot be reached.
    """
    for name, group in recorder.groups.items():
        for known_as in keys_to_try(call, caller, any_caller=True):
            with suppress(UnknownDecision):
                return {"group": name, **group.router.explain(known_as).as_dict()}
    raise UnknownCall(call)


def group_status(group: Group) -> dict[str, Any]:
    """Return the accounts of a group, what is known of its models, how its store is, and what went wrong."""
    router = group.router
    seen = router.estimates
    calls, labels = seen.calls.sum(axis=0), seen.labels.sum(axis=0)
    deployments = Counter(info.model for info in group.registry.infos.values())
    tariffs = {info.model: info.tariff for info in group.registry.infos.values()}
    models = {
        name: {
            "calls": int(calls[k]),
            "mean_cost_usd": _mean(seen.cost[:, k].sum(), calls[k]),
            "labels": int(labels[k]),
            "mean_reward": _mean(seen.reward[:, k].sum(), labels[k]),
            "deployments": deployments[name],
            "price_usd_per_token": asdict(tariffs[name].price) if name in tariffs else None,
            "price_source": tariffs[name].source if name in tariffs else None,
        }
        for k, name in enumerate(router.pool.names)
    }
    faults = {**group.faults, "encoder": group.lookup.failures}
    scopes = {scope: _account(router, scope) for scope in group.scope_resolver.opened}
    told = {"models": models, "scopes": scopes, "store": router.health()._asdict(), "faults": faults}
    return {**_account(router, OWN), **told}


def _account(router: WiseRouter, scope: str) -> dict[str, Any]:
    """Return the account of one scope, or why it cannot be told."""
    try:
        return {**router.status(scope).as_dict(), "limit": "hard" if router.is_hard(scope) else "expected"}
    except StoreError as error:
        return {"scope": scope, "unavailable": str(error)}


def what_if(group: Group, budget_usd: float | None, requests: int | None, scope: str = OWN) -> dict[str, Any]:
    """Return the plan at another budget: rate, spend, reward, shadow price and the share of each model."""
    status, plan = group.router.status(scope), group.router.plan
    left = max(1, status.horizon_left) if requests is None else requests
    amount = status.left_usd if budget_usd is None else budget_usd
    if plan is None:
        raise HTTPException(409, f"group {group.name!r} has observed nothing yet: there is no plan")
    asked = max(amount, 0.0) / left
    rate = max(asked, plan.floor_usd)
    curve = plan.curve()
    return {
        "group": group.name,
        "budget_usd": amount,
        "requests": left,
        "rate_usd": asked,
        "feasible": bool(asked >= plan.floor_usd),
        "expected_spend_usd": plan.spend_usd(rate) * left,
        "expected_reward": plan.value(rate),
        "shadow_price": plan.shadow_price(rate),
        "mix": {name: float(s) for name, s in zip(group.router.pool.names, plan.freq @ plan.mix(rate), strict=False)},
        "curve": {"rate_usd": np.round(curve.spend_usd, 12).tolist(), "reward": curve.value.tolist()},
    }


def _mean(total: float, count: float) -> float | None:
    return float(total / count) if count else None


def _is_admin(caller: UserAPIKeyAuth) -> bool:
    return caller.user_role == LitellmUserRoles.PROXY_ADMIN


def _only_admins(caller: UserAPIKeyAuth) -> None:
    if caller.user_role not in _ADMINS:
        raise HTTPException(403, "only a proxy administrator may read budgets")
