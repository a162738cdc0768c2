"""The funds of a decision: budget left b and requests left tau (paper, Algorithms 1 and 2), as a policy reads them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from wiserouter.errors import BudgetError, BudgetExhausted, StoreUnavailable


class Funds(NamedTuple):
    """The budget and the requests left, the paper's b and tau, with which a policy plans.

    Attributes
    ----------
    left_usd : float, USD
        Budget left, b.
    requests : int
        Requests still to come, tau, this one included.
    each : tuple of Funds
        The funds of all budgets that must bear the call, where there are several; these are the tightest of them.
    cushion_usd : float, default 0
        The amount that must remain for the last request beyond a mean call: under a hard limit, the worst case of the
        cheapest model plus the amount that calls in flight reserve beyond their mean.
    share : float, default 1
        Those requests as a share of the whole horizon.
    """

    left_usd: float
    requests: int
    each: tuple[Funds, ...] = ()
    cushion_usd: float = 0.0
    share: float = 1.0

    @property
    def rate_usd(self) -> float:
        """Budget left per request left, b / tau; 0 when either is used up."""
        left, requests, _, _, _ = self
        return left / requests if requests > 0 and left > 0.0 else 0.0


class RefusingAccount(Protocol):
    """An account that can say why it refuses a call, and in which window."""

    @property
    def epoch_s(self) -> float:
        """The start of its window; 0 where it does not renew."""
        ...

    def refusal(self, needed_usd: float) -> BudgetError | None:
        """Return the error for a used-up horizon or amount; None where the cheapest model continues."""
        ...

    def reachable_usd(self) -> float:
        """Return the largest worst case that would fit if the calls in flight cost nothing."""
        ...

    def exhausted(self, needed_usd: float) -> BudgetExhausted | StoreUnavailable:
        """Return the error that says how much is spent, reserved, left and needed, or that the store is away."""
        ...


class BudgetSnapshot(NamedTuple):
    """The budget of a scope at one moment, read once per decision.

    Attributes
    ----------
    funds : Funds
        Budget and requests left.
    rate_usd : float, USD
        Their ratio, b / tau.
    hard : bool
        True if a limit must never be exceeded.
    room_usd : float, USD
        The largest worst case that a hard limit, or a lease, still admits; infinite under neither.
    margin_usd : float, USD
        The amount that hard limits reserve for the calls in flight beyond their expected cost; 0 under none.
    bearable_usd : float, USD
        The largest expected cost that the expected limits still bear; infinite under hard limits only.
    account : RefusingAccount
        Names the error where the budget does not bear a call, and the start of the window.
    committed_usd : float, USD
        The amount that the open runs of the scope are expected to spend; not a part of `funds`, nor of what expected
        limits bear in `bearable_usd`.
    """

    funds: Funds
    rate_usd: float
    hard: bool
    room_usd: float
    margin_usd: float
    bearable_usd: float
    account: RefusingAccount
    committed_usd: float = 0.0
