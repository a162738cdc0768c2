"""The counters of a call, and of a lease, in each of their windows, by state; rows in the order of `COUNTERS`."""

from __future__ import annotations

from typing import NamedTuple

from wiserouter.stores.engines.events import COUNTERS

Counts = list[float]


class CountedCall(NamedTuple):
    """A call as far as its windows count it.

    Attributes
    ----------
    id : str
        The decision.
    windows : tuple of str
        The windows that it counts in.
    held_usd, expected_usd : float, USD
        Its worst case and its expected cost.
    paper : bool
        Whether planning debits the expected cost.
    state : str
        "in flight", "charged", "released" or "presumed".
    cost_usd, debit_usd : float or None, USD
        The true or presumed cost, and what planning debits for it; None while it has none.
    counted : int
        1, or 0 for a call that continues a run and uses no request of the horizon.
    """

    id: str
    windows: tuple[str, ...]
    held_usd: float
    expected_usd: float
    paper: bool
    state: str
    cost_usd: float | None = None
    debit_usd: float | None = None
    counted: int = 1

    def with_outcome(self, to: str, cost_usd: float) -> CountedCall:
        """Return the call in another state, at a cost where it has one."""
        if to == "released":
            return self._replace(state=to, cost_usd=None, debit_usd=None)
        return self._replace(state=to, cost_usd=cost_usd, debit_usd=self.expected_usd if self.paper else cost_usd)

    def counts(self) -> Counts:
        """Return the counters of the call in each of its windows."""
        one = self.counted
        if self.state == "in flight":
            held = {"reserved_usd": self.held_usd, "expected_usd": self.expected_usd}
            return counters(**held, decided=one, in_flight=1, continuing=1 - one)
        if self.state == "released":
            return counters(released=1)
        cost_usd, debit_usd = self.cost_usd or 0.0, self.debit_usd or 0.0
        if self.state == "presumed":
            return counters(spent_usd=cost_usd, debited_usd=debit_usd, decided=one, presumed=1, presumed_usd=cost_usd)
        return counters(spent_usd=cost_usd, debited_usd=debit_usd, decided=one, charged=1)


def lease_counts(held_usd: float, *, presumed: bool) -> Counts:
    """Return the counters of the unused rest of a lease in each of its windows."""
    if presumed:
        return counters(spent_usd=held_usd, debited_usd=held_usd, presumed_usd=held_usd)
    return counters(leased_usd=held_usd)


def counters(**counts: float) -> Counts:
    """Return counters by name as a row; those that are not named are 0."""
    return [counts.get(name, 0.0) for name in COUNTERS]


NOWHERE = counters()
"""The counters of something that a window does not count."""
