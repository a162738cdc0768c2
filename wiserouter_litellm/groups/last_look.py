"""The last look at a call before it is sent: other callbacks may change or stop it after it was bounded.

LiteLLM asks its callbacks in their order, and ours comes early, since it selects. So where others may change calls, one
more of ours is kept at the end of the list. Where LiteLLM translates a call for a provider with another interface, it
asks all of them once more.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, wraps
from typing import Any, Protocol, TypeVar, cast

import litellm
from litellm.exceptions import BadRequestError
from litellm.integrations.custom_logger import CustomLogger

from wiserouter import Decision
from wiserouter.errors import BudgetError, StoreError
from wiserouter.integration import CallRequest
from wiserouter_litellm.deployments.registry import Candidate, DeploymentInfo
from wiserouter_litellm.errors import BudgetUncertain, uncountable
from wiserouter_litellm.groups.attempts import OpenAttempt
from wiserouter_litellm.groups.candidates import bounds_of, is_slow_to_read
from wiserouter_litellm.groups.direct_calls import direct_call, messages_of
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.translated_errors import refused
from wiserouter_litellm.requests.parameters import ANSWERS, CHAT, MESSAGES, broken_default
from wiserouter_litellm.requests.request import added_tokens, request_of

_HOOKS = ("async_pre_call_deployment_hook", "async_pre_request_hook")
"""The hooks in which callbacks may change a call after its deployment was selected."""

Hook = TypeVar("Hook", bound=Callable[..., Awaitable[Any]])


class LooksAgain(Protocol):
    """A callback that looks at calls once more."""

    async def alook_again(self, kwargs: Mapping[str, Any], call_type: Any) -> None:
        """Look at a call that is about to be sent."""


def sparing(hook: Hook) -> Hook:
    """Return a hook before a call whose refusals put no deployment into LiteLLM's cooldown.

    LiteLLM takes any error of a call that it has selected a deployment for as a failure of that one, and would keep it
    from all other callers.
    """

    @wraps(hook)
    async def sparing_hook(self: Any, kwargs: dict[str, Any], call_type: Any) -> Any:
        try:
            return await hook(self, kwargs, call_type)
        except Exception:
            info = kwargs.get("model_info")
            if isinstance(info, dict):  # the copy of this call
                info["cooldown_time"] = 0.0
            raise

    return cast("Hook", sparing_hook)


class LastLook(CustomLogger):
    """Passes a call that is about to be sent to the callback that selected its deployment.

    Parameters
    ----------
    first : CustomLogger
        That callback.
    """

    def __init__(self, first: CustomLogger) -> None:
        super().__init__()
        self.first = first

    @sparing
    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """Look at a call as the other callbacks have left it."""
        await cast("LooksAgain", self.first).alook_again(kwargs, call_type)

    async def async_pre_request_hook(self, model: str, messages: list[Any], kwargs: dict[str, Any]) -> None:
        """Look once more at a call of `/v1/messages`, which other callbacks may change in this hook as well."""
        await self.async_pre_call_deployment_hook({**kwargs, "model": model, "messages": messages}, MESSAGES)


def keep_last(first: CustomLogger) -> bool:
    """Keep a last look behind all callbacks that may change a call; return True if there is any.

    LiteLLM may be going through the present list, so nothing is taken out of it. The last look stays one object, since
    LiteLLM copies callbacks to its lists of events.
    """
    callbacks = litellm.callbacks
    places = [place for place, one in enumerate(callbacks) if one is not first and _changes_calls(one)]
    if not places:
        return False
    last = next((one for one in callbacks if isinstance(one, LastLook) and one.first is first), None)
    if last is None:
        callbacks.append(LastLook(first))
    elif last not in callbacks[places[-1] + 1 :]:
        litellm.callbacks = [*(one for one in callbacks if one is not last), last]
    return True


def drop_last(first: CustomLogger) -> None:
    """Take the last look of a callback out of LiteLLM's lists."""
    for one in list(litellm.callbacks):
        if isinstance(one, LastLook) and one.first is first:
            litellm.logging_callback_manager.remove_callback_from_all_lists(one, require_self=False)


def follows(first: CustomLogger) -> bool:
    """Return True if a callback has its last look in LiteLLM's list."""
    return any(isinstance(one, LastLook) and one.first is first for one in litellm.callbacks)


