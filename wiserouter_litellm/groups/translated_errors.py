"""What a selection that failed becomes: LiteLLM's error for a refusal, or LiteLLM's own order after a fault of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter.errors import BudgetError, StoreError
from wiserouter_litellm.errors import NO_RETRY, BudgetRefused, BudgetUncertain, FallbackRefused, ScopeRefused
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.requests.origin import metadata_of


def translate_error(group: Group, healthy: list[Any], error: Exception, kwargs: Mapping[str, Any]) -> list[Any]:
    """Raise LiteLLM's error for a refusal; after a fault return LiteLLM's own order, unless a limit is hard.

    Raises
    ------
    BudgetRefused
        If the budget is used up.
    ScopeRefused
        If no budget pays for this caller.
    BudgetUncertain
        If a hard budget must stay closed.
    """
    group.note_refusal(error)
    if isinstance(error, BudgetError):
        raise refused(group, error, group.scope_resolver.scope_of(metadata_of(kwargs))) from error
    is_refusal = isinstance(error, ScopeRefused | FallbackRefused)
    if is_refusal or type(error).__module__.startswith("litellm"):  # no model or budget takes it
        raise error
    group.fault("store" if isinstance(error, StoreError) else "selection", "selection failed", error=error)
    if group.hard:
        raise BudgetUncertain(group.name) from error
    return healthy


def refused(group: Group, error: BudgetError, scope: str) -> BudgetRefused:
    """Return LiteLLM's error for a refusal; where a fallback outside of the budget may answer, clients may send again.

    They get this error where that fallback has failed, too, which may pass.
    """
    refusal = BudgetRefused(group.name, error, scope)
    if group.fallback_policy == "outside":
        refusal.headers = {name: value for name, value in (refusal.headers or {}).items() if name not in NO_RETRY}
    return refusal
