"""What a call uses of resources by its tokens, where no one measures it: energy, CO2, or any other number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wiserouter.errors import UnknownModel
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Usage
from wiserouter.validation import check_amount, check_kind, check_mapping, check_resource


@dataclass(frozen=True, slots=True)
class UseRate:
    """What a call of a model uses of a resource.

    Parameters
    ----------
    call : float, default 0
        What each call uses, whatever its tokens.
    input_token, output_token : float, default 0
        What a token of the prompt or of the answer uses; cached and reasoning tokens are among them.

    Raises
    ------
    InvalidInput
        If one is not a finite number of at least 0.

    Examples
    --------
    >>> UseRate(call=0.01, output_token=0.0004).of(Usage(100, 50))
    0.03
    """

    call: float = 0.0
    input_token: float = 0.0
    output_token: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_amount(f"UseRate.{name}", getattr(self, name))

    def of(self, usage: Usage) -> float:
        """Return the use of a call with these tokens."""
        return self.call + self.input_token * usage.input_tokens + self.output_token * usage.output_tokens


Rates = Mapping[str, Mapping[str, UseRate]]
"""Rates by model and resource; the name of a family is that of all its arms."""


def checked_rates(rates: Rates, models: Iterable[Model]) -> dict[str, dict[str, UseRate]]:
    """Return a copy of the rates; raise `UnknownModel` or `InvalidInput` if a name is none."""
    known = {name: None for model in models for name in (model.name, model.family)}
    check_mapping("rates", rates)
    for name, row in rates.items():
        if name not in known:
            raise UnknownModel(name, tuple(known))
        check_mapping(f"rates of {name!r}", row)
        for rate in row.values():
            check_kind("a rate", rate, UseRate, "UseRate(output_token=0.0004)")
    return {name: {check_resource(key): one for key, one in row.items()} for name, row in rates.items()}


def uses_of(rates: Rates, model: Model | None, usage: Usage | None) -> dict[str, float]:
    """Return the uses of a call by the rates of its family and of its model, which come first.

    Nothing is known of a call whose tokens are unknown, as of an answer from a cache, or whose model is.

    Examples
    --------
    >>> rates = {"gpt-5": {"energy_wh": UseRate(output_token=0.002)}}
    >>> uses_of(rates, Model("gpt-5", params={"reasoning_effort": "low"}), Usage(10, 100))
    {'energy_wh': 0.2}
    """
    if model is None or usage is None or not rates:
        return {}
    return {name: rate.of(usage) for name, rate in rates_of_model(rates, model).items()}


def rates_of_model(rates: Rates, model: Model) -> Mapping[str, UseRate]:
    """Return the rates of a model by resource: its own, else those of its family."""
    return {**rates.get(model.family, {}), **rates.get(model.name, {})}