def look_at(
    attempt: OpenAttempt, info: DeploymentInfo | None, kwargs: Mapping[str, Any], call_type: Any
) -> tuple[Callable[[], Decision | None], bool]:
    """Return the step that decides on a call again if it costs more than its reservation, and True if that takes long.

    The step returns None where the reservation bears the call.

    Parameters
    ----------
    attempt : OpenAttempt
        The call, under a hard limit.
    info : DeploymentInfo or None
        Its deployment.
    kwargs : mapping
        Its arguments as they are sent, those of the deployment included.
    call_type : object
        LiteLLM's name of the call.

    Raises
    ------
    litellm.BadRequestError
        If nothing bounds it any more, or another model would answer.
    """
    group, model = attempt.group, kwargs.get("model")
    if info is None:
        raise uncountable(group.name)
    if not attempt.is_still_of(model):
        raise BadRequestError(
            f"group {group.name!r}: a callback replaced the model {attempt.sends!r} by {str(model)!r:.60} after the "
            "budget had chosen it; the budget is hard, so change the model in async_pre_call_hook, before that",
            model=group.name,
            llm_provider="wiserouter",
        )
    call = direct_call(call_type, kwargs)
    if call.surface == MESSAGES:
        kwargs = attempt.with_unshown(kwargs)
    refuse_added(group.name, call.surface, kwargs)
    request = request_of(messages_of(kwargs), kwargs, call.surface, reads_question=False)
    if request is None:
        raise uncountable(group.name)
    has_answers = any(kwargs.get(name) for name in ANSWERS[call.surface])
    answers = 1 if has_answers else info.defaults.answers  # the request has those of its deployment
    added = added_tokens({"litellm_system_prompt": kwargs.get("litellm_system_prompt")})  # and its other texts
    alternates = bool(kwargs.get("ensure_alternating_roles"))
    inputs = added + info.defaults.passed_on_tokens
    defaults = info.defaults._replace(answers=answers, input_tokens=inputs, alternates=alternates)
    info = info._replace(defaults=defaults)
    candidate = Candidate({"litellm_params": dict(kwargs)}, "", info, False)
    return partial(_decided_on_change, attempt, request, candidate), is_slow_to_read(request, [candidate], exact=True)


def _decided_on_change(attempt: OpenAttempt, request: CallRequest, candidate: Candidate) -> Decision | None:
    """Return another decision for a call that has become more expensive than its reservation; None where it has not.

    Raises
    ------
    BudgetRefused, BudgetUncertain, litellm.BadRequestError
        If the budget does not bear it, or nothing bounds it any more.
    """
    group, model = attempt.group, candidate.info.model
    bounds = bounds_of(group.name, request, [candidate], group.cap_output_tokens, exact=True, hard=True)
    worst_usd = (bounds.worst_usd or {}).get(model, math.inf)
    if worst_usd <= attempt.decision.reserved_usd * (1.0 + 1e-9):
        return None
    return decided_again(group, attempt.decision, model, {model: worst_usd})


def refuse_added(group: str, surface: str, kwargs: Mapping[str, Any]) -> None:
    """Refuse a call that a callback has given a parameter with a cost that nothing bounds.

    The request and the deployment have none, or the call would not have come so far.

    Raises
    ------
    litellm.BadRequestError
        If it has one.
    """
    own = {"text_completion"}  # as LiteLLM notes it
    if surface == CHAT and "messages" not in kwargs:
        own.add("prompt")  # that of a text completion, not a stored one
    name = broken_default({name: value for name, value in kwargs.items() if name not in own})
    if name is not None:
        raise BadRequestError(
            f"group {group!r}: a callback added {name} after the call was bounded; nothing bounds its cost, and the "
            "budget is hard: leave it out",
            model=group,
            llm_provider="wiserouter",
        )


def decided_again(group: Group, earlier: Decision, model: str, worst_usd: Mapping[str, float]) -> Decision:
    """Return a decision for one model in place of an earlier one, which is released.

    Raises
    ------
    BudgetRefused, BudgetUncertain
        If the budget does not bear it, or the store cannot be reached.
    """
    try:
        return group.decide_again(earlier, model, worst_usd)
    except BudgetError as error:
        raise refused(group, error, earlier.scope) from error
    except StoreError as error:
        group.fault("store", "selection failed", error=error)
        raise BudgetUncertain(group.name) from error


def give_back(group: Group, decision: Decision | None) -> None:
    """Release a decision that was made again for a caller who has left meanwhile."""
    if decision is not None:
        group.release(decision.id)


def _changes_calls(callback: object) -> bool:
    """Return True if a callback of others may change or stop a call before it is sent."""
    if not isinstance(callback, CustomLogger) or isinstance(callback, LastLook):
        return False
    own = any(getattr(type(callback), name) is not getattr(CustomLogger, name) for name in _HOOKS)
    return own and not hasattr(callback, "alook_again")
