"""The estimates behind the calls of conversations: tokens, cache hits and calls to come, and the costs that follow.

Tokens are learned, not dollars: a cost follows from them, from the prices, and from what is warm at each model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wiserouter.conversations.cache_hits import GAP_BOUNDS_S, CacheHits
from wiserouter.conversations.call_cost import MIN_CACHEABLE_TOKENS, next_call_usd, rest_usd, unread_price_usd
from wiserouter.conversations.calls_left import CallsLeft
from wiserouter.conversations.conversation import Conversation
from wiserouter.conversations.token_growth import TokenGrowth
from wiserouter.conversations.typical_cost import TypicalCost
from wiserouter.pricing.pool import Model
from wiserouter.pricing.prices import Usage
from wiserouter.types import FloatArray

_FAR_S = 1e9
"""Gap of a model that never served the conversation."""

_NO_CALLS = Conversation("", "", "run")
_NOT_KNOWN = float("nan")

_Rates = tuple[str, float, float, float, float, float]
"""A model and its prices: input, output, read, an unread prompt token as it is billed, and a warm one on average."""


class CallEstimates:
    """All that is learned from the calls of conversations, for one pool.

    Parameters
    ----------
    models : sequence of Model
        The pool; a model without a price has no estimated cost.
    n_contexts : int
        Number of contexts that tokens are told apart by; 1 where contexts change while serving.
    """

    def __init__(self, models: Sequence[Model], n_contexts: int) -> None:
        self._models, self._n_contexts = tuple(models), n_contexts
        self.hits = CacheHits([model.price for model in models])
        self.tokens = TokenGrowth(n_contexts, len(models))
        self.calls_left = CallsLeft(len(models))
        self.typical = TypicalCost(n_contexts, len(models))
        self.ended = 0
        self._rates = self._rates_of_all()

    @classmethod
    def of_sums(cls, models: Sequence[Model], n_contexts: int, sums: Mapping[str, FloatArray]) -> CallEstimates:
        """Return the estimates of a pool whose first models have these sums; the others came later."""
        estimates = cls(models[: len(sums["calls_left.stopped"])], n_contexts)
        estimates.add_sums(sums)
        estimates.follow(models)
        return estimates

    def follow(self, models: Sequence[Model]) -> None:
        """Take over the models of a pool that has grown, or whose prices have changed."""
        if models is self._models:
            return
        for model in models[len(self._models) :]:
            self.hits.add_model(model.price)
            self.tokens.add_model()
            self.calls_left.add_model()
            self.typical.add_model()
        if any(new.price != old.price for new, old in zip(models, self._models, strict=False)):
            self.hits = CacheHits.of_arrays([model.price for model in models], self.hits.arrays())
        self._models = tuple(models)
        self._rates = self._rates_of_all()

    def prompt_tokens(self, state: Conversation, context: int, input_tokens: int | None) -> float:
        """Return the expected tokens of the next prompt: those given, else the last prompt and its mean growth."""
        if input_tokens is not None:
            return float(input_tokens)
        row = self._row(context)
        if not state.prompt_tokens:
            return self.tokens.mean_first(row)
        return state.prompt_tokens + self.tokens.mean_growth(row)

    def next_usd(self, state: Conversation, context: int, prompt_tokens: float, now_s: float, model: int) -> float:
        """Return the expected cost of the next call with one model, given what is warm; NaN without a price."""
        output_tokens = self.tokens.output(self._row(context))[model]
        return self._next_usd(state, model, prompt_tokens, output_tokens, now_s)

    def rest_usd(self, model: int, context: int, made: int, prompt_tokens: float) -> float:
        """Return the expected cost of the calls after the `made` ones with one model; NaN without a price."""
        row = self._row(context)
        growth, output = self.tokens.growth(row)[model], self.tokens.output(row)[model]
        calls, pairs = self.calls_left.expected(model, made), self.calls_left.pairs(model, made)
        return self._rest_usd(model, prompt_tokens, growth, output, calls, pairs)

    def run_usd(self, model: int, context: int) -> float:
        """Return the expected cost of all calls of a run whose first prompt has the mean length; NaN without a price.

        It serves to compare these estimates with the costs of runs that are known as a whole.
        """
        row = self._row(context)
        first, output = self.tokens.first(row)[model], self.tokens.output(row)[model]
        return self._next_usd(_NO_CALLS, model, first, output, 0.0) + self.rest_usd(model, context, 1, first)

    def of_turn(
        self, state: Conversation, context: int, prompt_tokens: float, now_s: float
    ) -> tuple[list[float], list[float]]:
        """Return the expected cost of the next call, and the mean of that and of the calls after it, for each model.

        The first is `next_usd`; in the second, one model serves all calls, which cost `rest_usd`. Both are NaN without
        a price. They are computed in one pass over the models, in a third of the time of two calls for each.
        """
        row, warm, next_usd, mean_usd = self._row(context), state.warm, [], []
        (hits, shared_tokens), (soon_s, late_s) = self.hits.of_all, GAP_BOUNDS_S
        calls, pairs = self.calls_left.of_all(state.calls + 1)
        growth, output = self.tokens.growth(row), self.tokens.output(row)
        for k, rates in enumerate(self._rates):
            if rates is None:
                next_usd.append(_NOT_KNOWN)
                mean_usd.append(_NOT_KNOWN)
                continue
            name, input_usd, output_usd, read_usd, unread_usd, warm_usd = rates
            answer_usd, read, after, grown = output[k] * output_usd, 0.0, calls[k], growth[k]
            if prompt_tokens < MIN_CACHEABLE_TOKENS:
                usd = prompt_tokens * input_usd + answer_usd
            else:
                if name in warm:
                    known, at_s = warm[name]
                    tokens = known if known < prompt_tokens else prompt_tokens
                    if tokens >= MIN_CACHEABLE_TOKENS:
                        gap_s = now_s - at_s  # `bucket_of`, without a call
                        read = hits[k][0 if gap_s <= soon_s else 1 if gap_s <= late_s else 2] * tokens
                shared = shared_tokens[k]
                if shared > read:
                    read = shared if shared < prompt_tokens else prompt_tokens
                usd = read * read_usd + (prompt_tokens - read) * unread_usd + answer_usd
            warm_sum_tokens = after * prompt_tokens + pairs[k] * grown
            rest_usd = warm_sum_tokens * warm_usd + after * (grown * unread_usd + answer_usd)
            next_usd.append(usd)
            mean_usd.append((usd + rest_usd) / (1.0 + after))
        return next_usd, mean_usd

    def learn(self, state: Conversation, context: int, model: int, usage: Usage, decided_at_s: float) -> None:
        """Learn from the tokens of one call, and from those that it read from the cache."""
        row, warm = self._row(context), state.warm.get(self._models[model].name)
        if state.prompt_tokens:
            grown = usage.input_tokens - state.prompt_tokens
            self.tokens.learn(row, model, float(grown), float(usage.output_tokens))
        else:
            self.tokens.learn_first(row, model, float(usage.input_tokens), float(usage.output_tokens))
        unread = usage.input_tokens - usage.cache_read_tokens
        self.hits.learn_write(model, unread, min(usage.cache_write_tokens, unread))
        if warm is None:
            self.hits.learn_first(model, usage.cache_read_tokens)
        elif (tokens := min(warm.tokens, usage.input_tokens)) >= MIN_CACHEABLE_TOKENS:  # no provider keeps shorter ones
            self.hits.learn(model, max(decided_at_s - warm.at_s, 0.0), tokens, usage.cache_read_tokens)
        self._rates[model] = self._rates_of(model)

    def end(self, model: int, calls: int) -> None:
        """Learn that a conversation has ended."""
        self.calls_left.ended(model, calls)
        self.ended += 1

    def sums(self) -> dict[str, FloatArray]:
        """Return the sums behind the estimates by name, those of a model in its row; views, not copies."""
        parts = {"tokens": self.tokens.arrays(), "hits": self.hits.arrays(), "calls_left": self.calls_left.arrays()}
        named = {f"{part}.{name}": sums for part, arrays in parts.items() for name, sums in arrays.items()}
        return {name: np.moveaxis(sums, -1, 0) if name.startswith("tokens.") else sums for name, sums in named.items()}

    def add_sums(self, sums: Mapping[str, FloatArray]) -> None:
        """Add the sums of another worker, or those that were saved; those of other contexts are left out.

        Parameters
        ----------
        sums : mapping of str to ndarray
            As `sums` returns them, with the same models in the same order.
        """
        parts: dict[str, dict[str, FloatArray]] = {"tokens": {}, "hits": {}, "calls_left": {}}
        for name, own in self.sums().items():
            part, _, of = name.partition(".")
            added = np.asarray(sums.get(name, 0.0))
            added = added if added.shape == own.shape else np.zeros(own.shape)
            parts[part][of] = np.moveaxis(added, 0, -1) if part == "tokens" else added
        self.tokens.merge(TokenGrowth.of_arrays(parts["tokens"]))
        self.hits.merge(CacheHits.of_arrays([model.price for model in self._models], parts["hits"]))
        self.calls_left.merge(CallsLeft.of_arrays(parts["calls_left"]))
        self._rates = self._rates_of_all()
        self.ended += round(parts["calls_left"]["stopped"].sum())

    def _rates_of_all(self) -> list[_Rates | None]:
        return [self._rates_of(k) for k in range(len(self._models))]

    def _rates_of(self, k: int) -> _Rates | None:
        name, price = self._models[k].name, self._models[k].price
        if price is None:
            return None
        unread_usd, hit = unread_price_usd(price, self.hits.write_share(k)), self.hits.hit_probability(k, 0.0)
        warm_usd = hit * price.cache_read_usd + (1.0 - hit) * unread_usd
        return name, price.input, price.output, price.cache_read_usd, unread_usd, warm_usd

    def _next_usd(self, state: Conversation, k: int, prompt: float, output: float, now_s: float) -> float:
        model = self._models[k]
        if model.price is None:
            return _NOT_KNOWN
        warm = state.warm.get(model.name)
        tokens, gap_s = (0, _FAR_S) if warm is None else (warm.tokens, now_s - warm.at_s)
        return next_call_usd(
            model.price,
            prompt,
            tokens,
            self.hits.hit_probability(k, gap_s),
            output,
            shared_tokens=self.hits.first_read_tokens(k),
            write_share=self.hits.write_share(k),
        )

    def _rest_usd(self, k: int, prompt: float, growth: float, output: float, calls: float, pairs: float) -> float:
        price = self._models[k].price
        if price is None:
            return _NOT_KNOWN
        hit, write_share = self.hits.hit_probability(k, 0.0), self.hits.write_share(k)
        return rest_usd(price, prompt, growth, output, calls, hit, call_pairs=pairs, write_share=write_share)

    def _row(self, context: int) -> int:
        """Return the row of a context; the last one, that of all contexts, for a query without a context."""
        return context if context < self._n_contexts else 0


def sums_for_pool(
    models: Sequence[Model], estimates: CallEstimates | None, saved: Mapping[str, FloatArray] | None
) -> dict[str, FloatArray] | None:
    """Return a copy of the sums of the present models: of what is learned, else of what was saved of the first ones."""
    if estimates is not None:
        estimates.follow(models)
    elif saved is not None:
        estimates = CallEstimates.of_sums(models, saved["tokens.first"].shape[-1], saved)
    else:
        return None
    return {name: array.copy() for name, array in estimates.sums().items()}
