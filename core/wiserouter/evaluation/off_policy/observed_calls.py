"""The calls of a journal that were only observed in shadow mode: what ran, what it cost, and the router's choice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class ObservedCall(NamedTuple):
    """A call that was only observed, in shadow mode.

    Attributes
    ----------
    id, call_id : str
        The decision, and the caller's own id of the call; empty where there is none.
    ran, would_be : str
        The model that ran, and the router's choice.
    cost_usd : float, USD
        Cost of what ran.
    expected_usd : float or None, USD
        The router's estimate of the cost of its choice.
    """

    id: str
    call_id: str
    ran: str
    would_be: str
    cost_usd: float
    expected_usd: float | None

    @property
    def differs(self) -> bool:
        """True where the choice is another model than the one that ran."""
        return self.ran != self.would_be


def observed_calls(events: Iterable[dict[str, Any]]) -> list[ObservedCall]:
    """Return the calls of a journal that were only observed, and have ended at a known cost."""
    expected: dict[str, dict[str, float | None]] = {}
    sides: dict[str, tuple[str, str]] = {}
    charges: dict[str, tuple[str, float]] = {}
    names: dict[str, str] = {}  # each name once, however many lines have it
    for event in events:
        kind = event.get("event")
        if kind == "decision":
            costs = {model["name"]: model["expected_cost_usd"] for model in event["models"]}
            expected[event["id"]] = {names.setdefault(name, name): usd for name, usd in costs.items()}
        elif kind == "shadow" and not event["acts"] and event["would_be"]:
            sides[event["id"]] = names.setdefault(event["would_be"], event["would_be"]), event.get("call_id") or ""
        elif kind == "charge" and event["model"]:
            charges[event["id"]] = names.setdefault(event["model"], event["model"]), event["cost_usd"]
    return [
        ObservedCall(id_, call_id, charges[id_][0], would_be, charges[id_][1], expected[id_].get(would_be))
        for id_, (would_be, call_id) in sides.items()
        if id_ in charges and id_ in expected
    ]
