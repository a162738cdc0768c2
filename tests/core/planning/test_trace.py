"""Why a model was excluded: each rule in its order, with the figures of a decision put together by hand."""

import math

import numpy as np
import pytest

from wiserouter import Contexts, Model
from wiserouter.budgets.funds import Funds
from wiserouter.planning.choice_inputs import ContextFigures
from wiserouter.planning.envelope import SKIP
from wiserouter.planning.limited_plan import LimitedPlan
from wiserouter.planning.policy import Choice
from wiserouter.planning.shift import Shift
from wiserouter.planning.trace import DecisionTrace, excluded_by, on_envelope
from wiserouter.pricing.pool import Pool

FIGURES = ContextFigures([0.2, 0.4, 0.9, 0.5], [1.0, 2.5, 3.0, 6.0], [9.0] * 4, [9.0] * 4, [0, 2])
MIX = ((0, 0.25), (2, 0.75))
RICH = Funds(100.0, 10)


def trace_of(*, mix=MIX, figures=FIGURES, rule="plan", price=0.3, floor_usd=1.0, limited=None, **terms):
    windows = terms.pop("windows", (None,) * 4)
    retired = terms.pop("retired", ())
    names = ("small", "middle", "large", "waste")
    models = [
        Model(name, max_input_tokens=window, retired=name in retired)
        for name, window in zip(names, windows, strict=True)
    ]
    choice = Choice(mix[0][0], mix[0][1], price, 1.0, 0.2, "actual", mix, figures, rule, floor_usd, limited)
    known = {"funds": RICH, "eligible": None, "input_tokens": None, "worst_usd": None, "room_usd": None} | terms
    return DecisionTrace(Pool(models), Contexts.single(), choice, **known)


def reasons(trace):
    return [excluded_by(trace, k) for k in range(4)]


def test_models_of_the_mix_are_not_excluded_and_the_envelope_shows_those_that_some_budget_uses():
    trace = trace_of()
    assert reasons(trace)[0] is reasons(trace)[2] is None
    assert [on_envelope(trace, k) for k in range(4)] == [True, False, True, False]
    assert not on_envelope(trace_of(figures=None), 0)


def test_models_off_the_envelope_are_dominated_by_a_model_or_by_a_mix():
    assert reasons(trace_of())[1:4:2] == [
        "dominated: not on the envelope, a mix of small and large scores no less at its cost",
        "dominated: not on the envelope, large costs no more and scores no less",
    ]
    cheap = FIGURES._replace(costs_usd=[1.0, 0.5, 3.0, 6.0], rewards=[0.2, 0.05, 0.9, 0.5])
    assert excluded_by(trace_of(figures=cheap), 1) == (
        "dominated: not on the envelope, a mix of skipping and small scores no less at its cost"
    )
    equal = FIGURES._replace(rewards=[0.2, 0.9, 0.9, 0.5], costs_usd=[1.0, 3.0, 3.0, 6.0])
    assert excluded_by(trace_of(figures=equal), 1).endswith("large costs no more and scores no less")
    other = FIGURES._replace(planned=[0.2, 0.95, 0.9, 0.5], costs_usd=[1.0, 3.0, 3.0, 6.0])
    assert excluded_by(trace_of(figures=other), 1).endswith("a mix of small and large scores no less at its cost")
    both = FIGURES._replace(envelope=[0, 1, 2], rewards=[0.2, 0.6, 0.9, 0.5])
    assert excluded_by(trace_of(figures=both), 1) is None  # on the envelope, but not at this rate
    assert excluded_by(trace_of(figures=both), 3).endswith("large costs no more and scores no less")


def test_models_that_may_not_answer_are_named_before_all_else():
    windows = (None, 100, 100, None)
    trace = trace_of(mix=((0, 1.0),), eligible={0}, windows=windows, input_tokens=150, retired=("middle",))
    assert reasons(trace) == [
        None,
        "retired",
        "context window: needs 150 tokens, window 100",
        "not in eligible",
    ]
    fits = trace_of(mix=((0, 1.0),), eligible={0}, windows=windows, input_tokens=100)
    assert reasons(fits)[1:3] == ["not in eligible"] * 2
    unknown = trace_of(mix=((0, 1.0),), eligible={0}, windows=windows)
    assert reasons(unknown)[1:3] == ["not in eligible"] * 2
    assert "dominated" in excluded_by(trace_of(eligible={0, 1, 2, 3}), 1)


