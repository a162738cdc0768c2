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
    decisions: dict[str, dict[str, Any]] = {}
    sides: dict[str, dict[str, Any]] = {}
    charges: dict[str, dict[str, Any]] = {}
    of_kind = {"decision": decisions, "shadow": sides, "charge": charges}
    for event in events:
        kept = of_kind.get(event.get("event") or "")
        if kept is not None:
            kept[event["id"]] = event
    return [
        ObservedCall(
            id_, side.get("call_id") or "", charges[id_]["model"], side["would_be"], charges[id_]["cost_usd"], expected
        )
        for id_, side in sides.items()
        if not side["acts"] and side["would_be"] and charges.get(id_, {}).get("model") and id_ in decisions
        for expected in [_expected_usd(decisions[id_], side["would_be"])]
    ]


def _expected_usd(decision: dict[str, Any], model: str) -> float | None:
    return next((one["expected_cost_usd"] for one in decision["models"] if one["name"] == model), None)
