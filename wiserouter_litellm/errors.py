"""The errors of the adapter: its own for settings, and LiteLLM's for refusals, in the shape that clients know.

::

    WiseRouterError
    ├── SettingsError                        the configuration breaks a rule; `key` says where
    └── UnknownCall                          feedback for a call that is unknown, expired or another key's
    litellm.RateLimitError
    ├── BudgetRefused                        429: the group's budget is used up
    └── FallbackRefused                      429: the group's budget pays for no fallback to another group
    litellm.ContextWindowExceededError       400: no model of the group can take so long a request
    litellm.BadRequestError                  400: nothing bounds the cost of the request, and the budget is hard;
                                             or it states a value that is none
    litellm.PermissionDeniedError
    └── ScopeRefused                         403: no budget pays for this caller
    litellm.ServiceUnavailableError
    └── BudgetUncertain                      503: a hard budget stays closed after a fault of the adapter
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from datetime import UTC, datetime

import httpx
from litellm.exceptions import (
    BadRequestError,
    ContextWindowExceededError,
    PermissionDeniedError,
    RateLimitError,
    RateLimitErrorCategory,
    ServiceUnavailableError,
)

from wiserouter.errors import (
    BudgetError,
    BudgetExhausted,
    HorizonExhausted,
    InvalidInput,
    RunBudgetExhausted,
    WiseRouterError,
)
from wiserouter.integration import BudgetPaused

END_RUN, RAISE_RUN = "end the run and begin another", "ask an administrator to raise run_budget_usd"

HELD_RETRY_S = 2
"""Time in seconds after which a client asks again where only calls in flight stand in the way."""

NO_RETRY = {"x-should-retry": "false"}
"""Headers by which the clients of OpenAI and Anthropic do not send a request again where time changes nothing."""


class SettingsError(WiseRouterError):
    """The configuration breaks a rule; `key` is the dotted path of the setting."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(f"{key}: {message}")


class UnknownCall(WiseRouterError):
    """No call of this id can be rated: it is unknown, has expired, came from the cache, or was made by another key."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        super().__init__(
            f"call {call_id!r} is unknown or has expired: pass the x-litellm-call-id of an answer that this key got, "
            f"or the session id of its calls"
        )


class BudgetRefused(RateLimitError):
    """The budget of a group pays for no further call; `error` is the core's, `renews_at` the time of its renewal."""

    def __init__(self, group: str, error: BudgetError, scope: str = "default") -> None:
        self.error, self.scope = error, scope
        self.renews_at: float | None = getattr(error, "renews_at", None)
        wait_s = retry_after_s(error, time.time())
        super().__init__(
            f"group {group!r}{'' if scope == 'default' else f', {scope}'}: {refusal_text(error)}",
            llm_provider="wiserouter",
            model=group,
            num_retries=0,  # asking again at once changes nothing
            category=RateLimitErrorCategory.LITELLM_RATE_LIMIT,
            rate_limit_type="budget",
            headers=dict(NO_RETRY) if wait_s is None else {"retry-after": str(wait_s)},
        )
        self.type = "budget_exceeded"  # the `type` of the OpenAI-shaped error


def retry_after_s(error: BudgetError, now_s: float) -> int | None:
    """Return the whole seconds after which a refused request may be sent again; None where time changes nothing."""
    if not isinstance(error, BudgetExhausted | BudgetPaused):
        return None
    if isinstance(error, BudgetExhausted) and error.is_only_held:
        return HELD_RETRY_S
    return None if error.renews_at is None else max(1, math.ceil(error.renews_at - now_s))


