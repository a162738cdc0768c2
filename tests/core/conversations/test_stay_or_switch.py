import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.conversations.stay_or_switch import stay_or_switch

numbers = st.floats(0, 1)
rows = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6)


@given(rows, st.floats(0, 50), st.data())
def test_no_allowed_model_is_worth_more(models, price, data):
    reward, now, rest = zip(*models, strict=True)
    allowed = data.draw(st.sets(st.integers(0, len(models) - 1), min_size=1))
    holder = data.draw(st.none() | st.integers(0, len(models) - 1))
    chosen = stay_or_switch(reward, price, now, rest, holder, allowed)
    worth = np.array(reward) - price * (np.array(now) + np.array(rest))
    assert chosen in allowed
    assert worth[chosen] >= max(worth[k] for k in allowed) - 1e-6


@given(rows, st.floats(0, 50))
def test_the_choice_does_not_move_with_a_common_cost_or_reward(models, price):
    reward, now, rest = (np.array(column) for column in zip(*models, strict=True))
    chosen = stay_or_switch(reward, price, now, rest)
    moved = stay_or_switch(reward + 0.25, price, now + 0.5, rest)
    worth = reward - price * (now + rest)
    assert worth[moved] >= worth[chosen] - 1e-6


def test_at_an_infinite_price_the_cheapest_model_is_taken_and_at_a_tie_the_holder():
    assert stay_or_switch([0.1, 0.9], float("inf"), [1.0, 2.0], [0.0, 0.0], holder=1) == 0
    for holder in (0, 1):
        assert stay_or_switch([0.5, 0.5], 3.0, [1.0, 0.5], [0.5, 1.0], holder=holder) == holder
