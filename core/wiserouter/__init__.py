"""WISERouter: budget-aware LLM routing.

Given a pool of models and one budget for a whole workload, send each query to the model that buys the most total
quality, hold to the budget, and keep learning from real costs and feedback.
"""

from __future__ import annotations

from wiserouter.budget import Budget
from wiserouter.contexts import Contexts
from wiserouter.encoders import open_encoder
from wiserouter.estimates import Estimates
from wiserouter.log import RoutingLog
from wiserouter.plan import Plan
from wiserouter.policies import EpsilonFirst, Offline
from wiserouter.router import WiseRouter
from wiserouter.status import Status
from wiserouter.stores import MemoryStore, open_store
from wiserouter.types import NO_CONTEXT, Decision, Model, Price, Usage

__version__ = "0.1.0"

__all__ = [
    "NO_CONTEXT",
    "Budget",
    "Contexts",
    "Decision",
    "EpsilonFirst",
    "Estimates",
    "MemoryStore",
    "Model",
    "Offline",
    "Plan",
    "Price",
    "RoutingLog",
    "Status",
    "Usage",
    "WiseRouter",
    "__version__",
    "open_encoder",
    "open_store",
]
