"""At equal quality, a conversation costs no more than the better of always staying and never staying."""

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, WiseRouter
from wiserouter.conversations.call_cost import next_call_usd
from wiserouter.conversations.settings import Conversations
from wiserouter.conversations.stay_or_switch import stay_or_switch
from wiserouter.evaluation.conversations.caching_provider import CachingProvider
from wiserouter.evaluation.conversations.provider_terms import provider_terms
from wiserouter.learning.estimates import Estimates
from wiserouter.pricing.pool import Model
from wiserouter.stores import MemoryStore

TERMS = provider_terms()[:10]
PAIRS = list(permutations(range(10), 2))
GAP_S = 30.0


class Shape:
    """A conversation of which each turn adds as many tokens."""

    def __init__(self, prefix, growth, output, turns):
        self.prefix, self.growth, self.output, self.turns = prefix, growth, output, turns

    def prompts(self):
        return [self.prefix + i * self.growth for i in range(self.turns)]

    def cost_usd(self, pair, sequence):
        """Return the bill of a conversation whose turns these models serve."""
        provider = CachingProvider([TERMS[k] for k in pair])
        return sum(
            provider.call("chat", model, prompt, self.output, i * GAP_S).cost_usd
            for i, (model, prompt) in enumerate(zip(sequence, self.prompts(), strict=True))
        )

    def bound_usd(self, pair):
        """Return the lesser cost of staying with the model of the first turn, and of the other one from then on."""
        later = self.turns - 1
        return min(self.cost_usd(pair, [0] * self.turns), self.cost_usd(pair, [0, *[1] * later]))

    def best_usd(self, pair):
        return min(self.cost_usd(pair, (0, *rest)) for rest in product((0, 1), repeat=self.turns - 1))


def known_usd(shape, pair):
    """Return the cost of a conversation whose next model is chosen knowing prices, tokens and the number of turns."""
    prompts, warm, sequence = shape.prompts(), [0, 0], []
    for i, prompt in enumerate(prompts):

        def usd(k, at, read):
            terms = TERMS[pair[k]]
            return next_call_usd(terms.price, at, read, 1.0, shape.output, terms.min_cacheable_tokens)

        now = [usd(k, prompt, warm[k]) for k in (0, 1)]
        rest = [sum(usd(k, prompts[j], prompts[j - 1]) for j in range(i + 1, len(prompts))) for k in (0, 1)]
        model = stay_or_switch([0.8, 0.8], 1.0, now, rest, sequence[-1]) if sequence else 0
        sequence.append(model)
        warm[model] = prompt
    return shape.cost_usd(pair, sequence)


SHAPES = st.builds(Shape, st.integers(1_000, 300_000), st.integers(20, 4_000), st.integers(1, 2_000), st.integers(2, 8))


@given(shape=SHAPES, pair=st.sampled_from(PAIRS))
@settings(max_examples=60, deadline=None)
def test_with_all_known_the_choice_is_the_best_sequence(shape, pair):
    cost = known_usd(shape, pair)
    assert cost <= shape.bound_usd(pair) * (1 + 1e-9)
    assert cost >= shape.best_usd(pair) * (1 - 1e-9)


def learned_router(shape, pair):
    """Return a router of two models of equal quality that has served 50 such conversations of each, and its clock."""
    models = [Model(TERMS[k].model, TERMS[k].price) for k in pair]
    mean_usd = [shape.cost_usd(pair, [k] * shape.turns) / shape.turns for k in (0, 1)]
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(50, dtype=np.int64), np.full((50, 2), 0.8), np.tile(mean_usd, (50, 1)))
    clock = [0.0]
    router = WiseRouter(
        models,
        estimates=estimates,
        conversations=Conversations("conversation"),
        store=MemoryStore(lambda: clock[0]),
        seed=0,
    )
    router.start(Budget(1e9, horizon=1_000_000))
    for model in models:
        served_usd(router, clock, shape, pair, f"past-{model.name}", only=model.name)
    learned = router._calls.estimates
    learned.add_sums({name: 49.0 * sums for name, sums in learned.sums().items()})
    return router, clock


def served_usd(router, clock, shape, pair, key, only=None):
    """Return the cost of a conversation whose first turn, or all of it, one model serves."""
    provider, names, total = CachingProvider([TERMS[k] for k in pair]), router.pool.names, 0.0
    for i, prompt in enumerate(shape.prompts()):
        clock[0] += GAP_S
        eligible = [only] if only else [names[0]] if i == 0 else None
        decision = router.decide(conversation=key, input_tokens=prompt, eligible=eligible, context=0)
        bill = provider.call(key, names.index(decision.model), prompt, shape.output, clock[0])
        router.charge(decision, bill.cost_usd, usage=bill.usage)
        total += bill.cost_usd
    router.end(key)
    return total


def check_learned(shape, pair):
    router, clock = learned_router(shape, pair)
    cost = served_usd(router, clock, shape, pair, "chat")
    bound = shape.bound_usd(pair)
    assert cost <= 1.01 * bound, (TERMS[pair[0]].model, TERMS[pair[1]].model, vars(shape), cost / bound)


CACHEABLE = st.builds(
    Shape, st.integers(5_000, 300_000), st.integers(20, 4_000), st.integers(1, 2_000), st.integers(2, 8)
)
"""Conversations whose every prompt any provider caches: the length from which it does is learned only as a mean."""


@given(shape=CACHEABLE, pair=st.sampled_from(PAIRS))
@settings(max_examples=8, deadline=None)
def test_a_router_that_has_seen_such_chats_pays_no_more_than_always_or_never_staying(shape, pair):
    check_learned(shape, pair)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", np.geomspace(1_000, 300_000, 9).round().astype(int).tolist())
def test_every_pair_at_every_length(prefix):
    for pair in PAIRS:
        check_learned(Shape(prefix, 600, 300, 6), pair)
        assert known_usd(Shape(prefix, 600, 300, 6), pair) <= Shape(prefix, 600, 300, 6).bound_usd(pair) * (1 + 1e-9)
