"""The policies, which choose a model for a context and a rate, by name."""

from __future__ import annotations

from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.planning.policies.epsilon_first import EpsilonFirst
from wiserouter.planning.policies.offline import Offline
from wiserouter.planning.policies.optimistic import Optimistic
from wiserouter.planning.policies.uniform_exploration import ExploreShare
from wiserouter.planning.policy import Choice, Policy, Rule

__all__ = [
    "Choice",
    "EpsilonFirst",
    "ExploreShare",
    "Offline",
    "Optimistic",
    "Policy",
    "Rule",
    "open_policy",
]

_POLICIES: dict[str, Any] = {policy.name: policy for policy in (Offline, EpsilonFirst, Optimistic)}


def open_policy(name: str, settings: dict[str, Any]) -> Policy:
    """Return the policy of this name and settings.

    Raises
    ------
    InvalidInput
        If no policy has this name or a setting is unknown.
    """
    if name not in _POLICIES:
        raise InvalidInput(f"policy must be one of {', '.join(_POLICIES)}, got {name!r}", value=name)
    policy: Policy = _POLICIES[name](**settings)
    return policy
