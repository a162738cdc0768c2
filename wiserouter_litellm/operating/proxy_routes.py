"""Routes of the proxy, behind its own authentication: feedback, status, plans and explanations.

The routes are plain functions: FastAPI runs them in threads, where they may wait for a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Response
from litellm.proxy._types import LiteLLMRoutes, LitellmUserRoles, UserAPIKeyAuth
from litellm.proxy.auth.user_api_key_auth import user_api_key_auth

from wiserouter import WiseRouter
from wiserouter.errors import (
    AlreadySettled,
    InvalidInput,
    MissingExtra,
    NotStarted,
    StoreError,
    UnknownDecision,
    UnknownPrice,
)
from wiserouter.integration import savings, what_if
from wiserouter_litellm.conversations.conversation_ids import tenant_of
from wiserouter_litellm.conversations.feedback_keys import keys_to_try
from wiserouter_litellm.errors import UnknownCall
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.scopes import OWN
from wiserouter_litellm.operating.change_routes import add_changes
from wiserouter_litellm.operating.group_names import groups_named
from wiserouter_litellm.operating.metrics import exposition
from wiserouter_litellm.operating.page import OperatorPage, page_files
from wiserouter_litellm.operating.route_guard import (
    LONGEST_ID,
    RETRY_AFTER_S,
    EndedSession,
    Feedback,
    FeedbackQueue,
    GuardedRoute,
)
from wiserouter_litellm.settings.budget_settings import MOST_REQUESTS
from wiserouter_litellm.settlement.recorder import Recorder

POSTED = ("/wiserouter/feedback", "/wiserouter/end")
"""The routes that every key may post to."""

MOST_USD = 1e12
"""Largest budget that a plan is asked for."""

_ADMINS = frozenset({LitellmUserRoles.PROXY_ADMIN, LitellmUserRoles.PROXY_ADMIN_VIEW_ONLY})

Caller = Annotated[UserAPIKeyAuth, Depends(user_api_key_auth)]
Name = Annotated[str, Query(max_length=512)]


def mount(app: FastAPI, recorder: Recorder) -> None:
    """Add the routes to the proxy's application; routes of an earlier configuration now serve this recorder."""
    first = not hasattr(app.state, "wiserouter")
    app.state.wiserouter = recorder
    app.state.wiserouter_feedback_queue, app.state.wiserouter_order_queue = FeedbackQueue(), FeedbackQueue()
    for routes in (LiteLLMRoutes.openai_routes, LiteLLMRoutes.llm_api_routes):  # otherwise only administrators may post
        routes.value.extend(route for route in POSTED if route not in routes.value)
    if first:
        app.state.wiserouter_page = OperatorPage(lambda: app.state.wiserouter.groups)
        app.include_router(router_of(lambda: app.state.wiserouter, app.state.wiserouter_page))
    app.state.wiserouter_page.watch(recorder.groups.values())


