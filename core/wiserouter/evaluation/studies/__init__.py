"""Experiments of the paper that need a table, or nothing, rather than the rows of a bench."""

from wiserouter.evaluation.studies.ablations import ablations
from wiserouter.evaluation.studies.accuracy import accuracy
from wiserouter.evaluation.studies.simulated import simulated
from wiserouter.evaluation.studies.variance import variance

__all__ = ["ablations", "accuracy", "simulated", "variance"]
