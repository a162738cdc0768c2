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


def clamped_usage(prompt: int, completion: int, cached: int = 0, written: int = 0, reasoning: int = 0) -> Usage:
    """Return the tokens of a call, each part cut to its whole: providers report parts that exceed it.

    Parameters
    ----------
    prompt, completion : int
        All tokens of the prompt and of the answer.
    cached, written : int
        Prompt tokens read from and written to the provider's cache.
    reasoning : int
        Hidden reasoning tokens of the answer.

    Examples
    --------
    >>> clamped_usage(10, 5, cached=8, written=8).cache_write_tokens
    2
    """
    read = min(cached, prompt)
    return Usage(
        prompt,
        completion,
        cache_read_tokens=read,
        cache_write_tokens=min(written, prompt - read),
        reasoning_tokens=min(reasoning, completion),
    )


def estimated_usage(text: str, overhead_tokens: int, answer: str) -> Usage:
    """Return the tokens of a call counted from its text, for a provider that reports none."""
    return Usage(count_tokens(text).tokens + overhead_tokens, count_tokens(answer).tokens)


def settle(router: WiseRouter, decision: Decision | str, bill: Bill | None) -> None:
    """Charge a call, or release its reservation where there is no bill; raises as `charge` and `release` do."""
    if bill is None:
        router.release(decision)
    else:
        router.charge(decision, bill.cost_usd, usage=bill.usage, model=bill.model, learn=bill.learn)
