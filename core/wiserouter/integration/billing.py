"""The bill of a call: its cost and its tokens, as the provider reports them or as they are estimated from the text."""

from __future__ import annotations

from typing import NamedTuple

from wiserouter.pricing.prices import Usage
from wiserouter.pricing.tokens import count_tokens
from wiserouter.router import WiseRouter
from wiserouter.types import Decision


class Bill(NamedTuple):
    """The cost of a call.

    Attributes
    ----------
    cost_usd : float, USD
        The total.
    usage : Usage or None
        The tokens, where they are known.
    model : str or None
        The model that answered; None stands for the one decided on.
    learn : bool
        Whether the estimates learn from it: not where a cache answered or the answer broke off.
    estimated : bool
        Whether the tokens were counted here, as for a stream without a usage block.
    """

    cost_usd: float
    usage: Usage | None = None
    model: str | None = None
    learn: bool = True
    estimated: bool = False


def estimated_usage(input_tokens: int, answer: str) -> Usage:
    """Return the tokens of a call, those of its answer counted here, for a provider that reports none."""
    return Usage(input_tokens, count_tokens(answer).tokens)


def settle(router: WiseRouter, decision: Decision | str, bill: Bill | None) -> None:
    """Charge a call, or release its reservation where there is no bill; raises as `charge` and `release` do."""
    if bill is None:
        router.release(decision)
    else:
        router.charge(decision, bill.cost_usd, usage=bill.usage, model=bill.model, learn=bill.learn)
