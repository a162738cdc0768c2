import asyncio
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.errors import BudgetExhausted, InvalidInput
from wiserouter.evaluation.off_policy.judged_gain import judged_gain, mean_of_pairs
from wiserouter.evaluation.off_policy.observed_calls import ObservedCall, observed_calls
from wiserouter.evaluation.off_policy.shadow_judging import CallTexts, ShadowJudging, judge_calls, plan_judging
from wiserouter.evaluation.off_policy.would_be_verdicts import VerdictFile, WouldBeVerdict


def calls_of(n, differing=None):
    names = ["large" if differing is None or i < differing else "small" for i in range(n)]
    return [ObservedCall(f"d{i}", "", "small", name, 1.0, 3.0) for i, name in enumerate(names)]


def texts_of(calls):
    return {call.id: CallTexts(f"question {call.id}", "bad") for call in calls}


def judging(budget_usd=100.0, judge=None, answers=None, **terms):
    given = {"answer_usd": 3.0, "judge_usd": 1.0, "concurrency": 2, **terms}
    return ShadowJudging(answers or (lambda model, prompt: ("good", 2.0)), judge or better, budget_usd, **given)


def better(prompt, first, second):
    return {"score": {"good": "first", "bad": "second"}[first] if first != second else "tie", "cost_usd": 0.5}


class Purse:
    def __init__(self, left_usd):
        self.left_usd = left_usd

    async def pay(self, cost_usd, *, billed=False):
        if not billed and cost_usd > self.left_usd:
            raise BudgetExhausted(amount_usd=0.0, spent_usd=0.0, reserved_usd=0.0, needed_usd=cost_usd)
        self.left_usd -= cost_usd


def judged(terms, calls, path=None, left_usd=None):
    book, texts = VerdictFile(path), texts_of(calls)
    plan = plan_judging(terms, calls, texts, book)
    purse = Purse(plan.most_usd if left_usd is None else left_usd)
    asyncio.run(judge_calls(terms, plan.calls, texts, purse.pay, book))
    book.close()
    return plan, book


def test_the_better_answer_wins_in_either_order_and_its_cost_is_counted():
    orders = []

    def noted(prompt, first, second):
        orders.append(first)
        return better(prompt, first, second)

    plan, book = judged(judging(judge=noted), calls_of(40, 20))
    assert set(book.verdicts.values()) == {WouldBeVerdict(1.0, 2.0, 2.5)}
    assert (plan.observed, plan.differing, len(plan.calls), len(book.verdicts)) == (40, 20, 20, 20)
    assert 3 < orders.count("good") < 17
    assert book.spent_usd == 50.0


@settings(max_examples=30)
@given(st.floats(0.0, 50.0), st.floats(0.05, 1.0), st.integers(0, 5))
def test_the_sample_never_costs_more_than_the_budget(budget_usd, share, seed):
    calls = calls_of(12)
    plan = plan_judging(judging(budget_usd, share=share, seed=seed), calls, texts_of(calls), VerdictFile(None))
    assert plan.most_usd <= budget_usd
    assert len(plan.calls) == min(int(budget_usd // 4.0), -int(-share * 12 // 1))
    assert plan.expected_answers_usd == 3.0 * len(plan.calls)


def test_a_function_may_say_what_it_costs_at_most():
    class Asked:
        def __call__(self, *texts):
            return "good"

        def bound_usd(self, *texts):
            return 0.5 * len(texts)

    calls = calls_of(5)
    plan = plan_judging(ShadowJudging(Asked(), Asked(), 5.0), calls, texts_of(calls), VerdictFile(None))
    assert (len(plan.calls), plan.most_answers_usd, plan.most_judgements_usd) == (2, 2.0, 3.0)
    with pytest.raises(InvalidInput, match="must be bounded"):
        ShadowJudging(better, better, 5.0)
    with pytest.raises(InvalidInput, match="above 0 and at most 1"):
        judging(share=0.0)


def test_calls_without_texts_or_with_the_same_model_are_not_sampled():
    calls = calls_of(10, 6)
    known = {name: one for name, one in texts_of(calls).items() if name in {"d0", "d1", "d8"}}
    plan = plan_judging(judging(), calls, known, VerdictFile(None))
    assert (plan.observed, plan.differing, plan.readable) == (10, 6, 2)
    assert {call.id for call in plan.calls} == {"d0", "d1"}


def test_failures_are_paid_left_out_and_do_not_end_the_others():
    def answers(model, prompt):
        if prompt.endswith("d3"):
            raise ValueError(prompt)
        return "good"

    _, book = judged(judging(100.0, answers=answers), calls_of(5), left_usd=19.0)
    assert len(book.verdicts) == 4
    assert {one.answer_usd for one in book.verdicts.values()} == {None}
    assert book.spent_usd <= 19.0


def test_a_stopped_run_goes_on_and_pays_for_nothing_twice(tmp_path):
    path, calls = tmp_path / "verdicts.jsonl", calls_of(10)
    first, book = judged(judging(17.0), calls, path)
    assert (len(first.calls), book.spent_usd) == (4, 10.0)
    second, book = judged(judging(17.0), calls, path)
    assert (len(second.calls), second.most_usd, book.spent_usd) == (5, 4.0, 12.5)
    assert second.calls[:4] == first.calls
    with path.open("a") as file:
        file.write(json.dumps({"id": "d9", "begun_usd": 4.0}) + "\n")  # a run that was killed
    path.write_text(path.read_text(), encoding="utf-8-sig")  # an editor may add a byte order mark
    reopened = VerdictFile(path)
    reopened.close()
    assert reopened.spent_usd == 16.5
    assert "question" not in path.read_text()
    assert "good" not in path.read_text()


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"id": 1, "begun_usd": 1}', '{"id": "a", "preference": 2, "answer_usd": 0, "spent_usd": 0}', "{}"],
)
def test_another_file_of_verdicts_is_refused(tmp_path, line):
    path = tmp_path / "verdicts.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InvalidInput, match="verdicts of former runs"):
        VerdictFile(path)


