"""Simulation: every method on the same requests, in environments with known true means."""

from wiserouter.evaluation.simulation.environment import Environment, Stream
from wiserouter.evaluation.simulation.episode import EpisodeTrace, play, play_hard
from wiserouter.evaluation.simulation.experiment import Study, simulate
from wiserouter.evaluation.simulation.methods import SimulatedMethod, default_methods, open_method
from wiserouter.evaluation.simulation.paper_environment import paper_environment
from wiserouter.evaluation.simulation.routerbench_environment import routerbench_like
from wiserouter.evaluation.simulation.score import RunScore, score_of
from wiserouter.evaluation.simulation.summary import MethodSummary, slopes, summarise

__all__ = [
    "Environment",
    "EpisodeTrace",
    "MethodSummary",
    "RunScore",
    "SimulatedMethod",
    "Stream",
    "Study",
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
