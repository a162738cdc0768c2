"""The parts of a router: all that is fitted or learned, without the store and the budgets that live in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import Estimates
from wiserouter.learning.residuals import QueryResiduals
from wiserouter.planning.policies import Policy
from wiserouter.pricing.pool import Model
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder
from wiserouter.types import FloatArray
from wiserouter.validation import check_kind


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
    call_sums : mapping of str to ndarray, or None
        Sums of the tokens, cache hits and lengths of conversations, where the router has kept any.
    agreements : mapping of str to mapping, or None
        Sums over the calls that a judge and a person have scored, by source and model.
    """

    models: Sequence[Model]
    contexts: Contexts
    encoder: Encoder | None
    policy: Policy
    estimates: Estimates
    residuals: QueryResiduals | None = None
    call_sums: Mapping[str, FloatArray] | None = None
    agreements: Mapping[str, Mapping[str, Sequence[float]]] | None = None

    def settings(self) -> dict[str, Any]:
        """Return the parameters of `WiseRouter`."""
        parameters = self._asdict()
        del parameters["call_sums"], parameters["agreements"]
        return parameters


def check_shape(estimates: Estimates, n_contexts: int, n_models: int) -> Estimates:
    """Return the estimates if they have one row per context and one column per model, else raise `InvalidInput`."""
    check_kind("estimates", estimates, Estimates, "Estimates(n_contexts=1, n_models=2)")
    if estimates.shape != (n_contexts, n_models):
        raise InvalidInput(
            f"estimates must have one row per context ({n_contexts}) and one column per model ({n_models}), "
            f"got {estimates.shape}"
        )
    return estimates
