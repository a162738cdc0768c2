"""What all calls of a router share: its settings, its pool, and what it keeps between calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from pydantic import Field, PrivateAttr

from wiserouter import WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.integration import MAX_WAIT_S, ContextLookup, DrawBy, Unit
from wiserouter_langchain.billing.settlement import Remark
from wiserouter_langchain.calls.counted_admission import CountedAdmission
from wiserouter_langchain.calls.rests import Rests
from wiserouter_langchain.decisions.conversation_call import NO_RUN, NamedRun
from wiserouter_langchain.decisions.decision_index import DecisionIndex
from wiserouter_langchain.pool.pool_member import PoolMember

FORCED = "wise_model"
"""Name of the configurable that forces a model."""

SCOPE = "wiserouter_scope"
"""Name of the configurable, or key of the metadata, that names the scope whose budget pays."""

VALUE = "wiserouter_value"
"""Name of the configurable, or key of the metadata, that states the value of a call."""


@dataclass(frozen=True, slots=True)
class CallEnvironment:
    """The objects that all calls of a router share, and its settings.

    Attributes
    ----------
    core : WiseRouter
        Decides, and keeps the budget.
    members : dict of str to PoolMember
        The pool; models may be added.
    lookup : ContextLookup
        Finds the context of a question.
    index : DecisionIndex
        Finds decisions by run.
    preferred : str or None
        The model that takes each call that it can take and the budget pays for.
    payer : str or None
        The scope that pays, whatever the configuration says.
    value : float or None
        The value of each call, whatever its configuration says.
    queue : CountedAdmission
        The calls that wait while the rest of the budget is only held by calls in flight.
    durable : bool
        Whether other workers can find decisions in the store.
    remarked : set of (str, Remark)
        What the log has said about the answers of models; each remark is logged once.
    rests : Rests
        The models that failed a short time ago.
    unit : {"call", "conversation", "run"}
        The unit of decision.
    named_run : NamedRun
        The run that the program has set.
    """

    core: WiseRouter
    members: dict[str, PoolMember]
    lookup: ContextLookup
    index: DecisionIndex
    queue: CountedAdmission
    preferred: str | None = None
    payer: str | None = None
    value: float | None = None
    durable: bool = False
    remarked: set[tuple[str, Remark]] = field(default_factory=set)
    rests: Rests = field(default_factory=lambda: Rests(0.0))
    unit: Unit = "call"
    named_run: NamedRun = NO_RUN


class RoutingChatModel(BaseChatModel):
    """A chat model that delegates its calls; the part of it that a scope needs."""

    cap_output_tokens: int | None = None
    max_wait_s: float = Field(default=MAX_WAIT_S, ge=0.0)
    max_attempts: int = 3
    draw_by: DrawBy = "request"
    mode: Literal["route", "shadow"] = "route"
    share: float = 0.0
    incumbent: str = ""
    signals: list[str] = Field(default_factory=list, exclude=True)
    otel_decisions: bool = Field(default=False, exclude=True)

    _environment: CallEnvironment = PrivateAttr()


def forced_model(config: RunnableConfig) -> str | None:
    """Return the model that a configuration forces; None where it forces none.

    Raises
    ------
    InvalidInput
        If it is no name.
    """
    name = (config.get("configurable") or {}).get(FORCED)
    if name is not None and not isinstance(name, str):
        raise InvalidInput(
            f"{FORCED} must be the name of a model, got {type(name).__name__}: pass one name", value=name
        )
    return name


def stated_value(config: RunnableConfig) -> float | None:
    """Return the value that a configuration states; None where it states none."""
    value = (config.get("configurable") or {}).get(VALUE)
    stated: float | None = (config.get("metadata") or {}).get(VALUE) if value is None else value
    return stated


def stated_scope(config: RunnableConfig) -> str | None:
    """Return the scope that a configuration names; None where it names none."""
    named = (config.get("configurable") or {}).get(SCOPE) or (config.get("metadata") or {}).get(SCOPE)
    return str(named) if named else None


def payer_of(environment: CallEnvironment, config: RunnableConfig) -> str:
    """Return the scope that pays: the bound one, whatever the configuration says."""
    return environment.payer or stated_scope(config) or "default"
