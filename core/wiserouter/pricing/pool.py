"""The pool of models: names, prices, and bounds on the cost of a call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wiserouter.errors import InvalidInput, NoEligibleModel, UnknownModel, UnknownPrice
from wiserouter.pricing.arms import Params, arm_name, checked_params, family_numbers, output_limit, split_arm
from wiserouter.pricing.prices import Price, highest_prices
from wiserouter.validation import check_amount, check_count, check_reward, check_uses

SCORE_WEIGHT = 20.0
"""The number of observations that a prior quality counts for, and the most that a published one does."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the pool.

    Parameters
    ----------
    name : str
        The name in decisions. With `params` and without `family` it is that of the model, to which the parameters are
        added: `Model("gpt-5", params={"reasoning_effort": "low"})` has the name "gpt-5@low".
    price : Price, optional
        Needed to turn token counts into USD.
    max_output_tokens : int, optional
        The most tokens that a call may return; bounds the cost of a call under a hard budget.
    max_input_tokens : int, optional
        The context window; a longer query makes the model ineligible.
    max_cost_usd : float, optional
        The most that one call can cost, where it does not follow from prices and token counts.
    score : float, optional
        A prior mean reward in [0, 1], such as a leaderboard's. Scores of several models are compared with one another:
        once rewards come, their level follows that of the rewards.
    score_weight : float, default 20
        Number of observations that the score counts for.
    retired : bool, default False
        Whether it receives no more queries; its observations are kept.
    params : mapping of str to JSON value, optional
        The parameters with which it is called, where it is an arm: one model with one of several settings. Those that
        limit the output bound the cost of a call that sets no limit of its own.
    family : str, optional
        The model that it is an arm of; by default what the name says, which is itself for a model without parameters.
    batch_price : Price, optional
        The prices of the batch service of its provider.
    resources : mapping of str to float, optional
        Prior mean uses of named resources by one call, such as `{"latency_s": 1.2, "energy_wh": 0.3}`, for limits.

    Examples
    --------
    >>> Model("gpt-mini", Price(input=1e-6, output=2e-6)).name
    'gpt-mini'
    >>> arm = Model("gpt-5", params={"reasoning_effort": "low"})
    >>> arm.name, arm.family
    ('gpt-5@low', 'gpt-5')
    """

    name: str
    price: Price | None = None
    max_output_tokens: int | None = None
    max_input_tokens: int | None = None
    max_cost_usd: float | None = None
    score: float | None = None
    score_weight: float = SCORE_WEIGHT
    retired: bool = False
    params: Params = field(default_factory=dict, hash=False)
    family: str = ""
    batch_price: Price | None = None
    resources: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidInput(f"Model.name must be a string that is not empty, got {self.name!r}", value=self.name)
        if not isinstance(self.family, str):
            raise InvalidInput(f"Model.family must be a string, got {self.family!r}", value=self.family)
        self._check_prices()
        self._name_arm()
        object.__setattr__(self, "resources", check_uses(self.resources))
        for name in ("max_output_tokens", "max_input_tokens"):
            if getattr(self, name) is not None:
                check_count(f"Model.{name}", getattr(self, name), least=1)
        if self.max_cost_usd is not None:
            check_amount("Model.max_cost_usd", self.max_cost_usd)
        if self.score is not None:
            check_reward(self.score, "Model.score")
        check_amount("Model.score_weight", self.score_weight)

    def _check_prices(self) -> None:
        for name in ("price", "batch_price"):
            if not isinstance(price := getattr(self, name), Price | None):
                remedy = "give Price(input=, output=) in USD per token, or Price.per_million(...)"
                raise InvalidInput(f"Model.{name} must be a Price, got {price!r}: {remedy}", value=price)

    def _name_arm(self) -> None:
        """Keep a copy of the parameters, add them to a name that does not say them, and find the family."""
        params, said = checked_params(self.params), split_arm(self.name)
        own: dict[str, Any] = {"params": params, "family": self.family or said.model}
        if params and not self.family and said.params != params:
            if said.params:
                raise InvalidInput(
                    f"the name of an arm must say its parameters, got {self.name!r} with {params}: give the name of "
                    f"the model, {said.model!r}, or a name of your own and family={said.model!r}",
                    value=self.name,
                )
            own |= {"name": arm_name(self.name, params), "family": self.name}
        for name, value in own.items():
            object.__setattr__(self, name, value)


def checked_models(models: Iterable[Model]) -> tuple[Model, ...]:
    """Return models as a tuple; raise `InvalidInput` if these are names, a price list or a single model."""
    if not isinstance(models, Iterable):
        raise InvalidInput(f"models must be a list of Model values, got {models!r}: write [model]", value=models)
    each = tuple(models)
    for model in each:
        if not isinstance(model, Model):
            raise InvalidInput(f"models must be Model values, such as Model('gpt-mini'), got {model!r}", value=model)
    return each


class Pool:
    """Models in a fixed order, found by name.

    Attributes
    ----------
    models : tuple of Model
        The pool.
    names : tuple of str
        Their names, in the same order.
    by_name : dict of str to Model
        The models by their names.
    positions : dict of str to int
        Their indices by their names; `index` refuses unknown names.
    unrestricted : bool
        True if every model takes every query: none is retired, and none has a context window.
    families : list of int
        A number for each model, equal for the arms of one family.
    retired : set of int
        The models that receive no more queries.

    Raises
    ------
    InvalidInput
        If there is no model, or none in service, one is not a `Model`, or two have the same name.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise InvalidInput("the pool must hold at least one model, got none")
        self.models = models = checked_models(models)
        self.names = tuple(model.name for model in models)
        self.by_name = dict(zip(self.names, self.models, strict=True))
        self.positions = {name: k for k, name in enumerate(self.names)}
        for name in self.names:
            if self.names.count(name) > 1:
                raise InvalidInput(
                    f"model names must be unique, got {name!r} {self.names.count(name)} times", value=name
                )
        self.families = family_numbers([model.family for model in models])
        self.retired = {k for k, model in enumerate(models) if model.retired}
        if len(self.retired) == len(models):
            raise InvalidInput("the pool must hold a model that is not retired, got none: add one first")
        self._counts_tokens = any(model.max_input_tokens is not None for model in models)
        self.unrestricted = not self.retired and not self._counts_tokens
        bounds = [model.max_cost_usd for model in models if model.max_cost_usd is not None]
        self._max_costs_usd = bounds if len(bounds) == len(models) else None
        self._highest_prices = [None if model.price is None else highest_prices(model.price) for model in models]

    def __len__(self) -> int:
        return len(self.models)

    def index(self, name: str) -> int:
        """Return the position of a model; raise `UnknownModel` if there is none of this name."""
        try:
            return self.positions[name]
        except KeyError:
            raise UnknownModel(name, self.names) from None

    def check_known(self, name: str | None) -> None:
        """Raise `UnknownModel` if a model is named, and there is none of this name."""
        if name is not None:
            self.index(name)

    def _indices(self, names: Iterable[str]) -> set[int]:
        try:
            return set(map(self.positions.__getitem__, names))
        except KeyError as error:
            raise UnknownModel(error.args[0], self.names) from None

    def needs_tokens(self, *, hard: bool) -> bool:
        """Return True if the eligible models, or their bounds, depend on the length of a query."""
        return self._counts_tokens or (hard and any(model.price is not None for model in self.models))

    def eligible(self, names: Iterable[str] | None, input_tokens: int | None) -> set[int] | None:
        """Return the models that may take a query, or None for all.

        Parameters
        ----------
        names : iterable of str, optional
            The caller's own restriction.
        input_tokens : int, optional
            Length of the query, compared with each model's context window.

        Raises
        ------
        UnknownModel, NoEligibleModel
            If a name is not in the pool, or none is left.
        """
        if names is None and (self.unrestricted or (not self.retired and input_tokens is None)):
            return None
        asked = set(range(len(self))) if names is None else self._indices(names)
        left = asked
        if not self.unrestricted:
            left = {k for k in asked - self.retired if not self._too_long(k, input_tokens)}
        if not left:
            raise NoEligibleModel({name: self._why_not(k, asked, input_tokens) for k, name in enumerate(self.names)})
        return None if len(left) == len(self.models) else left

    def worst_cases_usd(
        self, input_tokens: int | None, max_output_tokens: int | None, candidates: Collection[int] | None = None
    ) -> list[float]:
        """Return the most that one call of each model can cost; infinite where nothing bounds it.

        Raises
        ------
        UnknownPrice
            If nothing bounds that of one of the candidates, by default of any model.
        """
        if input_tokens is None and max_output_tokens is None and self._max_costs_usd is not None:
            return self._max_costs_usd
        tokens = None if input_tokens is None else check_count("input_tokens", input_tokens)
        output = None if max_output_tokens is None else check_count("max_output_tokens", max_output_tokens)
        worst_usd = [self._worst_case_usd(k, tokens, output) for k in range(len(self.models))]
        for k in range(len(self.models)) if candidates is None else candidates:
            if worst_usd[k] == float("inf"):
                raise UnknownPrice(
                    self.names[k],
                    "bound on the cost of this call: pass the text or input_tokens, and max_output_tokens or "
                    "Model(max_output_tokens=...), or give Model(max_cost_usd=...)",
                )
        return worst_usd

    def check_bounded(self) -> None:
        """Raise `UnknownPrice` if a hard budget could never bound the cost of some model in service."""
        for model in self.models:
            if model.price is None and model.max_cost_usd is None and not model.retired:
                raise UnknownPrice(
                    model.name, "bound on the cost of a call: give price and max_output_tokens, or max_cost_usd"
                )

    def list_price_usd(self, model: int) -> float:
        """Return a number that orders models of unknown cost: the sum of the token prices, else `max_cost_usd`."""
        price, bound = self.models[model].price, self.models[model].max_cost_usd
        return price.input + price.output if price is not None else bound if bound is not None else float("inf")

    def _worst_case_usd(self, k: int, input_tokens: int | None, max_output_tokens: int | None) -> float:
        model, prices = self.models[k], self._highest_prices[k]
        asked = output_limit(model.params) if max_output_tokens is None else max_output_tokens
        output = _least(asked, model.max_output_tokens)
        if prices is not None and input_tokens is not None and output is not None:
            return input_tokens * prices[0] + output * prices[1]
        return float("inf") if model.max_cost_usd is None else model.max_cost_usd

    def _too_long(self, k: int, input_tokens: int | None) -> bool:
        window = self.models[k].max_input_tokens
        return window is not None and input_tokens is not None and input_tokens > window

    def _why_not(self, k: int, asked: set[int], input_tokens: int | None) -> str:
        if k not in asked:
            return "not in eligible"
        if k in self.retired:
            return "retired"
        return f"needs {input_tokens} tokens, window is {self.models[k].max_input_tokens}"


def _least(*limits: int | None) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None