def test_observed_calls_are_those_that_ended_and_were_not_acted_on():
    models = [{"name": "large", "expected_cost_usd": 3.0}]
    events = [
        event
        for i, acts in enumerate((True, False, False))
        for event in (
            {"event": "decision", "id": f"d{i}", "models": models},
            {"event": "shadow", "id": f"d{i}", "acts": acts, "would_be": "large", "call_id": f"c{i}"},
            {"event": "charge" if i < 2 else "release", "id": f"d{i}", "model": "small", "cost_usd": 1.0},
        )
    ]
    assert observed_calls(events) == [ObservedCall("d1", "c1", "small", "large", 1.0, 3.0)]


def test_the_interval_of_pairs_is_that_of_bonett_and_price():
    # f12 = 6, f21 = 1, n = 10, adjusted Wald with (f + 1) / (n + 2)
    values = np.array([1.0] * 6 + [-1.0] + [0.0] * 3)
    p12, p21 = 7 / 12, 2 / 12
    reach = 1.959964 * ((p12 + p21 - (p12 - p21) ** 2) / 12) ** 0.5
    found = mean_of_pairs(values)
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, p12 - p21 - reach, p12 - p21 + reach), abs=1e-5)


@pytest.mark.parametrize(("better", "worse", "differs"), [(0.3, 0.1, 0.5), (0.05, 0.0, 0.9), (0.6, 0.3, 0.2)])
def test_the_interval_covers_the_gain(better, worse, differs):
    rng, observed, judged_calls, replays = np.random.default_rng(0), 1_000, 80, 400
    call, held, held_usd = calls_of(1)[0], 0, 0
    for _ in range(replays):
        differing = int(rng.binomial(observed, differs))
        n = min(judged_calls, differing)
        values = rng.choice([1.0, 0.0, 0.5], size=n, p=[better, worse, 1 - better - worse])
        costs = rng.lognormal(0.0, 0.8, size=n)
        pairs = [(call, WouldBeVerdict(value, usd, 0.0)) for value, usd in zip(values, costs, strict=True)]
        found = judged_gain(pairs, differing, observed)
        held += found.reward.low <= differs * (better - worse) <= found.reward.high
        held_usd += found.cost_usd.low <= differs * (np.exp(0.32) - 1.0) <= found.cost_usd.high
    assert held / replays >= 0.925
    assert held_usd / replays >= 0.9


def test_without_a_verdict_there_is_no_gain():
    assert judged_gain([], 3, 10) is None
    one = judged_gain([(calls_of(1)[0], WouldBeVerdict(0.5, None, 0.0))], 3, 10)
    assert (one.judged, one.alike, one.reward.mean, one.cost_usd) == (1, 1.0, 0.0, None)
