"""The routes by which administrators act while the proxy serves: each change counts in all workers of the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth
from litellm.proxy.auth.user_api_key_auth import user_api_key_auth

from wiserouter.errors import InvalidInput, NotStarted, StoreError, UnknownModel, UnknownPrice
from wiserouter.integration import ChangeAnswer, ChangeRefused
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.group_setup import check_can_be_hard
from wiserouter_litellm.groups.scopes import hashed_key
from wiserouter_litellm.operating.change_bodies import BudgetOrder, ModelOrderBody, ModeOrder
from wiserouter_litellm.operating.group_names import groups_named
from wiserouter_litellm.settlement.recorder import Recorder

Caller = Annotated[UserAPIKeyAuth, Depends(user_api_key_auth)]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="a second request for the group with this key in a day changes nothing, and has the same answer",
    ),
]


def add_changes(router: APIRouter, recorder: Callable[[], Recorder]) -> None:
    """Add the routes that change the groups of the current recorder."""

    @router.post("/budget")
    def budget(body: BudgetOrder, caller: Caller, key: Key = None) -> dict[str, Any]:
        """Change a running budget: its amount, requests or limit; pause, resume or end it."""
        only_those_who_may_change(caller)
        groups = groups_of(recorder(), body.group)
        with refusals():
            change = body.change()
            if change.limit == "hard":
                for group in groups:
                    check_can_be_hard(group.name, group.registry, group.cap_output_tokens)
            answered = groups[0].router.change_budget(change, scope=body.scope, by=ordered_by(caller), key=key or "")
        return {"group": body.group, **as_json(answered)}

    @router.post("/model")
    def model(body: ModelOrderBody, caller: Caller, key: Key = None) -> dict[str, Any]:
        """Set the price, the service or the largest share of a model, or take that back."""
        only_those_who_may_change(caller)
        groups = groups_of(recorder(), body.group)
        with refusals():
            router = groups[0].router
            answer = router.change_model(body.model, **body.given(), by=ordered_by(caller), key=key or "")
        return {"group": body.group, **answer._asdict()}

    @router.post("/mode")
    def mode(body: ModeOrder, caller: Caller, key: Key = None) -> dict[str, Any]:
        """Route, or go into shadow mode with a share of the traffic."""
        only_those_who_may_change(caller)
        groups = groups_of(recorder(), body.group)
        with refusals():
            router = groups[0].router
            answer = router.change_mode(body.mode, share=body.share, by=ordered_by(caller), key=key or "")
        return {"group": body.group, **answer._asdict()}


def as_json(answered: ChangeAnswer) -> dict[str, Any]:
    """Return the answer to a change of a budget."""
    return answered._asdict()


def groups_of(recorder: Recorder, name: str) -> list[Group]:
    """Return the groups that an order is for: one group, or all under a budget.

    Raises
    ------
    HTTPException
        404 if there is none; 409 if other workers would not follow.
    """
    named = next(iter(groups_named(recorder.groups, name).values()))
    found = [group for group in recorder.groups.values() if group.router is named.router]
    if int(os.environ.get("NUM_WORKERS") or 1) > 1 and not found[0].durable:
        text = "its store is in memory, where other workers would not follow: use one worker, or a shared store"
        raise HTTPException(409, f"group {found[0].name!r} cannot be changed while it serves: {text}")
    return found


def ordered_by(caller: UserAPIKeyAuth) -> str:
    """Return who gave an order, for the journal: the user, else the hash of the key."""
    return f"user:{caller.user_id}" if caller.user_id else f"key:{hashed_key(str(caller.api_key))}"


def only_those_who_may_change(caller: UserAPIKeyAuth) -> None:
    """Refuse all but the administrators of the proxy; those who may only view are not among them."""
    if caller.user_role != LitellmUserRoles.PROXY_ADMIN:
        raise HTTPException(403, "only a proxy administrator may change budgets, models and the mode")


@contextmanager
def refusals() -> Iterator[None]:
    """Translate errors of a change into HTTP statuses; those that a promise stands against have the figures."""
    try:
        yield
    except ChangeRefused as error:
        raise HTTPException(409, {"message": str(error), "figures": error.figures}) from None
    except UnknownModel as error:
        raise HTTPException(404, str(error)) from None
    except NotStarted as error:
        raise HTTPException(404, f"scope {error.scope!r} has no budget yet") from None
    except (InvalidInput, UnknownPrice) as error:
        raise HTTPException(422, str(error)) from None
    except StoreError as error:
        text = "the store cannot be reached, and nothing was changed as far as is known: send it again with its key"
        raise HTTPException(503, text, {"retry-after": "2"}) from error
