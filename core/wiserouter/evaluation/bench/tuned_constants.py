"""The constants that change choices on routing tables, and are judged by leaving tables out.

docs/constants.md lists these and all others of the decision and the learning, each with the reason for its value.
"""

from __future__ import annotations

TUNED = (
    "learning.cost_prior.PRIOR_SPREAD",
    "learning.random_effects.LEVEL",
    "learning.random_effects.LEVEL_SPREAD",
    "learning.random_effects.SLOPE",
    "learning.random_effects.SLOPE_SPREAD",
    "learning.shrinkage.UNIDENTIFIED_STRENGTH",
    "planning.policies.offline.RESOLVE_GROWTH",
    "planning.policies.optimistic.DRIFT",
    "planning.policies.optimistic.HORIZON_GROWTH",
    "planning.policies.optimistic.REFRESH_GROWTH",
    "learning.memory.MEMORY",
)
"""By the name of the module in the package, and of the constant in it."""