def refusal_text(error: BudgetError) -> str:
    """Return the reason of a refusal and a remedy, in words for a client of HTTP.

    Examples
    --------
    >>> refusal_text(HorizonExhausted(100, 0.5))
    'the 100 requests that the budget was planned for are used up (0.5 USD left); an administrator can plan for more'
    """
    if isinstance(error, RunBudgetExhausted):
        return f"{error.account}: {', or '.join([*error.remedies, END_RUN, RAISE_RUN])}"
    if isinstance(error, BudgetExhausted):
        renewal = "" if error.renews_at is None else f"; it renews at {_instant(error.renews_at)}"
        return (
            f"{error.account}: {', or '.join([*error.remedies, 'ask an administrator to raise the budget'])}{renewal}"
        )
    if isinstance(error, HorizonExhausted):
        return (
            f"the {error.horizon} requests that the budget was planned for are used up ({error.left_usd:.6g} USD "
            f"left); an administrator can plan for more"
        )
    if isinstance(error, BudgetPaused):
        return str(error)
    return "no budget pays for this call; an administrator can start one"


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


class FallbackRefused(RateLimitError):
    """The budget of a group does not pay for a fallback to `target`; LiteLLM answers with the error before it."""

    def __init__(self, group: str, target: str, reason: str = "") -> None:
        self.target = target
        rule = reason or "fallback_policy is refuse: set it to inside or outside"
        super().__init__(
            f"group {group!r}: its budget does not pay for a fallback to {target!r}: {rule}",
            llm_provider="wiserouter",
            model=group,
            num_retries=0,
            category=RateLimitErrorCategory.LITELLM_RATE_LIMIT,
            rate_limit_type="budget",
        )
        self.type = "budget_exceeded"


class ScopeRefused(PermissionDeniedError):
    """The settings give this caller no budget; `scope` is the id of the caller."""

    def __init__(self, group: str, by: str, id_: str, *, most: int | None = None) -> None:
        self.scope = id_
        caller = f"{by} {id_!r}" if id_ else f"a caller without {by}"
        reason = "" if most is None else f": max_others={most} budgets are open already"
        super().__init__(
            f"group {group!r} has no budget for {caller}{reason}; an administrator can add one to scopes.budgets",
            llm_provider="wiserouter",
            model=group,
            response=httpx.Response(403, request=httpx.Request("POST", "http://wiserouter")),
            num_retries=0,
        )


class BudgetUncertain(ServiceUnavailableError):
    """Selection failed, and a hard budget admits no call that it cannot account for."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"group {group!r}: routing failed, and its hard budget stays closed until the fault is fixed; the "
            f"log of the proxy says which",
            llm_provider="wiserouter",
            model=group,
            num_retries=0,
        )


def too_long(group: str, tokens: int, windows: dict[str, int]) -> ContextWindowExceededError:
    """Return the error for a request of about `tokens` tokens, with the windows that it exceeds."""
    limits = ", ".join(f"{name}: {window}" for name, window in windows.items())
    return ContextWindowExceededError(
        f"group {group!r}: the request has about {tokens} tokens, more than any model of the group takes ({limits})",
        model=group,
        llm_provider="wiserouter",
    )


def unbounded(group: str, models: list[str], params: Collection[str | None] = ()) -> BadRequestError:
    """Return the error for a call of unbounded cost, with the settings that would bound it."""
    names = ", ".join(sorted(name for name in params if name))
    return BadRequestError(
        f"group {group!r}: nothing bounds the cost of this request with {', '.join(models)}, and the budget is hard: "
        f"set model_info.max_input_tokens and max_output_tokens, or cap_output_tokens; a service tier needs its price"
        f"{f'; take {names} out of litellm_params' if names else ''}",
        model=group,
        llm_provider="wiserouter",
    )


def bad_value(group: str, error: InvalidInput) -> BadRequestError:
    """Return the error for a request whose metadata states a value that is none."""
    return BadRequestError(f"group {group!r}: metadata.wiserouter_value: {error}", group, "wiserouter")


def uncountable(group: str) -> BadRequestError:
    """Return the error for a kind of call whose cost cannot be bounded: an embedding, a file, a compaction."""
    return BadRequestError(
        f"group {group!r}: only calls with text can be bounded, and the budget is hard: send embeddings, images, "
        f"audio, files and compactions to a group without a hard budget",
        model=group,
        llm_provider="wiserouter",
    )
