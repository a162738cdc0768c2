"""The figures of conversations: what was paid, and what always staying and never staying would have cost."""

import pytest

from support.run_router import LARGE, fitted, serve
from wiserouter import Usage
from wiserouter.pricing.prices import cost_usd

SHARED_TOKENS = 1_500
"""The instructions that all conversations begin with, which a provider has in its cache at their first call."""


def shared_usage(call):
    prompt = 2_000 + 1_000 * call
    return Usage(prompt, 100, cache_read_tokens=prompt - 1_000 if call else SHARED_TOKENS)


def test_conversations_that_never_change_their_model_cost_what_always_staying_costs():
    router = fitted()
    for run in range(5):
        for call in range(3):
            router.charge(router.decide("fix the bug", conversation=f"run-{run}"), usage=shared_usage(call))
    figures = router.conversation_figures()
    assert (figures.stays, figures.first_visits, figures.returns, figures.missed_usd) == (10, 5, 0, 0.0)
    assert figures.always_stay_usd == pytest.approx(figures.charged_usd, rel=1e-12)


def test_a_cold_cache_costs_the_same_where_the_model_stays():
    router = fitted()
    for call in range(3):
        router.charge(router.decide("fix the bug", conversation="run"), usage=Usage(2_000 + 1_000 * call, 100))
    figures = router.conversation_figures()
    assert figures.missed_usd > 0.0
    assert figures.always_stay_usd == pytest.approx(figures.charged_usd, rel=1e-12)


def test_what_a_first_call_reads_is_read_without_a_conversation_too():
    router = fitted()
    for run in range(3):
        router.charge(router.decide("fix the bug", conversation=f"run-{run}"), usage=shared_usage(0))
    figures = router.conversation_figures()
    assert figures.never_stay_usd == pytest.approx(figures.charged_usd, rel=1e-12)


def test_a_conversation_that_changed_its_model_had_read_its_prefix_with_the_first():
    router = fitted()
    serve(router, "run", 2)
    before = router.conversation_figures()
    router.release(router.decide("fix the bug", conversation="run"))
    decision = router.decide("fix the bug", conversation="run")
    router.charge(decision, usage=Usage(4_000, 100))
    after = router.conversation_figures()
    assert decision.model == "small"
    stayed_usd = cost_usd(LARGE.price, Usage(4_000, 100, cache_read_tokens=3_000))
    assert after.always_stay_usd - before.always_stay_usd == pytest.approx(stayed_usd, rel=1e-12)
    assert after.never_stay_usd - before.never_stay_usd == pytest.approx(after.charged_usd - before.charged_usd)
