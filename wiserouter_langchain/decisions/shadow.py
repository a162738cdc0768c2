"""Shadow mode in LangChain: the incumbent is called as without us, and the router records its own choice beside it.

No call is refused, waits for a budget, is limited or fails over; what goes wrong here is logged, and the incumbent is
called all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from wiserouter import NO_CONTEXT, Decision, Shadow, WiseRouter
from wiserouter.errors import BudgetError, InvalidInput, UnknownModel
from wiserouter.integration import CallRequest, ContextAssignment, shadow_of
from wiserouter_langchain.decisions.candidates import CallTerms, at_present_prices, begin_call, candidates
from wiserouter_langchain.decisions.routed_call import RoutedCall
from wiserouter_langchain.pool.pool_member import PoolMember

logger = logging.getLogger("wiserouter.langchain")


def shadow_setting(mode: str, share: float, incumbent: str, members: Mapping[str, PoolMember]) -> Shadow | None:
    """Return the setting of shadow mode; None where the router routes.

    Raises
    ------
    InvalidInput
        If the mode is unknown, or a share or an incumbent is given to a router that routes.
    UnknownModel
        If the incumbent is not in the pool.
    """
    if incumbent and mode != "shadow":
        raise InvalidInput(f"incumbent needs mode='shadow', got incumbent={incumbent!r} and mode={mode!r}")
    if incumbent and incumbent not in members:
        raise UnknownModel(incumbent, members)
    return shadow_of(mode, share)


def begin_in_shadow(
    router: WiseRouter,
    members: Mapping[str, PoolMember],
    request: CallRequest,
    assignment: ContextAssignment,
    terms: CallTerms,
    incumbent: str,
    key: Callable[[], str],
) -> RoutedCall:
    """Decide on a call in shadow mode: act on a share of the conversations, and only record the choice for the others.

    Parameters
    ----------
    router, members, request, assignment, terms
        As in `begin_call`.
    incumbent : str
        The model that takes the call without the router, unless the call forces or prefers one.
    key : callable
        Returns the key of the conversation.
    """
    shadow, members = router.shadow, at_present_prices(router, members)
    if terms.forced in members or terms.preferred in members:
        incumbent = terms.forced or terms.preferred or incumbent
    refused, share_key = False, key()
    if shadow is not None and shadow.acts(share_key):
        try:
            call = begin_call(router, members, request, assignment, terms)
        except BudgetError:  # the part of the budget for the calls that it acts on is used up
            refused = True
        else:
            router.note_side(call.decision, incumbent, share_key=share_key)
            return call
    try:
        decision = _observed(router, members, request, assignment, terms, incumbent, share_key, refused=refused)
    except Exception as error:  # the call goes where it went
        logger.warning("a call of %s is not observed: %s", incumbent, error)
        decision = Decision(
            "", incumbent, NO_CONTEXT, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, terms.scope, 0.0, would_be=incumbent
        )
    return RoutedCall(router, decision, members[incumbent], request)


def _observed(
    router: WiseRouter,
    members: Mapping[str, PoolMember],
    request: CallRequest,
    assignment: ContextAssignment,
    terms: CallTerms,
    incumbent: str,
    share_key: str | None,
    *,
    refused: bool,
) -> Decision:
    names = candidates(members, request, request.input_bound_tokens, replace(terms, failed=()))
    return router.observe(
        incumbent=incumbent,
        context=assignment.context,
        embedding=assignment.embedding,
        eligible=names,
        scope=terms.scope,
        draw_key=terms.draw_key,
        acts=False,
        share_key=share_key,
        refused=refused,
    )
