"""A request that is ready for a decision, and what the decision makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from wiserouter import Decision
from wiserouter.integration import CallRequest
from wiserouter_litellm.conversations.continuations import Reference
from wiserouter_litellm.conversations.request_conversation import ConversationNote, RequestConversation
from wiserouter_litellm.deployments.registry import Candidates, Deployment, id_of
from wiserouter_litellm.groups.attempts import Mark

if TYPE_CHECKING:
    from wiserouter_litellm.groups.signals import RequestSigns


class RoutingRequest(NamedTuple):
    """A request that is ready for a decision.

    Attributes
    ----------
    candidates : Candidates
        The deployments that can serve it.
    request : CallRequest
        The call.
    scope : str
        The scope whose budget pays.
    call_id, caller : str, str or None
        The id of its call, and the hash of the key that makes it.
    chose_id : bool
        Whether the client chose that id.
    owner : str
        The recorder whose log events settle it.
    references : sequence of Reference
        What it continues: only the deployment that made it can serve the request.
    lasting_ids : sequence of str
        The conversation and the containers that it names, which live where it is answered.
    conversation : RequestConversation or None
        The conversation or run that it belongs to; None where each call is decided alone.
    signs : RequestSigns or None
        What the rules of failures read of it, where there are any.
    parent_span : object
        The span of OpenTelemetry that its decision is part of, where decisions are traced.
    value : float or None
        Its value; None for 1.
    share_key : str or None
        The key by which it is on a side of shadow mode; None outside shadow mode.
    """

    candidates: Candidates
    request: CallRequest
    scope: str
    call_id: str
    caller: str | None
    chose_id: bool
    owner: str
    references: Sequence[Reference] = ()
    lasting_ids: Sequence[str] = ()
    conversation: RequestConversation | None = None
    signs: RequestSigns | None = None
    parent_span: object = None
    value: float | None = None
    share_key: str | None = None

    def among(self, deployments: Sequence[Deployment]) -> RoutingRequest:
        """Return the same request with only these deployments as candidates."""
        ids = {id_of(deployment) for deployment in deployments}
        return self._replace(candidates=[one for one in self.candidates if one.id in ids])


class Selection(NamedTuple):
    """A decision for LiteLLM.

    Attributes
    ----------
    decision : Decision
        The decision.
    deployments : list of dict
        The ranked deployments; each carries the mark.
    models : dict of str to str
        The model of each deployment by its id.
    mark : Mark
        The decision, as the log events of its call report it.
    worst_usd : dict of str to float, USD, or None
        The most that the call can cost with each model, where a limit is hard.
    conversation : ConversationNote or None
        The conversation or run that the call belongs to.
    """

    decision: Decision
    deployments: list[dict[str, Any]]
    models: dict[str, str]
    mark: Mark
    worst_usd: dict[str, float] | None
    conversation: ConversationNote | None = None
