"""The values of requests by budget: each budget keeps the mix of values of the requests that it pays for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wiserouter.budgets.funds import Funds
from wiserouter.planning.value_mix import ValueMix
from wiserouter.planning.valued_plan import ValuedPlans, ValuedRequest


class RequestValues:
    """The mixes of values of all budgets.

    Parameters
    ----------
    payers : callable
        Returns the scopes of the budgets that pay for a scope, one for each of `Funds.each`.

    Notes
    -----
    Made at the first request whose value is not 1: all that the horizons of the budgets have counted before had that.
    """

    def __init__(self, payers: Callable[[str], Sequence[str]]) -> None:
        self._payers = payers
        self._plans: dict[str, ValuedPlans] = {}

    def weighed(self, value: float, scope: str, funds: Funds, *, counts: bool) -> ValuedRequest | None:
        """Return the value of a request among those that its tightest budget pays for; None where all are 1.

        Parameters
        ----------
        value : float
            The value of the request.
        scope : str
            The scope that pays.
        funds : Funds
            The funds of its budgets.
        counts : bool
            Whether it uses up one request of the horizon.
        """
        payers = self._payers(scope) if funds.each else (scope,)
        each = dict(zip(payers, funds.each or (funds,), strict=False))
        if counts:
            for payer, own in each.items():
                self._of(payer, own).mix.add(value)
        tightest = min(each, key=lambda payer: each[payer].rate_usd)
        plans = self._of(tightest, each[tightest])
        return None if plans.mix.is_plain and value == 1.0 else ValuedRequest(value, plans)

    def _of(self, scope: str, funds: Funds) -> ValuedPlans:
        plans = self._plans.get(scope)
        if plans is None:
            n_plain = funds.requests / funds.share - funds.requests if funds.share > 0.0 else 0.0
            plans = self._plans[scope] = ValuedPlans(ValueMix(n_plain))
        return plans
