"""The figures of a turn, computed in one pass over the models, against the two formulas model by model."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Model, Price, Usage
from wiserouter.conversations.call_estimates import CallEstimates
from wiserouter.conversations.conversation import Conversation, Warm
from wiserouter.types import NO_CONTEXT

usd = st.just(0.0) | st.floats(1e-100, 1e-4)
prices = st.none() | st.builds(Price, input=usd, output=usd, cache_read=st.none() | usd, cache_write=st.none() | usd)
tokens = st.integers(0, 20_000)
calls = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), tokens, tokens, st.integers(0, 3_000)), max_size=12)
warms = st.dictionaries(st.sampled_from(["m0", "m1", "m2", "m3"]), st.tuples(tokens, st.floats(0, 9_000)), max_size=4)


@given(st.lists(prices, min_size=4, max_size=4), calls, warms, tokens, st.integers(0, 300), st.integers(-1, 2))
def test_the_costs_of_a_turn_are_those_of_each_model_alone(each, seen, warm, prompt, made, context):
    estimates = CallEstimates([Model(f"m{k}", price, max_cost_usd=1.0) for k, price in enumerate(each)], n_contexts=3)
    for row, model, read, unread, output in seen:
        before = Conversation("a", "s", "conversation", prompt_tokens=read // 2, warm={"m1": Warm(read, 0.0)})
        estimates.learn(before, row, model, Usage(read + unread, output, read, unread // 2), 100.0)
        estimates.calls_left.made(model, 2)
        estimates.end(model, 3)
    state = Conversation("a", "s", "conversation", calls=made, warm={name: Warm(*of) for name, of in warm.items()})
    next_usd, mean_usd = estimates.of_turn(state, context, float(prompt), now_s=9_000.0)
    for k in range(4):
        alone = estimates.next_usd(state, context, float(prompt), 9_000.0, k)
        rest = estimates.rest_usd(k, context, made + 1, float(prompt))
        mean = (alone + rest) / (1.0 + estimates.calls_left.expected(k, made + 1))
        np.testing.assert_array_equal([next_usd[k], mean_usd[k]], [alone, mean])  # NaN where there is no price


def test_a_turn_without_a_context_has_the_tokens_of_all_contexts():
    estimates = CallEstimates([Model("m0", Price(1e-6, 2e-6))], n_contexts=2)
    estimates.tokens.learn(1, 0, 2_000, 700)
    both = [estimates.of_turn(Conversation("a", "s", "conversation"), row, 2_000.0, 0.0) for row in (1, NO_CONTEXT)]
    assert both[0] == both[1]
