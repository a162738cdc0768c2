"""Routing logs: past calls with their prompts, models, scores and costs."""

from wiserouter.log.reader import LogBatch, RoutingLog

__all__ = ["LogBatch", "RoutingLog"]
