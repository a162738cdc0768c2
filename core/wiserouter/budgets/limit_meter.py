r"""The meter of a limit: what the calls of a scope have used so far, and the mean that the next ones may use.

With a limit L on the mean and uses x_i, the excess is :math:`E = \sum_i (x_i - L)`. The calls to come may use

.. math:: b = L - E / \min(\max(\tau, 50), 300)

on average, where tau is the number of requests still to come: what was used too much is made up for over the rest of
the horizon, or over the next 300 requests of a longer one. So the mean so far converges to the limit where that
binds, also with wrong estimates. A total is spent like the budget, at b / tau.
"""

from __future__ import annotations

WINDOW = 300
"""Requests over which an excess is made up for; also the most requests whose savings are carried on."""

LEAST_WINDOW = 50
"""At the end of a horizon an excess is still made up for over this many requests."""


class LimitMeter:
    """The uses of one measure so far.

    Parameters
    ----------
    mean : float, optional
        The largest mean per call.
    total : float, optional
        The largest sum.

    Attributes
    ----------
    calls, used : float
        Number of calls, and the sum of their uses.

    Examples
    --------
    >>> meter = LimitMeter(mean=2.0)
    >>> for _ in range(100):
    ...     meter.add(3.0)
    >>> meter.rate(10_000), meter.rate(100)
    (1.6666666666666667, 1.0)
    """

    def __init__(self, mean: float | None = None, total: float | None = None) -> None:
        self.mean, self.total = mean, total
        self.calls, self.used = 0, 0.0
        self._excess = 0.0

    def add(self, use: float) -> None:
        """Count a call."""
        self.calls += 1
        self.used += use
        if self.mean is not None:
            self._excess = max(self._excess + use - self.mean, -WINDOW * self.mean)

    def set_total(self, calls: int, used: float) -> None:
        """Set the calls so far, and the sum of their uses: none in a new window, and those of all workers of a store.

        What is made up for stays as it is: each worker makes up for its own calls.
        """
        self.calls, self.used = calls, used

    def rate(self, requests: int, in_flight: float = 0.0, calls: int = 0) -> float:
        """Return the mean that each of the requests to come may use; the tighter one of mean and total.

        Parameters
        ----------
        requests : int
            Their number.
        in_flight : float
            The expected uses of the calls in flight.
        calls : int
            The number of these calls.
        """
        rates = []
        if self.mean is not None:
            excess = self._excess + in_flight - calls * self.mean
            rates.append(self.mean - excess / min(max(requests, LEAST_WINDOW), WINDOW))
        if self.total is not None:
            rates.append((self.total - self.used - in_flight) / max(requests, 1))
        return max(min(rates), 0.0)
