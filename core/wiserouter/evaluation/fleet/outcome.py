"""What a fleet did with its budget."""

from __future__ import annotations

from typing import NamedTuple


class FleetOutcome(NamedTuple):
    """The figures of one run.

    Attributes
    ----------
    requests, served : int
        All requests, and those that a model answered.
    amount_usd, spent_usd : float
        The budget, and the true cost of all calls that were served.
    overspend_usd : float
        Spend beyond the budgets of the shards.
    idle_usd : float
        Mean over time of what workers had leased and not used.
    stranded_usd : float
        What was left of budgets that refused requests, at the end.
    exchanges_per_s : float
        Of all workers, as done by all servers.
    busy : float
        Share of its time that the busiest server works.
    reply_p50_s, reply_p99_s : float
        Time from a message to its answer.
    refused_away : int
        Requests of the lost shard that were refused while it was away.
    forgotten_usd : float
        Charges that were confirmed and lost with the shard; where only they were lost, their reservation is kept.
    """

    requests: int
    served: int
    amount_usd: float
    spent_usd: float
    overspend_usd: float
    idle_usd: float
    stranded_usd: float
    exchanges_per_s: float
    busy: float
    reply_p50_s: float
    reply_p99_s: float
    refused_away: int
    forgotten_usd: float
