"""The result of one request of a batch, in the terms of all providers."""

from __future__ import annotations

from typing import Literal, NamedTuple

from wiserouter.pricing.prices import Usage

Outcome = Literal["succeeded", "errored", "expired", "canceled"]


class BatchResult(NamedTuple):
    """The result of one request.

    Attributes
    ----------
    custom_id : str
        The id under which it was sent.
    outcome : {"succeeded", "errored", "expired", "canceled"}
        Only a request that succeeded is billed.
    usage : Usage or None
        The tokens of a request that succeeded, where the line has them.
    error : str
        Why it failed.
    """

    custom_id: str
    outcome: Outcome
    usage: Usage | None = None
    error: str = ""