def test_a_worst_case_beyond_the_room_of_a_hard_limit_is_named():
    trace = trace_of(mix=((0, 1.0),), worst_usd=[2.0, 4.0, 5.25, 9.0], room_usd=4.0)
    assert reasons(trace)[2:] == [
        "hard limit: worst case 5.25 exceeds what is left, 4",
        "hard limit: worst case 9 exceeds what is left, 4",
    ]
    assert "dominated" in reasons(trace)[1]
    assert "dominated" in excluded_by(trace_of(worst_usd=[9.0] * 4), 1)


def test_exploration_tries_what_was_tried_least():
    figures = ContextFigures([0.0] * 4, [0.0] * 4, [0.0] * 4, [0.0] * 4, [], invoked=[3.0, 2.0, 4.0, 2.0])
    trace = trace_of(mix=((1, 0.5), (3, 0.5)), figures=figures, rule="explore")
    assert excluded_by(trace, 0) == "exploring: tried 3 times here, others 2"
    assert excluded_by(trace, 1) is None


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("first", "no call was paid for yet: only the cheapest model is called"),
        ("cheapest", "budget used up: only the cheapest model goes on"),
        ("hold", "another model holds the run"),
    ],
)
def test_where_one_model_goes_on_the_others_are_excluded_by_that(rule, reason):
    assert reasons(trace_of(mix=((0, 1.0),), rule=rule)) == [None, reason, reason, reason]


def test_the_reserve_rule_shows_its_sum():
    guarded = FIGURES._replace(guarded_cost_usd=[1.5, 3.0, 3.5, 6.5, 0.0])
    tight = Funds(5.25, 3)
    trace = trace_of(mix=((0, 1.0),), figures=guarded, funds=tight)
    assert reasons(trace)[2:] == [
        "reserve rule: c > b - (tau - 1) c_min: 3.5 > 5.25 - 2 x 1 = 3.25",
        "reserve rule: c > b - (tau - 1) c_min: 6.5 > 5.25 - 2 x 1 = 3.25",
    ]
    assert "dominated" in reasons(trace)[1]
    held = trace_of(mix=((0, 1.0),), figures=guarded._replace(drift_margin_usd=0.5), funds=tight)
    left = 3.25 - 0.5 * math.sqrt(2)
    assert excluded_by(held, 2) == (f"reserve rule: c > b - (tau - 1) c_min, less what is held back: 3.5 > {left:.6g}")
    nested = trace_of(mix=((0, 1.0),), figures=guarded, funds=tight._replace(each=(tight, Funds(4.0, 2))))
    assert excluded_by(nested, 2) == "reserve rule: c > b - (tau - 1) c_min, less what is held back: 3.5 > 3"
    assert "dominated" in excluded_by(trace_of(figures=FIGURES, funds=tight), 1)


def test_a_query_of_its_own_compares_worths():
    trace = trace_of(mix=((2, 1.0),), price=0.25, shift=Shift(reward=np.array([0.0, 0.1, 0.0, 0.0])))
    assert trace.shifted
    own = trace.of_query()
    assert own.choice.figures.weighed == pytest.approx([0.2, 0.5, 0.9, 0.5])
    assert excluded_by(own, 1) == "worth no more to this query than large: -0.125, 0.15"
    assert excluded_by(own, 0) == "worth no more to this query than large: -0.05, 0.15"
    skipped = own._replace(choice=own.choice._replace(mix=((SKIP, 1.0),), shadow_price=0.5))
    assert excluded_by(skipped, 1) == "worth no more to this query than skipping: -0.75, 0"
    broke = own._replace(choice=own.choice._replace(mix=((0, 1.0),), shadow_price=math.inf))
    assert excluded_by(broke, 2) == "costs this query no less than small: 3, 1"
    for unshifted in (trace_of(), trace_of(rule="cheapest", shift=Shift()), trace_of(figures=None, shift=Shift())):
        assert not unshifted.shifted
        assert unshifted.of_query() is unshifted
    assert excluded_by(trace_of(mix=((0, 1.0),), figures=None, shift=Shift()), 1) is None


def test_under_limits_the_prices_that_count_are_named():
    def limited(*prices):
        zeros = (0.0,) * len(prices)
        names = ("budget", "latency_s", "min_quality")[: len(prices)]
        return LimitedPlan(np.zeros((1, 4)), np.zeros((1, 4)), 0.5, prices, zeros, zeros, names)

    trace = trace_of(limited=limited(0.25, 0.0, 1.5))
    assert excluded_by(trace, 1) == (
        "worth no more than small at the prices of budget and limits: budget 0.25, min_quality 1.5"
    )
    skipped = trace_of(limited=limited(0.0, 0.0), mix=((SKIP, 1.0),))
    assert excluded_by(skipped, 1) == "worth no more than skipping at the prices of budget and limits: all 0"
