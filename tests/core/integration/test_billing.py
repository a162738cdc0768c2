"""Bills: parts cut to their whole, tokens counted where none are reported, and the settlement."""

import pytest

from wiserouter import Budget, Model, Price, Usage, WiseRouter
from wiserouter.errors import AlreadySettled
from wiserouter.integration import (
    FRAME_TOKENS,
    TOOLS_TOKENS,
    Bill,
    CallRequest,
    count_tokens,
    estimated_usage,
    settle,
)


@pytest.fixture
def router() -> WiseRouter:
    made = WiseRouter([Model("small", Price(1e-6, 2e-6)), Model("large", Price(3e-6, 6e-6))], seed=0)
    made.start(Budget(1.0, 100))
    return made


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ((10, 5), Usage(10, 5)),
        ((10, 5, 4, 3, 2), Usage(10, 5, cache_read_tokens=4, cache_write_tokens=3, reasoning_tokens=2)),
        ((10, 5, 8, 8, 9), Usage(10, 5, cache_read_tokens=8, cache_write_tokens=2, reasoning_tokens=5)),
        ((0, 0, 8, 8, 9), Usage(0, 0)),
    ],
)
def test_parts_are_cut_to_their_whole(counts, usage):
    assert Usage.clamped(*counts) == usage


def test_tokens_that_no_one_reports_are_counted():
    asked, answered = count_tokens("what is 2 + 2?").tokens, count_tokens("four").tokens
    request = CallRequest("2 + 2", counted="what is 2 + 2?", overhead_tokens=TOOLS_TOKENS, messages=2)
    assert estimated_usage(request.estimated_tokens, "four") == Usage(asked + 3 * FRAME_TOKENS, answered)
    assert estimated_usage(0, "") == Usage(0, 0)


def test_a_bill_is_charged_once(router):
    decision = router.decide("q")
    settle(router, decision, Bill(0.25))
    assert (router.status().spent_usd, router.status().charged) == (0.25, 1)
    with pytest.raises(AlreadySettled):
        settle(router, decision.id, Bill(0.25))


def test_the_model_that_answered_learns_its_cost(router):
    settle(router, router.decide("q", eligible=["small"]).id, Bill(0.25, model="large"))
    assert router.estimates.calls.tolist() == [[0.0, 1.0]]


def test_a_bill_that_tells_nothing_is_not_learned_from(router):
    settle(router, router.decide("q"), Bill(0.25, learn=False))
    assert (router.status().spent_usd, router.estimates.calls.sum()) == (0.25, 0.0)


def test_without_a_bill_the_reservation_is_given_back(router):
    settle(router, router.decide("q"), None)
    status = router.status()
    assert (status.spent_usd, status.reserved_usd, status.released) == (0.0, 0.0, 1)
