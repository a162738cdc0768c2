"""The methods of `WiseRouter` for batches, whose queries are all known before the first one is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from wiserouter.errors import InvalidInput, UnknownDecision
from wiserouter.learning.cost_prior import list_costs_usd
from wiserouter.learning.estimates import Means
from wiserouter.learning.shrinkage import mean_errors
from wiserouter.pricing.pool import Model
from wiserouter.pricing.tokens import count_tokens
from wiserouter.routing.signal_methods import RouterSignals
from wiserouter.stores.base import Record
from wiserouter.stores.ids import fresh_id
from wiserouter.types import Decision, Embedding, FloatArray, IntArray
from wiserouter.validation import check_amount, check_count, checked_names

if TYPE_CHECKING:
    from wiserouter.planning.batch_allocation import BatchAllocation
    from wiserouter.planning.batch_margin import CostErrors

BATCH_PRICE = 0.5
"""The share of the price of a plain call that OpenAI, Anthropic and Google take for one in a batch."""


@dataclass(frozen=True)
class Allocation:
    """The models of a batch.

    Attributes
    ----------
    models : tuple of str
        The model of each query, in the order of the texts.
    expected_reward : float
        Mean expected reward per query.
    expected_cost_usd : float, USD
        Expected cost of the whole batch; never above the budget less the margin.
    shadow_price : float
        Reward that one more USD would buy; 0 where the budget does not bind.
    spend_usd : mapping of str to float
        Expected cost of the queries of each model; models without queries are left out.
    costs_usd : tuple of float
        Expected cost of each query.
    margin_usd : float, USD
        Held back for wrong estimates; 0 without a confidence.
    contexts : tuple of int
        The context of each query.
    rewards : tuple of float
        Expected reward of each query.
    """

    models: tuple[str, ...]
    expected_reward: float
    expected_cost_usd: float
    shadow_price: float
    spend_usd: Mapping[str, float]
    costs_usd: tuple[float, ...]
    margin_usd: float = 0.0
    contexts: tuple[int, ...] = ()
    rewards: tuple[float, ...] = ()


class RouterBatches(RouterSignals):
    """The methods that allocate a whole batch."""

    def allocate(
        self,
        texts: Sequence[str],
        budget_usd: float,
        *,
        eligible: Iterable[str] | None = None,
        confidence: float | None = None,
        price_factor: float | Mapping[str, float] | Literal["batch"] = 1.0,
        capacities: Mapping[str, int] | None = None,
        worst_case_usd: FloatArray | None = None,
        hard: bool = False,
    ) -> Allocation:
        """Choose a model for each query of a batch; nothing is reserved, charged or learned.

        Until a call was paid for, each query goes to the model with the least list cost that may take it, as with
        `decide`; models without a price take none.

        Parameters
        ----------
        texts : sequence of str
            The queries.
        budget_usd : float, USD
            What all of them may cost together.
        eligible : iterable of str, optional
            The models that may take queries; all by default.
        confidence : float, optional
            The probability, from 0.5 up to below 1, with which the true total is to stay within the budget, given how
            far costs were from their means so far. By default the expected total keeps to it.
        price_factor : float, mapping of str to float, or "batch", default 1
            Costs in the batch over those of plain calls, for all models or by name (1 for those left out); "batch"
            compares `Model.batch_price` with `Model.price`, and is 1 where one of them is missing. `BATCH_PRICE`, a
            half, is the share that batch services usually take.
        capacities : mapping of str to int, optional
            The most queries that a model takes; any number for those left out.
        worst_case_usd : ndarray of shape (n_queries, n_models), USD, optional
            The most that each query can cost with each model of the pool; infinite where the model does not take it.
        hard : bool, default False
            Whether the budget bounds the sum of these worst cases, instead of the expected total.

        Returns
        -------
        Allocation
            The best one at the present estimates: the optimum of the linear program, but for one query at most, or with
            capacities for one exchange of queries between models.

        Raises
        ------
        InfeasibleBudget
            If the cheapest models cost more than the budget.
        NoEligibleModel, UnknownModel, InvalidInput, EncoderError
            If a text or a restriction is wrong, the capacities do not hold all queries, there are neither
            estimates nor prices yet, or no estimates for a confidence, or worst cases are missing for a hard budget.

        Examples
        --------
        >>> from wiserouter import Estimates, Model, WiseRouter
        >>> estimates = Estimates(1, 2)
        >>> estimates.add_table(np.array([0]), [[0.2, 0.9]], [[0.01, 0.03]])
        >>> router = WiseRouter([Model("small"), Model("large")], estimates=estimates)
        >>> router.allocate(["one", "two", "three"], 0.07).models
        ('large', 'large', 'small')
        """
        check_amount("budget_usd", budget_usd)
        queries = _checked(texts)
        asked = None if eligible is None else checked_names("eligible", eligible)
        worst = _worst_cases(worst_case_usd, (len(queries), len(self.pool)), hard=hard, confidence=confidence)
        encoder = self.encoder
        embeddings, tokens = self._embedded(queries), self._lengths(queries)  # no other call waits for them
        with self._lock:
            self._learner.merge_remote()
            if self.encoder is not encoder:  # the contexts were fitted again meanwhile
                embeddings = self._embedded(queries)
            names = self.pool.names
            factor = _factors(price_factor, self.pool.models)
            contexts, reward, cost = self._figures_of(embeddings, len(queries))
            np.multiply(cost, factor, out=cost, where=np.isfinite(cost))
            self._exclude(cost, tokens, asked)
            if worst is not None:
                cost[np.isinf(worst)] = np.inf
            errors = None if confidence is None else self._cost_errors(confidence, contexts, factor)
        bounded = cost if worst is None or not hard else np.where(np.isinf(cost), np.inf, worst)
        found = _allocated(reward, bounded, _limits(capacities, names), budget_usd, errors)
        each = cost[np.arange(len(queries)), found.model]
        spend = np.bincount(found.model, each, len(names))
        count = np.bincount(found.model, minlength=len(names))
        return Allocation(
            tuple(names[k] for k in found.model),
            found.expected_reward / len(queries),
            float(each.sum()) if hard else found.expected_cost_usd,
            found.shadow_price,
            {name: float(spend[k]) for k, name in enumerate(names) if count[k]},
            tuple(each.tolist()),
            found.margin_usd,
            tuple(contexts.tolist()),
            tuple(reward[np.arange(len(queries)), found.model].tolist()),
        )

    def reserve_decision(self, decision: Decision) -> None:
        """Reserve the expected cost of a decision of `batch_decisions`; one that the store knows is left as it is.

        Raises
        ------
        NotStarted, BudgetExhausted, UnknownModel
            If the scope has no budget, a hard limit does not admit the cost, or the model is unknown.
        InvalidInput
            If the router has no such context.
        """
        reader = self._learner.reader
        reader.checked_context(decision.context)
        record = Record(decision, self.pool.index(decision.model), "actual")
        record.contexts_version = reader.version
        record.contexts = self._learner.context_names.of(reader.version)
        if self._knows(decision.id):
            return
        self._store.reserve(record)
        for observer in self._observers:
            observer.decision(decision, None)
        with self._lock:
            self._learner.add_invoked(decision.context, record.model)

    def _knows(self, decision_id: str) -> bool:
        try:
            self._store.find(decision_id)
        except UnknownDecision:
            return False
        return True

    def _embedded(self, texts: Sequence[str]) -> Embedding | None:
        """Return the embeddings of the queries; None where neither contexts nor residuals need them."""
        encoder, needed = self.encoder, self.contexts.n_contexts > 1 or self.residuals is not None
        return encoder.encode_many(texts) if encoder is not None and needed else None

    def _lengths(self, texts: Sequence[str]) -> FloatArray | None:
        """Return the tokens of the queries; None where no limit needs them."""
        if self.pool.needs_tokens(hard=False):
            return np.array([count_tokens(text).tokens for text in texts], dtype=np.float64)
        return None

    def _figures_of(self, embeddings: Embedding | None, n_queries: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return context, expected rewards and expected costs of each query."""
        means, residuals, contexts = self._means(), self.residuals, self.contexts
        at = np.zeros(n_queries, dtype=np.int64)
        if contexts.n_contexts > 1:
            if embeddings is None:
                raise InvalidInput("allocate needs a router with an encoder to place texts in contexts, got none")
            at = contexts.assign_many(embeddings)
        reward, cost = means.reward[at], means.cost_usd[at]
        if residuals is not None and embeddings is not None:
            reward = np.clip(reward + residuals.ridge.shifts(embeddings, at), 0.0, 1.0)
        return at, reward, cost

    def _means(self) -> Means:
        """Return mean rewards and costs; until a call was paid for list costs, by which `decide` takes the cheapest."""
        seen = self._learner.estimates
        if seen.calls.any():
            return seen.means()
        listed = list_costs_usd(seen, self.pool.models)
        if np.isinf(listed).all():
            raise InvalidInput(
                "allocate needs estimates of costs, or models with prices, got neither: fit on a log, give each Model "
                "a price, or charge a call first"
            )
        return Means(np.zeros_like(listed), listed)

    def _exclude(self, cost: FloatArray, tokens: FloatArray | None, eligible: tuple[str, ...] | None) -> None:
        """Set the cost of each model that cannot take a query to infinity."""
        pool = self.pool
        if tokens is None or not pool.needs_tokens(hard=False):
            allowed = pool.eligible(eligible, None)
            if allowed is not None:
                cost[:, [k for k in range(len(pool)) if k not in allowed]] = np.inf
            return
        lengths, row = np.unique(tokens, return_inverse=True)
        excluded = np.zeros((len(lengths), len(pool)), dtype=np.bool_)
        for i, length in enumerate(lengths.tolist()):
            allowed = pool.eligible(eligible, int(length))
            if allowed is not None:
                excluded[i, [k for k in range(len(pool)) if k not in allowed]] = True
        cost[excluded[row]] = np.inf

    def _cost_errors(self, confidence: float, contexts: IntArray, factor: FloatArray) -> CostErrors:
        """Return the errors of the costs: those of the shrunk means, and those of single calls."""
        from wiserouter.planning.batch_margin import CostErrors

        seen = self._learner.estimates
        if not seen.calls.any():
            raise InvalidInput(
                "a confidence needs the costs of calls, got none: fit on a log, or leave confidence out",
                value=confidence,
            )
        own, shared, call = (one * factor for one in mean_errors(seen.calls, seen.cost, seen.cost_sq))
        return CostErrors(confidence, contexts, own, call, shared)


