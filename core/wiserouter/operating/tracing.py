"""Decisions as spans `wiserouter.decide` of OpenTelemetry, where its API is installed; nothing of a prompt is in them.

A span is made when its decision is there, with the time at which it began, so that a router that is not traced has no
code for it. It is a child of the span that is current where the decision is made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from wiserouter.errors import MissingExtra, WiseRouterError
from wiserouter.operating.metrics import reason_of
from wiserouter.types import NO_CONTEXT, Decision

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from wiserouter.router import WiseRouter

SPAN = "wiserouter.decide"
"""The name of the spans."""

MOST_CHARS = 128
"""Most characters of a scope in a span."""

T = TypeVar("T")

_made: ContextVar[list[str] | None] = ContextVar("wiserouter_spans", default=None)
"""The spans made within a call of `adecide`, also in its threads."""


def trace_decisions(router: WiseRouter, group: str = "default", *, tracer: Tracer | None = None) -> None:
    """Make a span of each decision of a router from now on, refused ones included.

    Parameters
    ----------
    router : WiseRouter
        The router; tracing it again changes nothing.
    group : str, default "default"
        Its name in the spans.
    tracer : opentelemetry Tracer, optional
        By default that of the program's tracer provider, which exports nothing unless one is set.

    Raises
    ------
    MissingExtra
        If opentelemetry-api is not installed.
    """
    try:
        from opentelemetry.trace import get_tracer
    except ImportError:
        raise MissingExtra("tracing", "opentelemetry-api", "otel") from None
    if "decide" in vars(router):
        return
    spans = DecisionSpans(get_tracer("wiserouter") if tracer is None else tracer, group)
    vars(router).update(decide=spans.around(router.decide), adecide=spans.around_async(router.adecide))


class DecisionSpans:
    """Makes the spans of one router.

    Parameters
    ----------
    tracer : Tracer
        Starts them.
    group : str
        The name of the router in them.
    """

    def __init__(self, tracer: Tracer, group: str) -> None:
        self._tracer, self._group = tracer, group

    def around(self, decide: Callable[..., Decision]) -> Callable[..., Decision]:
        """Return a `decide` that makes a span."""

        @wraps(decide)
        def traced(*args: Any, **kwargs: Any) -> Decision:
            began_ns = time.time_ns()
            try:
                decision = decide(*args, **kwargs)
            except Exception as error:
                self._refused(error, began_ns)
                raise
            self._decided(decision, began_ns)
            return decision

        return traced

    def around_async(self, adecide: Callable[..., Any]) -> Callable[..., Any]:
        """Return an `adecide` that makes a span, unless the `decide` that it calls has made one."""

        @wraps(adecide)
        async def traced(*args: Any, **kwargs: Any) -> Decision:
            began_ns, within = time.time_ns(), list[str]()
            token = _made.set(within)
            try:
                decision: Decision = await adecide(*args, **kwargs)
            except Exception as error:
                if not within:
                    self._refused(error, began_ns)
                raise
            finally:
                _made.reset(token)
            if not within:
                self._decided(decision, began_ns)
            return decision

        return traced

    def _decided(self, decision: Decision, began_ns: int) -> None:
        self._span(began_ns, self._attributes(decision)).end()

    def _refused(self, error: Exception, began_ns: int) -> None:
        """Make the span of a decision that failed: with the kind of its error, whose text may quote a caller."""
        from opentelemetry.trace import Status, StatusCode

        attributes = {"wiserouter.group": self._group, "error.type": type(error).__name__}
        if isinstance(error, WiseRouterError):
            attributes["wiserouter.refusal"] = reason_of(error)
        span = self._span(began_ns, attributes)
        span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _span(self, began_ns: int, attributes: Mapping[str, str | int | float]) -> Span:
        within = _made.get()
        if within is not None:
            within.append(SPAN)
        return self._tracer.start_span(SPAN, start_time=began_ns, attributes=attributes)

    def _attributes(self, decision: Decision) -> dict[str, str | int | float]:
        found: dict[str, str | int | float] = {
            "gen_ai.request.model": decision.model,
            "wiserouter.group": self._group,
            "wiserouter.decision.id": decision.id,
            "wiserouter.scope": decision.scope[:MOST_CHARS],
            "wiserouter.probability": decision.probability,
            "wiserouter.expected_cost_usd": decision.expected_cost_usd,
            "wiserouter.expected_reward": decision.expected_reward,
            "wiserouter.reserved_usd": decision.reserved_usd,
            "wiserouter.rate_usd": decision.rate_usd,
            "wiserouter.shadow_price": decision.shadow_price,
        }
        if decision.context != NO_CONTEXT:
            found["wiserouter.context"] = decision.context
        if decision.conversation:  # a salted hash
            found |= {"wiserouter.conversation": decision.conversation, "wiserouter.visit": decision.visit}
        if decision.would_be:
            found["wiserouter.would_be"] = decision.would_be
        return {name: one for name, one in found.items() if not isinstance(one, float) or math.isfinite(one)}


def below(span: object, step: Callable[..., T]) -> Callable[..., T]:
    """Return a step that runs with a span of OpenTelemetry as the current one: for frameworks that hand spans on."""

    @wraps(step)
    def placed(*args: Any, **kwargs: Any) -> T:
        from opentelemetry.trace import Span, use_span

        if not isinstance(span, Span):
            return step(*args, **kwargs)
        with use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            return step(*args, **kwargs)

    return placed
