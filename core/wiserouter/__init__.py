"""WISERouter: budget-aware LLM routing.

Given a pool of models and one budget for a whole workload, WISERouter sends each query to the model that buys the most
total quality, keeps to the budget, and keeps learning from real costs and feedback.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wiserouter.budgets.budget import Budget as Budget
    from wiserouter.budgets.limits import Limit as Limit
    from wiserouter.budgets.limits import Limits as Limits
    from wiserouter.conversations.settings import Conversations as Conversations
    from wiserouter.fitting.log import RoutingLog as RoutingLog
    from wiserouter.learning.drift import Watch as Watch
    from wiserouter.learning.estimates import Estimates as Estimates
    from wiserouter.learning.reclustering import Growing as Growing
    from wiserouter.planning.plan import Plan as Plan
    from wiserouter.planning.policies import EpsilonFirst as EpsilonFirst
    from wiserouter.planning.policies import ExploreShare as ExploreShare
    from wiserouter.planning.policies import Offline as Offline
    from wiserouter.planning.policies import Optimistic as Optimistic
    from wiserouter.pricing.pool import Model as Model
    from wiserouter.pricing.prices import Price as Price
    from wiserouter.pricing.prices import Usage as Usage
    from wiserouter.pricing.prior_scores import PriorScores as PriorScores
    from wiserouter.pricing.use_rates import UseRate as UseRate
    from wiserouter.prompts.contexts import Contexts as Contexts
    from wiserouter.prompts.encoders import open_encoder as open_encoder
    from wiserouter.router import WiseRouter as WiseRouter
    from wiserouter.routing.explanation import Explanation as Explanation
    from wiserouter.routing.label_budget import LabelBudget as LabelBudget
    from wiserouter.routing.shadow import Shadow as Shadow
    from wiserouter.routing.signals import Answer as Answer
    from wiserouter.routing.status import Status as Status
    from wiserouter.routing.status import WindowStatus as WindowStatus
    from wiserouter.stores import MemoryStore as MemoryStore
    from wiserouter.stores import open_store as open_store
    from wiserouter.types import NO_CONTEXT as NO_CONTEXT
    from wiserouter.types import Decision as Decision

__version__ = "0.1.0"

_HOMES = {
    "Answer": "wiserouter.routing.signals",
    "Budget": "wiserouter.budgets.budget",
    "Contexts": "wiserouter.prompts.contexts",
    "Conversations": "wiserouter.conversations.settings",
    "Decision": "wiserouter.types",
    "EpsilonFirst": "wiserouter.planning.policies",
    "Estimates": "wiserouter.learning.estimates",
    "Explanation": "wiserouter.routing.explanation",
    "ExploreShare": "wiserouter.planning.policies",
    "Growing": "wiserouter.learning.reclustering",
    "LabelBudget": "wiserouter.routing.label_budget",
    "Limit": "wiserouter.budgets.limits",
    "Limits": "wiserouter.budgets.limits",
    "MemoryStore": "wiserouter.stores",
    "Model": "wiserouter.pricing.pool",
    "NO_CONTEXT": "wiserouter.types",
    "Offline": "wiserouter.planning.policies",
    "Optimistic": "wiserouter.planning.policies",
    "Plan": "wiserouter.planning.plan",
    "Price": "wiserouter.pricing.prices",
    "PriorScores": "wiserouter.pricing.prior_scores",
    "RoutingLog": "wiserouter.fitting.log",
    "Shadow": "wiserouter.routing.shadow",
    "Status": "wiserouter.routing.status",
    "Usage": "wiserouter.pricing.prices",
    "UseRate": "wiserouter.pricing.use_rates",
    "Watch": "wiserouter.learning.drift",
    "WindowStatus": "wiserouter.routing.status",
    "WiseRouter": "wiserouter.router",
    "open_encoder": "wiserouter.prompts.encoders",
    "open_store": "wiserouter.stores",
}
"""The module of each public name, which is loaded when the name is first used: a command must begin before numpy is
loaded, to catch a Ctrl-C meanwhile."""

if not TYPE_CHECKING:  # a type checker takes the names that it finds above: of a computed list it would read none
    __all__ = list(_HOMES)
    __all__ += ["__version__"]

_LOADING = RLock()
"""Held while a name is loaded: of threads that load packages with circular imports at once, one finds a part of one."""


def __getattr__(name: str) -> object:
    """Load a public name, or a module such as `wiserouter.errors`, when it is first used."""
    with _LOADING:
        if name in _HOMES:
            globals()[name] = getattr(import_module(_HOMES[name]), name)
            return globals()[name]
        if not name.isidentifier() or name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
