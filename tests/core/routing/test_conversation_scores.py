"""Scores of runs: by any of their calls or by their id, also after their end."""

from itertools import count

import pytest

from support.run_router import fitted, serve
from wiserouter.errors import AlreadySettled, UnknownConversation


def test_the_reward_of_a_run_is_given_by_any_of_its_calls_or_by_its_id():
    router = fitted()
    decisions = serve(router, "run-1", 4)
    assert router.reward(decisions[2], 0.5) is False
    assert router.reward(decisions[3].id, 0.6) is True
    assert router.reward_conversation("run-1", 0.7) is True
    assert router.estimates.labels[0, 1] == 51
    assert router.estimates.reward[0, 1] == pytest.approx(50 * 0.9 + 0.7)
    with pytest.raises(UnknownConversation, match="run-2"):
        router.reward_conversation("run-2", 0.7)
    with pytest.raises(UnknownConversation):
        router.reward_conversation("run-1", 0.7, caller="another")


def test_a_score_finds_a_run_that_has_ended():
    router = fitted()
    serve(router, "run-1", 3)
    router.end("run-1")
    assert router.conversation("run-1") is None
    assert router.reward_conversation("run-1", 0.7) is False
    assert router.reward_conversation("run-1", 0.5) is True
    assert router.estimates.labels[0, 1] == 51
    serve(router, "run-1", 1)
    assert router.reward_conversation("run-1", 0.4) is False  # the id names a new run
    with pytest.raises(UnknownConversation):
        router.reward_conversation("run-1", 0.7, scope="team")


@pytest.mark.parametrize("ends", [False, True])
def test_the_score_of_a_call_whose_first_call_was_released_is_that_of_its_run(ends):
    router = fitted()
    first, second = (router.decide("hi", conversation="run") for _ in range(2))
    assert second.run_id == first.id
    router.release(first)
    router.charge(second, 0.01)
    assert not router.reward(second, 0.2)  # the only call of the run so far
    again = router.decide("hi", conversation="run")
    router.charge(again, 0.01)
    assert again.run_id == again.id
    if ends:
        router.end("run")
    assert not router.reward(second.id, 0.7)
    assert router.reward(again, 0.8)
    assert (router.explain(again).reward, router.explain(second).reward) == (0.8, 0.2)
    with pytest.raises(AlreadySettled):
        router.reward(first, 1.0)


def test_the_score_of_a_call_is_not_that_of_an_earlier_run_of_its_id():
    router = fitted(clock=count(1_000.0).__next__)
    serve(router, "run", 1)
    router.end("run")
    first, second = (router.decide("hi", conversation="run") for _ in range(2))
    router.release(first)
    router.charge(second, 0.01)
    router.end("run")
    assert not router.reward(second, 0.2)
    assert router.explain(second).reward == 0.2