def router_of(recorder: Callable[[], Recorder], page: OperatorPage) -> APIRouter:
    """Return the routes over the groups of the current recorder."""
    router = APIRouter(prefix="/wiserouter", tags=["wiserouter"], route_class=GuardedRoute)

    @router.post("/feedback")
    def feedback(body: Feedback, caller: Caller) -> dict[str, Any]:
        """Record a user's score of an answer or a run that this key got; a second one replaces the first."""
        with _http_errors():
            terms = {"comment": body.comment, "source": body.source, **_terms(caller)}
            if body.source != "human" and not terms["any_caller"]:
                raise HTTPException(403, f"source must be human for this key, got {body.source!r}")
            replaced = recorder().feedback(body.id, body.score, **terms)
        return {"status": "recorded", "replaced": replaced}

    @router.post("/end")
    def end(body: EndedSession, caller: Caller) -> dict[str, str]:
        """End a run or a conversation of this key, so that the budget no longer reckons with its rest."""
        with _http_errors():
            recorder().end(body.id, **_terms(caller))
        return {"status": "ended"}

    @router.get("/status")
    def status(caller: Caller) -> dict[str, Any]:
        """Return the status of every budget."""
        _only_admins(caller)
        return {"groups": {name: group_status(group) for name, group in recorder().groups.items()}}

    @router.get("/plan")
    def plan(
        caller: Caller,
        group: Name,
        budget_usd: Annotated[float | None, Query(ge=0, le=MOST_USD, allow_inf_nan=False)] = None,
        requests: Annotated[int | None, Query(ge=1, le=MOST_REQUESTS)] = None,
        scope: Name = OWN,
    ) -> dict[str, Any]:
        """Return the plan of a budget over the requests to come; by default that of the rest of the running one."""
        _only_admins(caller)
        found = next(iter(groups_named(recorder().groups, group).values()))
        with _http_errors():
            return group_plan(found, budget_usd, requests, scope)

    @router.get("/explain/{call}")
    def explain(caller: Caller, call: Annotated[str, Path(max_length=LONGEST_ID)]) -> dict[str, Any]:
        """Return the explanation of a decision, found by decision id, call id or response id."""
        _only_admins(caller)
        with _http_errors():
            return explained(recorder(), call, caller.api_key)

    router.add_api_route("/metrics", metrics, methods=["GET"])
    router.include_router(page.routes(), dependencies=[Depends(_administrator)])
    router.include_router(page_files())
    router.add_api_route("/savings", savings_route(recorder), methods=["GET"])
    add_changes(router, recorder)
    return router


def savings_route(recorder: Callable[[], Recorder]) -> Callable[..., dict[str, Any]]:
    """Return the route of what each budget saved."""

    def saved(
        caller: Caller,
        since: Name = "30d",
        group: Name | None = None,
        scope: Name | None = None,
        before: Annotated[str | None, Query(max_length=4096)] = None,
    ) -> dict[str, Any]:
        """Return the savings of each budget: against the best model, the cheapest one, and the traffic of before."""
        _only_admins(caller)
        groups = recorder().groups
        asked = groups if group is None else groups_named(groups, group)
        with _http_errors():
            by_budget = {one.shared_budget or name: one.router for name, one in asked.items()}
            found = {name: savings(one, since, scope=scope, before=before) for name, one in by_budget.items()}
        return {"groups": {name: one.as_dict() for name, one in found.items()}}

    return saved


def metrics(caller: Caller) -> Response:
    """Return the metrics of the router and its budgets, as Prometheus reads them."""
    _only_admins(caller)
    try:
        text, content_type = exposition()
    except MissingExtra as error:
        raise HTTPException(404, str(error)) from None
    return Response(text, media_type=content_type)


@contextmanager
def _http_errors() -> Iterator[None]:
    """Translate errors into HTTP statuses."""
    try:
        yield
    except UnknownCall as error:
        raise HTTPException(404, str(error)) from None
    except NotStarted as error:
        raise HTTPException(404, f"scope {error.scope!r} has no budget, and no plan") from None
    except AlreadySettled:
        raise HTTPException(409, "the call failed and was released, so there is no answer to rate") from None
    except (InvalidInput, UnknownPrice) as error:
        raise HTTPException(422, str(error)) from None
    except StoreError as error:
        text = "the store of budgets and decisions cannot be reached; the log of the proxy says why"
        raise HTTPException(503, text, {"retry-after": str(RETRY_AFTER_S)}) from error


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
        with suppress(UnknownDecision):
            decision = group.router.decision(*keys_to_try(call, caller, any_caller=True))
            found = {"group": name} if group.shared_budget is None else {"budget": group.shared_budget}
            return {**found, **group.router.explain(decision.id).as_dict()}
    raise UnknownCall(call)


def group_status(group: Group) -> dict[str, Any]:
    """Return the accounts of a group, the estimates of its models, the health of its store and its faults."""
    router = group.router
    faults = {"uncounted_calls": 0, **group.faults, "encoder": group.lookup.failures}
    faults |= {} if router.journal is None else {"journal": router.journal.dropped}
    judge = router.judge
    judging = () if judge is None or judge.settings.budget_usd is None else (judge.settings.source,)
    scopes = {scope: _account(router, scope) for scope in (*group.scope_resolver.opened, *judging)}
    rest = {"models": _models(group), "scopes": scopes, "store": router.health()._asdict(), "faults": faults}
    shared = {} if group.shared_budget is None else {"budget": group.shared_budget}
    return {**_account(router, OWN), "mode": _mode(router), "waiting": group.queue.n_waiting, **rest, **shared}


