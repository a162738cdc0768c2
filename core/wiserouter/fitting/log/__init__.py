"""Routing logs: past calls with their prompts, models, scores and costs."""

from wiserouter.fitting.log.batch import LogBatch
from wiserouter.fitting.log.reader import RoutingLog

__all__ = ["LogBatch", "RoutingLog"]
