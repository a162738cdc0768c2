"""A router that starts from prices reads the prompt: by default its contexts are fitted as queries come."""

import numpy as np
import pytest

from support.questions import SKILL, question
from wiserouter import Budget, Conversations, EpsilonFirst, Growing, Model, Price, Usage, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.types import NO_CONTEXT

MODELS = [Model("a", Price(1e-6, 2e-6)), Model("b", Price(1e-6, 2e-6))]


def served(router, n, seed):
    """Serve `n` questions of four kinds, two for each model, and return the chances of a right answer chosen."""
    rng, chances = np.random.default_rng(seed), []
    for _ in range(n):
        kind = int(rng.integers(4))
        decision = router.decide(question(rng, kind))
        chance = SKILL[kind, router.pool.index(decision.model)]
        router.charge(decision, usage=Usage(100, 50))
        router.reward(decision, float(rng.random() < chance))
        chances.append(chance)
    return np.array(chances)


def started(**settings):
    router = WiseRouter(MODELS, seed=0, **settings)
    router.start(Budget(10.0, 100_000))
    return router


def test_questions_are_told_apart_from_prices_alone():
    router = started(growing=Growing(background=False))
    blind = started(growing=None)
    for one in (router, blind):
        one.start(Budget(10.0, 900))
    assert served(blind, 900, 0)[600:].mean() < 0.82
    chosen = served(router, 900, 0)[600:].mean()
    print(chosen, router.contexts.n_contexts)
    assert chosen > 0.86
    assert router.contexts.n_contexts > 4
    assert router.estimates.labels.sum() == pytest.approx(900)


def test_the_default_reads_text_and_what_says_otherwise_does_not():
    assert started().encoder.spec == "hashing"
    assert started().needs_embedding
    assert not started(growing=None).needs_embedding
    assert not started(policy=EpsilonFirst(10)).needs_embedding
    assert started(encoder=lambda texts: np.ones((len(texts), 3))).encoder.spec == "custom"


def test_what_would_do_nothing_is_refused():
    with pytest.raises(InvalidInput, match="needs no log, got encoder='tfidf', which is not fitted: use 'hashing'"):
        started(encoder="tfidf")
    with pytest.raises(InvalidInput, match="n_contexts of Growing must be at least 2, got 1"):
        Growing(1)


def test_a_query_without_text_is_routed_by_the_averages_once_there_are_several_contexts():
    router = started(growing=Growing(4, first_after=40, per_context=10, background=False))
    assert router.decide().context == 0
    served(router, 60, 1)
    assert router.contexts.n_contexts > 1
    decision = router.decide()
    assert decision.context == NO_CONTEXT
    router.charge(decision, 0.001)


def test_embeddings_of_the_callers_own_take_the_place_of_the_default_encoder(tmp_path):
    router = started(growing=Growing(2, first_after=20, per_context=5, background=False))
    for i in range(40):
        router.charge(router.decide(embedding=np.eye(6)[i % 2]), 0.001)
    assert router.contexts.dim == 6
    assert router.encoder is None
    assert router.decide("text").context == NO_CONTEXT
    router.save(tmp_path / "own.wise")
    assert WiseRouter.load(tmp_path / "own.wise").contexts.n_contexts == 2


def test_a_saved_router_goes_on_growing_from_where_it_was(tmp_path):
    router = started(growing=Growing(background=False))
    served(router, 400, 2)
    n_contexts = router.contexts.n_contexts
    router.save(tmp_path / "grown.wise")
    loaded = WiseRouter.load(tmp_path / "grown.wise")
    loaded.start(Budget(10.0, 100_000))
    assert loaded.needs_embedding
    assert loaded.decide("sort this list").context == router.decide("sort this list").context
    served(loaded, 150, 3)
    assert loaded.contexts.n_contexts == n_contexts


def test_decisions_made_before_a_fit_are_settled_in_the_new_contexts():
    router = started(growing=Growing(4, first_after=40, per_context=10, keep=50, background=False))
    rng = np.random.default_rng(4)
    early = [router.decide(question(rng, i % 4)) for i in range(20)]
    served(router, 80, 5)
    assert router.contexts.n_contexts > 1
    for decision in early:
        router.charge(decision, usage=Usage(100, 50))
        router.reward(decision, 1.0)
    failed = router.decide(question(rng, 0))
    router.release(failed)
    estimates = router.estimates
    assert estimates.calls.sum() == pytest.approx(100)
    assert estimates.invoked.sum() == pytest.approx(100)
    assert estimates.labels.sum() == pytest.approx(100)


def test_costs_of_calls_of_conversations_move_as_they_were_learned():
    growing = Growing(2, per_context=1, background=False)
    router = started(growing=growing, watch=None, conversations=Conversations())
    for name, tokens in (("long", 10_000), ("short", 10)):
        decision = router.decide("write code in python", input_tokens=tokens, conversation=name, eligible=["a"])
        router.charge(decision, usage=Usage(tokens, 50))
    router.decide("a story about the sea", conversation="other", eligible=["a"])
    learned_usd = router.estimates.cost.sum()
    router.refit_contexts(2)
    assert router.estimates.calls[:, 0].tolist() == [2.0, 0.0]
    assert router.estimates.cost[:, 0].tolist() == pytest.approx([learned_usd, 0.0])
