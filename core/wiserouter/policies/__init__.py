"""Policies: how a context and a rate become a model."""

from __future__ import annotations

from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.policies.base import Choice, Policy, Rule
from wiserouter.policies.confidence import ordering_is_certain
from wiserouter.policies.epsilon_first import EpsilonFirst
from wiserouter.policies.exploration import SufficientLength, sufficient_length
from wiserouter.policies.explore_share import ExploreShare
from wiserouter.policies.offline import Offline
from wiserouter.policies.optimistic import Optimistic

__all__ = [
    "Choice",
    "EpsilonFirst",
    "ExploreShare",
    "Offline",
    "Optimistic",
    "Policy",
    "Rule",
    "SufficientLength",
    "open_policy",
    "ordering_is_certain",
    "sufficient_length",
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
