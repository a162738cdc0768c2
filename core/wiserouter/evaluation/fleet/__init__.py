"""Many workers that share budgets through Redis servers, as a discrete-event simulation."""

from wiserouter.evaluation.fleet.fleet import Fleet
from wiserouter.evaluation.fleet.outcome import FleetOutcome
from wiserouter.evaluation.fleet.run import simulate_fleet

__all__ = ["Fleet", "FleetOutcome", "simulate_fleet"]
