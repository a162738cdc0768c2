"""The change of a running account by an administrator, checked by the engine at the moment when it is made."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """Replace the terms of an account and the amount and the limit of a running window, all or nothing.

    Results: "ok"; "unknown" where there is no such account; "other" where its terms are no longer `former`, or the
    window is none of its latest. "short" where the limit is hard and the change lowers the amount, or makes the limit
    hard, and amount + carried is less than spent + reserved + leased; "busy" where it would become hard while calls
    are in flight. An event with the token of one that was "ok" changes nothing, and its result is the answer of that
    one, which is a JSON object.

    Attributes
    ----------
    scope : str
        The scope of the account.
    former, terms : str
        The terms that it is computed from, and the new ones.
    window : str
        The window of the budget that it is about.
    amount_usd : float, USD
        The amount of that window.
    hard : bool
        Whether its limit is hard.
    token : str
        The name of the request for the change, remembered as long as a decision; "" remembers nothing.
    answer : str
        The answer to it.
    """

    scope: str
    former: str
    terms: str
    window: str
    amount_usd: float
    hard: bool
    token: str = ""
    answer: str = ""