def _allocated(
    reward: FloatArray, cost: FloatArray, limits: list[int | None], budget_usd: float, errors: CostErrors | None
) -> BatchAllocation:
    """Return the best allocation, within capacities where there are any."""
    from wiserouter.planning.batch_allocation import BatchProgram  # few routers allocate batches
    from wiserouter.planning.batch_capacity import CapacityProgram
    from wiserouter.planning.batch_selection import selection_usd

    if errors is not None:
        errors.selection_usd = selection_usd(reward, cost, errors, budget_usd)
    free = all(one is None or one >= len(reward) for one in limits)
    program = BatchProgram(reward, cost) if free else CapacityProgram(reward, cost, limits)
    if not np.ptp(reward, axis=1).any():  # no model is better than another: the cheapest are as good
        budget_usd = min(budget_usd, program.floor_usd)
    return program.allocate(budget_usd, errors)


def _worst_cases(
    given: FloatArray | None, shape: tuple[int, int], *, hard: bool, confidence: float | None
) -> FloatArray | None:
    """Return the worst case of each query with each model, checked."""
    if hard and (given is None or confidence is not None):
        raise InvalidInput("a hard budget bounds worst cases: give worst_case_usd, and no confidence", value=confidence)
    if given is None:
        return None
    found = np.asarray(given, dtype=np.float64)
    if found.shape != shape or np.isnan(found).any() or (found < 0.0).any():
        raise InvalidInput(f"worst_case_usd must hold amounts of shape {shape}, got shape {found.shape}", value=given)
    return found


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise InvalidInput("texts must be a sequence of strings, got one string: put it in a list", value=texts)
    found = list(texts)
    if not found:
        raise InvalidInput("texts must hold at least one query, got none")
    for text in found:
        if not isinstance(text, str):
            raise InvalidInput(f"texts must hold strings, got {type(text).__name__}", value=text)
    return found


