"""WISERouter: budget-aware LLM routing.

Given a pool of models and one budget for a whole workload, send each query to the model that buys the most total
quality, hold to the budget, and keep learning from real costs and feedback.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from wiserouter.budget import Budget
from wiserouter.contexts import Contexts
from wiserouter.encoders import open_encoder
from wiserouter.estimates import Estimates
from wiserouter.growing import Growing
from wiserouter.labels import LabelBudget
from wiserouter.plan import Plan
from wiserouter.policies import EpsilonFirst, ExploreShare, Offline, Optimistic
from wiserouter.router import WiseRouter
from wiserouter.status import Status, WindowStatus
from wiserouter.stores import MemoryStore, open_store
from wiserouter.types import NO_CONTEXT, Decision, Model, Price, Usage
from wiserouter.watch import Watch

if TYPE_CHECKING:
    from wiserouter.explaining import Explanation
    from wiserouter.log import RoutingLog

__version__ = "0.1.0"

__all__ = [
    "NO_CONTEXT",
    "Budget",
    "Contexts",
    "Decision",
    "EpsilonFirst",
    "Estimates",
    "Explanation",
    "ExploreShare",
    "Growing",
    "LabelBudget",
    "MemoryStore",
    "Model",
    "Offline",
    "Optimistic",
    "Plan",
    "Price",
    "RoutingLog",
    "Status",
    "Usage",
    "Watch",
    "WindowStatus",
    "WiseRouter",
    "__version__",
    "open_encoder",
    "open_store",
]


_LATE = {"Explanation": "wiserouter.explaining", "RoutingLog": "wiserouter.log"}


def __getattr__(name: str) -> object:
    """Load what serving does not need when it is asked for."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(_LATE[name]), name)
    return globals()[name]
