"""The prompts of a judge, and the strict reading of its replies."""

import random
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.errors import InvalidInput
from wiserouter.judging.prompts import (
    comparing_prompt,
    grading_prompt,
    preference_of_reply,
    score_of_reply,
    shortened,
)
from wiserouter.judging.sampling import MOST_STRATA, SystematicSample, level, share_at
from wiserouter.judging.verdict import NoVerdict


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        *[("0", 0.0), ("1", 1.0), ("1.0", 1.0), (" .5\n", 0.5), ("Score: 0.25", 0.25)],
        *[("**0.5**", 0.5), ("**Score:** 0.25", 0.25), ("`1`", 1.0), ("```\n0.5\n```", 0.5)],
        *[("<think>\n0.1 or 0.9?\n</think>\n\n0.5", 0.5), ("<thinking>1</thinking>\n**0**", 0.0)],
    ],
)
def test_a_number_alone_is_a_score(reply, score):
    assert score_of_reply(reply) == score


@pytest.mark.parametrize(
    "reply",
    [
        *["", "7", "1.5", "-1", "0.5 or 0.6", "good", "0,5", "10", "nan", "1e-1", "0.5/1", "50 %"],
        *["<think>1", "1 <think>0</think>", "<think>1</think>"],
    ],
)
def test_anything_else_is_none(reply):
    with pytest.raises(NoVerdict):
        score_of_reply(reply)


@given(st.text())
def test_no_reply_breaks_the_reading(reply):
    for read in (score_of_reply, preference_of_reply):
        with suppress(NoVerdict):
            assert read(reply) is not None


def test_an_error_does_not_repeat_the_reply():
    with pytest.raises(NoVerdict) as raised:
        score_of_reply("sk-secret")
    assert "sk-secret" not in str(raised.value)


@pytest.mark.parametrize("read", [score_of_reply, preference_of_reply])
def test_an_empty_reply_names_its_likely_cause(read):
    with pytest.raises(NoVerdict, match="larger max_output_tokens"):
        read(" ")


@pytest.mark.parametrize("reply", ["B", " b.", "**B**", "<think>A?</think>\n\nB"])
def test_a_letter_alone_is_a_preference(reply):
    assert preference_of_reply(reply) == "second"


@pytest.mark.parametrize("reply", ["C", "A and B", "A is better", "first", ""])
def test_a_preference_is_a_letter_or_tie(reply):
    with pytest.raises(NoVerdict):
        preference_of_reply(reply)


@given(st.text(), st.text(), st.text())
def test_prompts_hold_the_texts_between_marks(prompt, first, second):
    text = comparing_prompt(prompt, first, second, "#mark#")
    assert first in text
    assert second in text
    assert prompt in grading_prompt(prompt, first, "#mark#")


def test_long_texts_keep_their_beginning_and_end():
    text = "a" * 30_000 + "b" * 30_000
    short = shortened(text)
    assert len(short) < 20_100
    assert short.startswith("a" * 10_000)
    assert short.endswith("b" * 10_000)


@given(st.floats(0.0, 1.0), st.integers(1, 200), st.integers(0, 2**32))
def test_the_sample_of_a_single_model_is_its_share_to_one_call(share, n, seed):
    sample = SystematicSample(share, random.Random(seed))
    taken = sum(sample.takes(0, "small") for _ in range(n))
    assert abs(taken - share * n) <= 1.0 + 1e-9


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.5, 1.0])
def test_rarely_chosen_models_are_judged_more_often_and_all_calls_in_their_share(share):
    rng, sample = random.Random(1), SystematicSample(share, random.Random(0))
    calls = [(rng.randrange(8), rng.choices("abcd", [0.8, 0.15, 0.045, 0.005])[0]) for _ in range(20_000)]
    taken = [sample.takes(*call) for call in calls]
    assert np.mean(taken) == pytest.approx(share, rel=0.02)
    of = [np.mean([took for took, (_, model) in zip(taken, calls, strict=True) if model == name]) for name in "abcd"]
    if 0.0 < share < 1.0:
        assert of == sorted(of)
        assert of[1] / of[0] == pytest.approx((0.8 / 0.15) ** 0.5, rel=0.1)
        assert of[3] >= 0.9 if share >= 0.2 else of[3] >= 10 * of[0]
    in_each = [np.mean([took for took, call in zip(taken, calls, strict=True) if call == (k, "a")]) for k in range(8)]
    assert np.std(in_each) < 0.01  # of each context the same


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.5, 1.0])
def test_most_calls_are_judged_at_the_start_of_a_horizon_and_in_all_their_share(share):
    n, at = 20_000, [0]
    rng, sample = random.Random(2), SystematicSample(share, random.Random(0), lambda: (at[0] % n) / n)
    taken = []
    for at[0] in range(3 * n):  # a second and a third window begin as the first one did
        taken.append(sample.takes(rng.randrange(4), rng.choices("ab", [0.9, 0.1])[0]))
    windows = np.array(taken).reshape(3, n)
    assert windows.mean(axis=1) == pytest.approx([share] * 3, rel=0.05)
    quarters = windows.reshape(3, 4, -1).mean(axis=2)
    assert (np.diff(quarters, axis=1) <= 0.01 * share).all()
    if 0.0 < share < 1.0:
        assert (windows[:, : n // 2].sum(axis=1) / windows.sum(axis=1) > 0.6).all()


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_where_the_models_change_hardly_more_than_the_share_is_judged(share):
    n, at = 2_000, [0]
    rng, sample = random.Random(3), SystematicSample(share, random.Random(0), lambda: at[0] / n)
    taken = 0
    for at[0] in range(n):
        taken += sample.takes(0, "a" if at[0] < n // 10 else rng.choice("abc"))
    assert taken == pytest.approx(share * n, rel=0.05)


@given(st.floats(0.0, 1.0))
def test_the_shares_of_a_horizon_add_up(share):
    steps = (np.arange(20_000) + 0.5) / 20_000
    taken = [share_at(share, passed) for passed in steps]
    assert np.mean(taken) == pytest.approx(share, abs=2e-3)
    assert taken == sorted(taken, reverse=True)
    assert 0.0 <= min(taken) <= max(taken) <= 1.0


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=20), st.floats(0.0, 1.0))
def test_the_level_makes_the_shares_add_up(calls, share):
    c = level(calls, share)
    assert sum(min(n, c * n**0.5) for n in calls) == pytest.approx(share * sum(calls))


def test_starts_are_random_and_strata_bounded():
    first = [SystematicSample(0.5, random.Random(seed)).takes(0, "a") for seed in range(200)]
    assert 70 < sum(first) < 130
    sample = SystematicSample(0.5, random.Random(0))
    for context in range(MOST_STRATA + 10):
        sample.takes(context, f"model {context}")
    assert len(sample._phase) == len(sample._calls) == MOST_STRATA
    with pytest.raises(InvalidInput, match="share must lie"):
        SystematicSample(-0.1, random.Random(0))
