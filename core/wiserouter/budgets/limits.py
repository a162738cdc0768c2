"""The limits of a scope beside its budget: means of named resources of its calls, floors of quality, shares of models.

A resource is any number that a call uses up, such as `latency_s`, `energy_wh` or `co2_g`. A bound on a percentile is
one on a mean, too: at most 5 % of the calls take more than 3 s exactly where the mean of the indicator of that is at
most 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from wiserouter.errors import InvalidInput, WiseRouterError
from wiserouter.validation import check_amount, check_delta, check_mapping, check_resource


class InfeasibleLimits(WiseRouterError):
    """No mix of models keeps all limits; `asked` and `nearest` map those that stand in the way to their bounds."""

    def __init__(self, asked: Mapping[str, float], nearest: Mapping[str, float]) -> None:
        self.asked = dict(asked)
        self.nearest = dict(nearest)
        wanted, kept = (", ".join(f"{name} {bound:.6g}" for name, bound in one.items()) for one in (asked, nearest))
        super().__init__(
            f"limits must leave a mix of models that keeps them all, got {wanted}: the nearest that some mix keeps are "
            f"{kept}; give these, raise the budget or add a model"
        )


class Measure(NamedTuple):
    """A number that a call adds to a mean: its use of a resource, or whether that is above a threshold."""

    resource: str
    above: float | None = None

    @property
    def label(self) -> str:
        """Its name in figures.

        Examples
        --------
        >>> Measure("latency_s").label, Measure("latency_s", 3.0).label
        ('latency_s', 'latency_s > 3')
        """
        return self.resource if self.above is None else f"{self.resource} > {self.above:g}"

    def of(self, use: float) -> float:
        """Return the number for a call of this use."""
        return use if self.above is None else float(use > self.above)

    def expected(self, mean: float) -> float:
        """Return the number expected of calls of a mean use, as if exponentially distributed.

        Examples
        --------
        >>> Measure("latency_s").expected(1.2), round(Measure("latency_s", 3.0).expected(1.0), 3)
        (1.2, 0.05)
        """
        if self.above is None:
            return mean
        return math.exp(-self.above / mean) if mean > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of one resource; at least one of the three.

    Parameters
    ----------
    mean : float, optional
        The largest mean per request, above 0.
    share_above : tuple of float, optional
        A threshold and the largest share of the requests above it: `(3.0, 0.05)` bounds the 95th percentile by 3.
    total : float, optional
        The largest sum over the horizon of the budget, above 0.

    Raises
    ------
    InvalidInput
        If none is given, or a number is out of range.

    Examples
    --------
    >>> Limit(mean=2.0, share_above=(3.0, 0.05)).share_above
    (3.0, 0.05)
    """

    mean: float | None = None
    share_above: tuple[float, float] | None = None
    total: float | None = None

    def __post_init__(self) -> None:
        if self.mean is None and self.share_above is None and self.total is None:
            raise InvalidInput("Limit needs mean, share_above or total, got none of them")
        for name in ("mean", "total"):
            value = getattr(self, name)
            if value is not None and check_amount(f"Limit.{name}", value) == 0.0:
                raise InvalidInput(f"Limit.{name} must be above 0, got {value!r}", value=value)
        if self.share_above is not None:
            object.__setattr__(self, "share_above", _checked_share(self.share_above))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a scope.

    Parameters
    ----------
    resources : mapping of str to Limit, optional
        The limit of each named resource.
    min_quality : float or mapping of int to float, optional
        The least expected mean reward, in [0, 1]: over all requests, or by context.
    max_share, min_share : mapping of str to float, optional
        The largest and the least planned share of the requests of a model, in [0, 1]; a model with a largest share of
        0 gets none.

    Raises
    ------
    InvalidInput
        If there is no limit, a number is out of range, or the shares contradict one another.

    Examples
    --------
    >>> Limits({"latency_s": Limit(mean=2.0)}, max_share={"large": 0.3}).measures
    (Measure(resource='latency_s', above=None),)
    """

    resources: Mapping[str, Limit] = field(default_factory=dict)
    min_quality: float | Mapping[int, float] | None = None
    max_share: Mapping[str, float] = field(default_factory=dict)
    min_share: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("resources", "max_share", "min_share"):
            check_mapping(f"Limits.{name}", getattr(self, name))
            object.__setattr__(self, name, dict(getattr(self, name)))
        if not (self.resources or self.max_share or self.min_share or self.min_quality is not None):
            raise InvalidInput("Limits must hold at least one limit, got none")
        for resource, limit in self.resources.items():
            check_resource(resource)
            if not isinstance(limit, Limit):
                raise InvalidInput(f"limits must be Limit values, such as Limit(mean=2.0), got {limit!r}", value=limit)
        for quality in self.quality_floors.values():
            _check_share("Limits.min_quality", quality)
        self._check_shares()

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The means that are bounded, in a fixed order."""
        plain = [Measure(name) for name, one in self.resources.items() if one.mean is not None or one.total is not None]
        shares = [Measure(name, one.share_above[0]) for name, one in self.resources.items() if one.share_above]
        return (*plain, *shares)

    @property
    def quality_floors(self) -> dict[int | None, float]:
        """The least mean rewards by context; None stands for all of them."""
        if isinstance(self.min_quality, Mapping):
            return dict(self.min_quality.items())
        return {} if self.min_quality is None else {None: self.min_quality}

    def most(self, measure: Measure) -> float | None:
        """Return the bound on the mean of a measure; None where only a total is bounded."""
        limit = self.resources[measure.resource]
        if measure.above is None:
            return limit.mean
        return None if limit.share_above is None else limit.share_above[1]

    def total(self, measure: Measure) -> float | None:
        """Return the bound on the sum of a measure; None where there is none."""
        return self.resources[measure.resource].total if measure.above is None else None

    def _check_shares(self) -> None:
        for name in ("max_share", "min_share"):
            for share in getattr(self, name).values():
                _check_share(f"Limits.{name}", share)
        for model, least in self.min_share.items():
            if least > self.max_share.get(model, 1.0):
                raise InvalidInput(
                    f"min_share must be at most max_share, got {least} and {self.max_share[model]} for {model!r}",
                    value=least,
                )
        if sum(self.min_share.values()) > 1.0:
            raise InvalidInput(f"min_share must sum to at most 1, got {sum(self.min_share.values()):g}")


def _check_share(name: str, share: float) -> None:
    if not (isinstance(share, int | float) and 0.0 <= share <= 1.0):
        raise InvalidInput(f"{name} must lie in [0, 1], got {share!r}", value=share)


def _checked_share(share_above: tuple[float, float]) -> tuple[float, float]:
    try:
        above, share = share_above
    except (TypeError, ValueError):
        raise InvalidInput(
            f"Limit.share_above must be a threshold and a share, such as (3.0, 0.05), got {share_above!r}",
            value=share_above,
        ) from None
    return check_amount("the threshold of Limit.share_above", above), check_delta("its share", share)
