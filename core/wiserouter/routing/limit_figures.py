"""The limits of a scope in its status: how much is used, what the plan will use, and the price of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wiserouter.routing.scope_limits import ScopeLimits, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFigures:
    """One limit of a scope.

    Attributes
    ----------
    name : str
        The measure, such as "latency_s" or "latency_s > 3", or the floor or share.
    bound : float or None
        The mean, share or floor that was given; None where only a total was.
    total : float or None
        The total that was given.
    calls : int
        Number of calls whose use is known.
    used, mean : float or None
        Their sum and mean; None before the first, and for floors and shares.
    rate : float or None
        The mean that the plan allows the next requests: more or less than the bound, as less or more was used so far.
    planned : float or None
        The mean that the plan expects of them.
    price : float or None
        Reward per unit of the limit at the margin; 0 where it does not bind.
    nearest : float or None
        The bound that is kept in its place, where no mix of models keeps all limits.
    """

    name: str
    bound: float | None
    total: float | None = None
    calls: int = 0
    used: float | None = None
    mean: float | None = None
    rate: float | None = None
    planned: float | None = None
    price: float | None = None
    nearest: float | None = None


def limit_figures(limits: ScopeLimits) -> tuple[LimitFigures, ...]:
    """Return the figures of the limits of a scope; None for those of the plan before it is first solved."""
    terms, planned = limits.terms, {one.name: one for one in _planned(limits)}
    found = []
    for measure, meter in limits.meters.items():
        known = planned.pop(measure.label, LimitFigures(name=measure.label, bound=None))
        found.append(
            replace(
                known,
                bound=terms.most(measure),
                total=terms.total(measure),
                calls=meter.calls,
                used=meter.used if meter.calls else None,
                mean=meter.used / meter.calls if meter.calls else None,
            )
        )
    return (*found, *planned.values())


def _planned(limits: ScopeLimits) -> list[LimitFigures]:
    """Return the limits as the plan has them."""
    if limits.mixture is None:
        return []
    plan, nearest = limits.mixture.plan, limits.nearest()
    return [
        LimitFigures(
            name=one.name,
            bound=shown(one.name, one.most),
            rate=shown(one.name, one.most),
            planned=shown(one.name, use),
            price=price,
            nearest=nearest.get(one.name),
        )
        for one, use, price in zip(limits.constraints[1:], plan.uses[1:], plan.prices[1:], strict=True)
    ]


def infeasible_line(nearest: dict[str, float]) -> str:
    """Return the line of a status that says which limits no mix of models keeps."""
    kept = ", ".join(f"{name} {bound:.4g}" for name, bound in nearest.items())
    return f"no mix of models keeps all limits; the nearest that is kept: {kept}"
