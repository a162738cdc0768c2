"""The parts of a router: all that is fitted or learned, without the store and the budgets that live in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.planning.policies import Policy
from wiserouter.pricing.pool import Model
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder


class RouterParts(NamedTuple):
    """The parts that make a router, under the names of the parameters of `WiseRouter`.

    Attributes
    ----------
    models : sequence of Model
        The pool.
    contexts : Contexts
        Where queries are assigned.
    encoder : Encoder or None
        Turns text into an embedding.
    policy : Policy
        Chooses a model in a context.
    estimates : Estimates
        Sums of cost and reward per (context, model).
    residuals : QueryResiduals or None
        How single queries deviate from their context.
    """

    models: Sequence[Model]
    contexts: Contexts
    encoder: Encoder | None
    policy: Policy
    estimates: Estimates
    residuals: QueryResiduals | None = None


def check_shape(estimates: Estimates, n_contexts: int, n_models: int) -> Estimates:
    """Return the estimates if they have one row per context and one column per model, else raise `InvalidInput`."""
    if estimates.shape != (n_contexts, n_models):
        raise InvalidInput(
            f"estimates must have one row per context ({n_contexts}) and one column per model ({n_models}), "
            f"got {estimates.shape}"
        )
    return estimates
