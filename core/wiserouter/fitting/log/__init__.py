"""Routing logs: past calls with their prompts, models, scores and costs."""

from wiserouter.fitting.log.batch import LogBatch
from wiserouter.fitting.log.columns import LogColumns
from wiserouter.fitting.log.reader import RoutingLog
from wiserouter.fitting.log.scores import Scale

__all__ = ["LogBatch", "LogColumns", "RoutingLog", "Scale"]
