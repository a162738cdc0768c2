import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.conversations.call_cost import next_call_usd, rest_usd, unread_price_usd
from wiserouter.pricing.prices import Price, Usage, cost_usd, worst_case_usd

usd = st.just(0.0) | st.floats(1e-100, 1e-4)
prices = st.builds(Price, input=usd, output=usd, cache_read=st.none() | usd, cache_write=st.none() | usd)
counts = st.integers(0, 300_000)
shares = st.floats(0, 1)


@given(prices, counts, counts, shares, st.integers(0, 5_000))
def test_the_cost_of_the_next_call_is_the_mean_of_the_bills_of_a_hit_and_of_a_miss(price, prompt, warm, q, output):
    warm = min(warm, prompt)

    def bill(read):
        return cost_usd(price, Usage(prompt, output, cache_read_tokens=read, cache_write_tokens=prompt - read))

    if price.cache_write_usd >= price.input:
        expected = q * bill(warm) + (1 - q) * bill(0)
        assert next_call_usd(price, prompt, warm, q, output, 0) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(prices, counts, counts, shares, st.integers(0, 5_000), counts, counts)
def test_no_expected_cost_exceeds_the_worst_case(price, prompt, warm, q, output, least, shared):
    cost = next_call_usd(price, prompt, warm, q, output, least, shared_tokens=shared)
    assert 0.0 <= cost <= worst_case_usd(price, prompt, output) * (1 + 1e-9) + 1e-15


@given(prices, counts, counts, counts, shares, st.integers(0, 5_000), counts)
def test_more_warm_tokens_never_cost_more_where_reads_are_cheaper(price, prompt, one, other, q, output, least):
    if price.cache_read_usd <= price.input:
        less, more = sorted((one, other))
        costs = [next_call_usd(price, prompt, warm, q, output, least) for warm in (less, more)]
        assert costs[1] <= costs[0] * (1 + 1e-9) + 1e-15


def test_a_prompt_below_the_least_cacheable_length_is_billed_as_plain_input():
    price = Price.per_million(input=2.0, output=8.0, cache_read=0.2, cache_write=2.5)
    assert next_call_usd(price, 1_000, 900, 1.0, 0.0, 1_024) == pytest.approx(2_000.0e-6)
    assert next_call_usd(price, 1_100, 900, 1.0, 0.0, 1_024) == pytest.approx(1_100 * 2.5e-6)
    assert next_call_usd(price, 1_100, 1_030, 1.0, 0.0, 1_024) == pytest.approx(1_030 * 0.2e-6 + 70 * 2.5e-6)


def test_a_stated_write_price_of_zero_does_not_make_prompts_free():
    assert unread_price_usd(Price(input=2e-6, output=8e-6, cache_write=0.0)) == 2e-6


@given(prices, counts, st.integers(0, 5_000), st.integers(0, 2_000), st.integers(0, 60), shares, shares)
def test_the_rest_is_the_sum_of_its_calls(price, prompt, growth, output, calls, q, writes):
    one_by_one = sum(
        next_call_usd(price, prompt + i * growth, prompt + (i - 1) * growth, q, output, 0, write_share=writes)
        for i in range(1, calls + 1)
    )
    assert rest_usd(price, prompt, growth, output, calls, q, write_share=writes) == pytest.approx(
        one_by_one, rel=1e-9, abs=1e-12
    )


@given(prices, counts, st.integers(0, 5_000), shares, st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_the_rest_of_a_random_number_of_calls_follows_from_two_expectations(price, prompt, growth, q, lengths):
    H = np.array(lengths, dtype=float)
    each = [rest_usd(price, prompt, growth, 300, h, q) for h in lengths]
    pairs = float((H * (H - 1) / 2).mean())
    assert rest_usd(price, prompt, growth, 300, float(H.mean()), q, call_pairs=pairs) == pytest.approx(
        np.mean(each), rel=1e-9, abs=1e-12
    )
