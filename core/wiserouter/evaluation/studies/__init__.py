"""Studies of the paper that run on a table, or on a simulation, instead of on the rows of a bench."""

from wiserouter.evaluation.studies.ablations import ablations
from wiserouter.evaluation.studies.accuracy import accuracy
from wiserouter.evaluation.studies.breakpoints import HORIZONS, breakpoints
from wiserouter.evaluation.studies.simulated import simulated
from wiserouter.evaluation.studies.variance import variance

__all__ = ["HORIZONS", "ablations", "accuracy", "breakpoints", "simulated", "variance"]
