"""Routing logs: past calls with their prompts, models, scores and costs."""

from wiserouter.log.batch import LogBatch
from wiserouter.log.reader import RoutingLog

__all__ = ["LogBatch", "RoutingLog"]
