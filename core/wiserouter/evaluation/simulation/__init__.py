"""Simulation: every method on the same requests, in environments whose true means are known."""

from wiserouter.evaluation.simulation.environment import Environment, Stream
from wiserouter.evaluation.simulation.episode import Trace, play, play_hard
from wiserouter.evaluation.simulation.experiment import Study, simulate
from wiserouter.evaluation.simulation.methods import Method, default_methods, open_method
from wiserouter.evaluation.simulation.paper_environment import paper_environment
from wiserouter.evaluation.simulation.routerbench_environment import routerbench_like
from wiserouter.evaluation.simulation.score import Score, score_of
from wiserouter.evaluation.simulation.summary import Summary, slopes, summarise

__all__ = [
    "Environment",
    "Method",
    "Score",
    "Stream",
    "Study",
    "Summary",
    "Trace",
    "default_methods",
    "open_method",
    "paper_environment",
    "play",
    "play_hard",
    "routerbench_like",
    "score_of",
    "simulate",
    "slopes",
    "summarise",
]
