"""The default of a router: whether its contexts are fitted while it serves, and the encoder that this needs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.learning.reclustering import Growing
from wiserouter.planning.policies import Optimistic, Policy
from wiserouter.prompts.contexts import Contexts
from wiserouter.prompts.encoders import Encoder, open_encoder
from wiserouter.validation import check_kind

GrowingOrAuto = Growing | Literal["auto"] | None
"""The values of the parameter `growing` of `WiseRouter`."""


class Growth(NamedTuple):
    """The fits of contexts while serving, None where they stay as they are, and the encoder."""

    growing: Growing | None
    encoder: Encoder | None


def growth(
    growing: GrowingOrAuto, encoder: Encoder | None, contexts: Contexts | None, policy: Policy, *, fixed: bool
) -> Growth:
    """Return the fits and the encoder of a router.

    Parameters
    ----------
    growing : Growing, "auto" or None
        "auto" fits the contexts of a router that has none, or had them fitted by this encoder while serving, and that
        learns optimistically.
    encoder : Encoder or None
        The encoder given; where contexts grow from one, the default is "hashing", which needs no log.
    contexts : Contexts or None
        The contexts given.
    policy : Policy
        The policy.
    fixed : bool
        Whether the router has residuals, which belong to fixed contexts.

    Raises
    ------
    InvalidInput
        If a part is none, the encoder needs a log, or contexts that have residuals are to grow.
    """
    _check_parts(growing, contexts, policy)
    if fixed and isinstance(growing, Growing):
        raise InvalidInput("residuals belong to fixed contexts: give residuals or growing, not both")
    if growing == "auto":
        resumes = encoder is not None and encoder.spec == "hashing"
        starts = (contexts is None or resumes) and isinstance(policy, Optimistic)
        growing = Growing() if starts and not fixed else None
    if growing is None:
        return Growth(None, encoder)
    if encoder is None:  # contexts that were fitted on embeddings of the caller need none
        starts = contexts is None or contexts.n_contexts == 1
        return Growth(growing, open_encoder("hashing") if starts else None)
    if not getattr(encoder, "is_fitted", True):
        raise InvalidInput(
            f"contexts that are fitted while serving need an encoder that needs no log, got encoder={encoder.spec!r}, "
            f"which is not fitted: use 'hashing' (the default), 'minilm' or a callable, or growing=None",
            value=encoder.spec,
        )
    return Growth(growing, encoder)


def _check_parts(growing: GrowingOrAuto, contexts: Contexts | None, policy: Policy) -> None:
    if isinstance(policy, type) or not hasattr(policy, "bind"):
        raise InvalidInput(f"policy must be a Policy, such as Optimistic(), got {policy!r}", value=policy)
    if contexts is not None:
        check_kind("contexts", contexts, Contexts, "Contexts.single()")
    if growing is not None and growing != "auto":
        check_kind("growing", growing, Growing, "Growing(8)")
