"""Many workers that share budgets through Redis servers, as a discrete-event simulation."""

from wiserouter.evaluation.fleet.outcome import FleetOutcome
from wiserouter.evaluation.fleet.run import simulate_fleet
from wiserouter.evaluation.fleet.terms import FleetTerms

__all__ = ["FleetOutcome", "FleetTerms", "simulate_fleet"]
