"""WISERouter: budget-aware LLM routing.

Given a pool of models and one budget for a whole workload, WISERouter sends each query to the model that buys the most
total quality, keeps to the budget, and keeps learning from real costs and feedback.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.limits import Limit, Limits
from wiserouter.conversations.settings import Conversations
from wiserouter.learning.drift import Watch
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.reclustering import Growing
from wiserouter.planning.plan import Plan
from wiserouter.planning.policies import EpsilonFirst, ExploreShare, Offline, Optimistic
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Price, Usage
from wiserouter.pricing.use_rates import UseRate
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import open_encoder
from wiserouter.router import WiseRouter
from wiserouter.routing.label_budget import LabelBudget
from wiserouter.routing.shadow import Shadow
from wiserouter.routing.signals import Answer
from wiserouter.routing.status import Status, WindowStatus
from wiserouter.stores import MemoryStore, open_store
from wiserouter.types import NO_CONTEXT, Decision

if TYPE_CHECKING:
    from wiserouter.fitting.log import RoutingLog
    from wiserouter.pricing.prior_scores import PriorScores
    from wiserouter.routing.explanation import Explanation

__version__ = "0.1.0"

__all__ = [
    "NO_CONTEXT",
    "Answer",
    "Budget",
    "Contexts",
    "Conversations",
    "Decision",
    "EpsilonFirst",
    "Estimates",
    "Explanation",
    "ExploreShare",
    "Growing",
    "LabelBudget",
    "Limit",
    "Limits",
    "MemoryStore",
    "Model",
    "Offline",
    "Optimistic",
    "Plan",
    "Price",
    "PriorScores",
    "RoutingLog",
    "Shadow",
    "Status",
    "Usage",
    "UseRate",
    "Watch",
    "WindowStatus",
    "WiseRouter",
    "__version__",
    "open_encoder",
    "open_store",
]


_LATE = {
    "Explanation": "wiserouter.routing.explanation",
    "PriorScores": "wiserouter.pricing.prior_scores",
    "RoutingLog": "wiserouter.fitting.log",
}


def __getattr__(name: str) -> object:
    """Load a name that serving does not need, when it is first used."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(_LATE[name]), name)
    return globals()[name]