def _mode(router: WiseRouter) -> dict[str, Any]:
    """Return the mode of a group, and the share of the traffic that the router acts on."""
    shadow = router.shadow
    return {"mode": "route", "share": 1.0} if shadow is None else {"mode": "shadow", "share": shadow.share}


def _models(group: Group) -> dict[str, dict[str, Any]]:
    """Return the estimates, the deployments and the price of each model."""
    estimates = group.router.estimates
    calls, labels = estimates.calls.sum(axis=0), estimates.labels.sum(axis=0)
    infos = group.registry.infos
    deployments = Counter(info.model for info in infos)
    rate_cards, orders = {info.model: info.rate_card for info in infos}, group.router.orders.models
    return {
        name: {
            "calls": int(calls[k]),
            "mean_cost_usd": _mean(estimates.cost[:, k].sum(), calls[k]),
            "labels": int(labels[k]),
            "mean_reward": _mean(estimates.reward[:, k].sum(), labels[k]),
            "deployments": deployments[name],
            "retired": group.router.pool.by_name[name].retired,
            "params": dict(group.router.pool.by_name[name].params),
            "max_share": orders[name].max_share if name in orders else None,
            "price_usd_per_token": asdict(rate_cards[name].price) if name in rate_cards else None,
            "price_source": rate_cards[name].source if name in rate_cards else None,
        }
        for k, name in enumerate(group.router.pool.names)
    }


def _account(router: WiseRouter, scope: str) -> dict[str, Any]:
    """Return the account of one scope, or the error where the store cannot be read."""
    try:
        return {**router.status(scope).as_dict(), "limit": "hard" if router.is_hard(scope) else "expected"}
    except StoreError as error:
        return {"scope": scope, "unavailable": str(error)}


def group_plan(group: Group, budget_usd: float | None, requests: int | None, scope: str = OWN) -> dict[str, Any]:
    """Return the plan at another budget: rate, spend, reward, shadow price and the share of each model."""
    status, plan = group.router.status(scope), group.router.plan
    left = max(1, status.horizon_left) if requests is None else requests
    amount = status.left_usd if budget_usd is None else budget_usd
    if plan is None:
        raise HTTPException(409, f"group {group.name!r} has observed nothing yet: there is no plan")
    rate_usd = max(amount, 0.0) / left
    bought = what_if(plan, max(rate_usd, plan.floor_usd), group.router.pool.names)
    curve = plan.curve()
    return {
        "group": group.name,
        "budget_usd": amount,
        "requests": left,
        "rate_usd": rate_usd,
        "feasible": bool(rate_usd >= plan.floor_usd),
        "expected_spend_usd": bought.expected_spend_usd * left,
        "expected_reward": bought.expected_reward,
        "shadow_price": bought.shadow_price,
        "mix": bought.mix,
        "curve": {"rate_usd": np.round(curve.spend_usd, 12).tolist(), "reward": curve.value.tolist()},
    }


def _mean(total: float, count: float) -> float | None:
    return float(total / count) if count else None


def _terms(caller: UserAPIKeyAuth) -> dict[str, Any]:
    """Return whose calls a caller may rate and end, as the recorder takes it."""
    token = {
        "user_api_key_hash": caller.api_key,
        "user_api_key_user_id": caller.user_id,
        "user_api_key_team_id": caller.team_id,
    }
    return {"caller": caller.api_key, "any_caller": _is_admin(caller), "tenant": tenant_of(token)}


def _is_admin(caller: UserAPIKeyAuth) -> bool:
    return caller.user_role == LitellmUserRoles.PROXY_ADMIN


def _administrator(caller: Caller) -> None:
    _only_admins(caller)


def _only_admins(caller: UserAPIKeyAuth) -> None:
    if caller.user_role not in _ADMINS:
        raise HTTPException(403, "only a proxy administrator may read budgets")