def batch_decisions(allocation: Allocation, budget_usd: float, scope: str, now_s: float) -> list[Decision]:
    """Return a decision for each query of an allocation; nothing is reserved yet."""
    rate_usd = budget_usd / len(allocation.models)
    figures = (allocation.models, allocation.contexts, allocation.costs_usd, allocation.rewards)
    price = allocation.shadow_price
    return [
        Decision(fresh_id(), model, context, 1.0, rate_usd, price, cost_usd, reward, cost_usd, scope, now_s)
        for model, context, cost_usd, reward in zip(*figures, strict=True)
    ]


def batch_factor(model: Model) -> float:
    """Return the batch price of a model over its price, of the side on which this is larger; 1 where one is missing.

    Examples
    --------
    >>> from wiserouter.pricing.prices import Price
    >>> batch_factor(Model("gpt-mini", Price(2e-6, 8e-6), batch_price=Price(1e-6, 4e-6)))
    0.5
    """
    plain, batch = model.price, model.batch_price
    if plain is None or batch is None:
        return 1.0
    sides = ((batch.input, plain.input), (batch.output, plain.output))
    return max([one / other for one, other in sides if other > 0.0], default=1.0)


def _factors(factor: float | Mapping[str, float] | Literal["batch"], models: Sequence[Model]) -> FloatArray:
    """Return the factor of each model."""
    names = [model.name for model in models]
    if factor == "batch":
        return np.array([batch_factor(model) for model in models])
    if isinstance(factor, str):
        raise InvalidInput(f"price_factor must be a number, a mapping or 'batch', got {factor!r}", value=factor)
    if not isinstance(factor, Mapping):
        return np.full(len(names), check_amount("price_factor", factor))
    _check_names("price_factor", factor, names)
    return np.array([check_amount("price_factor", factor.get(name, 1.0)) for name in names])


def _limits(capacities: Mapping[str, int] | None, names: Sequence[str]) -> list[int | None]:
    """Return the capacity of each model."""
    given = capacities or {}
    _check_names("capacities", given, names)
    return [check_count("capacities", given[name]) if name in given else None for name in names]


def _check_names(what: str, given: Iterable[str], names: Sequence[str]) -> None:
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise InvalidInput(f"{what} must name models of the pool, got {unknown[0]!r}", value=unknown[0])
