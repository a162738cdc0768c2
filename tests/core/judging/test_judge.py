"""The judge in the loop: what is sampled, queued, paid, retried and learned; no request ever waits for it."""

import asyncio
import logging
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.judging.paid_questions import GIVEN_UP, MOST_GIVEN_UP
from wiserouter.judging.verdict import NoVerdict, Verdict
from wiserouter.testing import FakeClock

MODELS = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]
SECRET = "sk-secret-words"


def started(store="memory://", horizon=100_000):
    router = WiseRouter(MODELS, seed=0, store=store)
    router.start(Budget(1.0, horizon))
    return router


def served(router, judge, n=1, prompt="What is 2 + 2?", answer="4"):
    decisions = []
    for _ in range(n):
        decision = router.decide("hello")
        router.charge(decision, 1e-6)
        judge.offer(decision, prompt, answer)
        decisions.append(decision)
    return decisions


def judged(ask, n=1, *, router=None, **settings):
    """Return the router and the figures after `n` calls were offered, and judged."""
    router = router or started()
    judge = router.judge_with(
        ask, **{"share": 1.0, "pause_s": 0.0, "seed": 0, "weight": 1.0, "first_scores": 1, **settings}
    )
    try:
        served(router, judge, n)
        assert judge.flush(10.0)
        return router, router.status().judge
    finally:
        judge.close()


async def asked_later(prompt, answer):
    await asyncio.sleep(0)
    return {"score": float(answer == "4")}


def evaluator(*, inputs, outputs, reference_outputs=None):
    return {"key": "correctness", "score": outputs == "4", "comment": inputs, "metadata": None}


@pytest.mark.parametrize("ask", [lambda prompt, answer: float(answer == "4"), asked_later, evaluator])
def test_a_function_a_coroutine_and_an_evaluator_score_answers(ask):
    router, figures = judged(ask, 5)
    assert (figures.offered, figures.judged, figures.failed) == (5, 5, 0)
    assert (router.estimates.labels.sum(), router.estimates.reward.sum()) == (5.0, 5.0)


def test_a_share_of_the_calls_is_judged():
    router, figures = judged(lambda prompt, answer: 1.0, 400, router=started(horizon=400), share=0.25, held=0)
    assert figures.judged == router.estimates.labels.sum() == pytest.approx(0.25 * 400, abs=20)


def test_of_the_first_calls_of_a_horizon_more_are_judged():
    router = started(horizon=1_000)
    judge = router.judge_with(lambda prompt, answer: 1.0, share=0.2, held=0, seed=0)
    parts = []
    for _ in range(4):
        served(router, judge, 250)
        assert judge.flush()
        parts.append(judge.counts.judged)
    judge.close()
    assert parts[3] == pytest.approx(200, abs=25)
    assert parts[0] > 0.4 * parts[3]
    assert np.diff(parts).min() > 0.1 * 250 - 10


def test_the_first_scores_are_learned_together():
    router = started()
    judge = router.judge_with(lambda prompt, answer: 1.0, share=1.0, first_scores=5)
    served(router, judge, 4)
    assert judge.flush()
    assert router.estimates.labels.sum() == 0.0
    assert (router.status().judge.judged, router.status().judge.kept_back) == (4, 4)
    assert "4 kept back" in str(router.status())
    served(router, judge, 1)
    assert judge.flush()
    assert (router.estimates.labels.sum(), router.status().judge.kept_back) == (5.0, 0)
    served(router, judge, 1)  # from now on each is learned at once
    assert judge.flush()
    assert router.estimates.labels.sum() == 6.0
    router.stop_judging()
    again = router.judge_with(lambda prompt, answer: 1.0, share=1.0, first_scores=5)  # the same judge, known by now
    served(router, again, 1)
    assert again.flush()
    assert router.estimates.labels.sum() == 7.0
    again.close()


def test_scores_carry_their_source_and_weight(tmp_path):
    router = started()
    journal = router.journal_to(tmp_path / "decisions.jsonl")
    judged(lambda prompt, answer: 0.5, 1, router=router, name="mini", weight=0.25)
    assert journal.flush()
    text = (tmp_path / "decisions.jsonl").read_text()
    assert '"source": "judge:mini", "weight": 0.25' in text
    assert router.estimates.labels.sum() == 0.25


def test_texts_reach_the_judge_alone(tmp_path, caplog):
    router = started()
    journal = router.journal_to(tmp_path / "decisions.jsonl")
    caplog.set_level(logging.DEBUG)

    def fails(prompt, answer):
        raise ValueError(f"cannot judge {prompt}")

    judge = router.judge_with(fails, share=1.0, pause_s=0.0, first_scores=0)
    served(router, judge, 2, SECRET, SECRET)
    assert judge.flush()
    judge.close()
    assert journal.flush()
    assert router.status().judge.failed == 2
    assert SECRET not in caplog.text + (tmp_path / "decisions.jsonl").read_text() + str(router.status())


def test_a_full_queue_drops_calls_and_never_waits(caplog):
    router, gate = started(), threading.Event()

    def slow(prompt, answer):
        gate.wait(10.0)
        return 1.0

    judge = router.judge_with(slow, share=1.0, concurrency=2, max_waiting=3)
    served(router, judge, 20)
    figures = router.status().judge
    assert 20 - 5 <= figures.dropped <= 20 - 3
    assert figures.waiting <= 5
    gate.set()
    assert judge.flush()
    assert router.status().judge.judged == 20 - figures.dropped
    assert "cannot keep up" in caplog.text
    judge.close()


def test_at_most_so_many_judgements_at_once():
    under_way, most = 0, 0

    async def ask(prompt, answer):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return 1.0

    _, figures = judged(ask, 50, concurrency=3)
    assert (figures.judged, most) == (50, 3)


def test_a_failure_is_tried_again_and_nonsense_is_not():
    answers = iter([OSError(), OSError(), 1.0])
    asked = []

    def ask(prompt, answer):
        asked.append(prompt)
        one = next(answers, "nonsense")
        if isinstance(one, Exception):
            raise one
        return one

    _, figures = judged(ask, 1)
    assert (figures.judged, len(asked)) == (1, 3)
    _, figures = judged(ask, 4)
    assert (figures.judged, figures.failed, len(asked)) == (0, 4, 7)


@pytest.mark.parametrize(
    "result", [None, "", "good", 1.1, -0.1, float("nan"), {}, {"score": None}, [], [0.1, 0.2], object()]
)
def test_nonsense_is_never_a_score(result):
    router, figures = judged(lambda prompt, answer: result, 1)
    assert (figures.judged, figures.failed, router.estimates.labels.sum()) == (0, 1, 0.0)


def test_a_comparison_of_numpy_is_a_score():
    router, figures = judged(lambda prompt, answer: np.array([4])[0] == int(answer), 1)
    assert (figures.judged, router.estimates.reward.sum()) == (1, 1.0)


def test_a_slow_judge_is_given_up():
    async def ask(prompt, answer):
        await asyncio.sleep(60.0)

    _, figures = judged(ask, 2, timeout_s=0.01, attempts=2)
    assert figures.failed == 2


def test_a_judge_that_hangs_holds_a_bounded_number_of_threads_and_those_that_are_refused_cost_nothing():
    never = threading.Event()
    terms = {"timeout_s": 0.01, "attempts": 1, "concurrency": 1, "cost_usd": 0.001, "budget_usd": 1.0}
    try:
        _, figures = judged(lambda prompt, answer: never.wait(), MOST_GIVEN_UP + 10, **terms)
        hanging = [thread for thread in threading.enumerate() if thread.name == GIVEN_UP]
    finally:
        never.set()
    assert (len(hanging), figures.failed) == (MOST_GIVEN_UP, MOST_GIVEN_UP + 10)
    assert figures.spent_usd == pytest.approx(MOST_GIVEN_UP * 0.001)
    for thread in hanging:
        thread.join(10.0)
    assert judged(lambda prompt, answer: 1.0)[1].judged == 1


HANGING = """
import threading
from wiserouter import Budget, Model, Price, WiseRouter

asked, never = threading.Event(), threading.Event()

def grade(prompt, answer):
    asked.set()
    never.wait()

router = WiseRouter([Model("small", Price(1e-7, 4e-7))])
router.start(Budget(1.0, 10))
judge = router.judge_with(grade, share=1.0)
judge.offer(router.decide("hello"), "hello", "hi")
assert asked.wait(30)
"""


def test_a_program_ends_although_its_judge_hangs():
    subprocess.run([sys.executable, "-c", HANGING], check=True, timeout=60)


def test_its_budget_is_its_own_and_never_exceeded():
    router = started()
    before = router.status().spent_usd
    _, figures = judged(lambda prompt, answer: {"score": 1.0, "cost_usd": 0.01}, 40, router=router,
                        budget_usd=0.1, cost_usd=0.02, concurrency=1)  # fmt: skip
    account = router.status("judge:default")
    assert (figures.judged, figures.unpaid) == (9, 31)  # the last cent does not cover a bound of two
    assert account.spent_usd == pytest.approx(figures.spent_usd) == pytest.approx(0.09)
    assert router.status().spent_usd - before == pytest.approx(40e-6)


def test_a_budget_that_is_used_up_before_the_first_scores_are_learned_is_warned_of(caplog):
    def ask(prompt, answer):
        return {"score": 1.0, "cost_usd": 0.01}

    terms = {"budget_usd": 0.05, "cost_usd": 0.01, "concurrency": 1}
    judged(ask, 10, **terms, first_scores=6)
    judged(ask, 10, **terms, first_scores=5)
    told = [line for line in caplog.messages if "used up its budget" in line]
    assert [line.partition(": further calls are not judged")[2] for line in told] == [
        ", and 5 scores are not learned, fewer than first_scores=6: give it a larger budget, or smaller first_scores",
        "",
    ]


def test_a_budget_that_is_smaller_than_the_bound_of_one_judgement_is_warned_of(caplog):
    _, figures = judged(lambda prompt, answer: 1.0, 3, budget_usd=0.05, cost_usd=0.1)
    assert (figures.judged, figures.unpaid, figures.spent_usd) == (0, 3, 0.0)
    (line,) = [line for line in caplog.messages if "budget" in line]
    assert line.startswith("a judgement by judge:default may cost $0.100, more than its whole budget of $0.05, ")


def test_what_a_judgement_costs_beyond_its_bound_is_in_the_account_even_beyond_its_budget(caplog):
    router = started()
    _, figures = judged(lambda prompt, answer: {"score": 1.0, "cost_usd": 0.05}, 5, router=router,
                        budget_usd=0.04, cost_usd=0.02, concurrency=1)  # fmt: skip
    assert (figures.judged, figures.unpaid) == (1, 4)
    assert router.status("judge:default").spent_usd == pytest.approx(figures.spent_usd) == pytest.approx(0.05)
    assert "more than its bound" in caplog.text


def test_a_failed_question_costs_its_bound_unless_its_cost_is_known():
    router = started()

    def ask(prompt, answer):
        raise NoVerdict("unreadable", cost_usd=0.001) if len(costs) else OSError

    costs = []
    _, figures = judged(ask, 1, router=router, budget_usd=1.0, cost_usd=0.02, attempts=2)
    assert figures.spent_usd == pytest.approx(0.04)
    router.stop_judging()
    costs.append(1)
    _, figures = judged(ask, 1, router=router, budget_usd=1.0, cost_usd=0.02, attempts=2)
    assert figures.spent_usd == pytest.approx(0.001)
    assert router.status("judge:default").spent_usd == pytest.approx(0.001)


class Costed(Exception):
    def __init__(self, cost_usd):
        self.cost_usd = cost_usd


@pytest.mark.parametrize("cost_usd", [float("nan"), float("inf"), -5.0, "0.01"])
def test_a_cost_of_a_failure_that_is_no_amount_is_not_believed(cost_usd):
    router = started()

    def ask(prompt, answer):
        raise Costed(cost_usd)

    _, figures = judged(ask, 3, router=router, budget_usd=0.05, cost_usd=0.02, attempts=1)
    assert (figures.failed, figures.unpaid) == (2, 1)
    assert router.status("judge:default").spent_usd == pytest.approx(figures.spent_usd) == pytest.approx(0.04)


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, StopIteration])
def test_a_judge_that_ends_itself_has_failed_and_is_asked_again(error):
    def ask(prompt, answer):
        if next(failures, None) is not None:  # one step, also where two threads ask
            raise error
        return 1.0

    async def ask_later(prompt, answer):
        return ask(prompt, answer)

    for each in (ask, ask_later):
        failures = iter(range(6))
        _, figures = judged(each, 10, attempts=1, concurrency=2)
        assert (figures.failed, figures.judged, figures.waiting) == (6, 4, 0)


def test_its_budget_renews():
    from wiserouter import MemoryStore

    clock = FakeClock(0.0)
    router = WiseRouter(MODELS, seed=0, store=MemoryStore(clock))
    router.start(Budget(1.0, 1_000))
    judge = router.judge_with(lambda prompt, answer: 1.0, share=1.0, budget_usd=0.05, every="day", cost_usd=0.01)
    served(router, judge, 10)
    assert judge.flush()
    assert (judge.counts.judged, judge.counts.unpaid) == (5, 5)
    clock.advance(86_400.0)
    served(router, judge, 10)
    assert judge.flush()
    assert (judge.counts.judged, judge.counts.unpaid) == (10, 10)
    judge.close()


def test_workers_share_its_budget(tmp_path):
    url = f"sqlite:///{tmp_path / 'budget.db'}"
    routers = [started(url) for _ in range(2)]
    judges = [
        router.judge_with(lambda prompt, answer: 1.0, share=1.0, budget_usd=0.1, cost_usd=0.01) for router in routers
    ]
    for router, judge in zip(routers, judges, strict=True):
        served(router, judge, 8)
        assert judge.flush()
    assert sum(judge.counts.judged for judge in judges) == 10
    assert routers[1].status("judge:default").spent_usd == pytest.approx(0.1)
    for router, judge in zip(routers, judges, strict=True):
        judge.close()
        router.close()


def test_blind_pairs_are_unswapped():
    """A judge that prefers the text "4", and one that always prefers the first answer, of random order."""
    seen = []

    def better(prompt, first, second):
        seen.append((first, second))
        return "first" if first == "4" else "second"

    router, figures = judged(better, 100, incumbent=lambda prompt: "5")
    assert figures.judged == router.estimates.reward.sum() == 100.0
    assert 30 < seen.count(("4", "5")) < 70
    router, _ = judged(lambda prompt, first, second: "first", 100, incumbent=lambda prompt: ("5", 0.0))
    assert 30 < router.estimates.reward.sum() < 70
    router, _ = judged(lambda prompt, first, second: "tie", 10, incumbent=lambda prompt: "5")
    assert router.estimates.reward.sum() == 5.0


def test_calls_that_people_score_are_judged_too():
    router = started()
    judge = router.judge_with(lambda prompt, answer: 0.75, share=0.0, held=2, first_scores=0)
    old, *new = served(router, judge, 3)
    for decision in (old, *new):
        router.reward(decision, 1.0)
    assert judge.flush()
    figures = router.status().judge
    assert (figures.judged, figures.pairs, figures.agreement) == (2, 2, 0.75)
    assert (router.estimates.labels.sum(), router.estimates.reward.sum()) == (3.0, 3.0)
    judge.close()


def test_it_may_end_in_its_own_thread():
    router, ended = started(), []

    async def ask(prompt, answer):
        judge._stops()  # as where the thread collects it
        ended.append(threading.current_thread())
        return 1.0

    judge = router.judge_with(ask, share=1.0)
    served(router, judge, 1)
    deadline = time.monotonic() + 10.0
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    ended[0].join(10.0)
    assert not ended[0].is_alive()


def test_it_runs_on_the_callers_event_loop_and_stops_cleanly():
    async def main():
        router, threads = started(), set()

        async def ask(prompt, answer):
            threads.add(threading.get_ident())
            return 1.0

        judge = router.judge_with(ask, share=1.0)
        judge.run_on(asyncio.get_running_loop())
        served(router, judge, 10)
        assert await judge.aflush()
        assert threads == {threading.get_ident()}
        slow = asyncio.Event()

        async def never(prompt, answer):
            slow.set()
            await asyncio.sleep(60.0)

        router.stop_judging()
        judge = router.judge_with(never, share=1.0)
        judge.run_on(asyncio.get_running_loop())
        served(router, judge, 10)
        await slow.wait()
        judge.close()
        await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) == 1
        assert not judge.offer(router.decide("hello"), "p", "a")

    asyncio.run(main())


def test_calls_under_way_are_counted_when_it_moves_to_the_callers_event_loop():
    async def main():
        router, under_way, most = started(), set(), []
        goes_on = threading.Event()

        def ask(prompt, answer):
            under_way.add(threading.get_ident())
            most.append(len(under_way))
            goes_on.wait(30.0)
            under_way.discard(threading.get_ident())
            return 1.0

        judge = router.judge_with(ask, share=1.0, concurrency=2)
        served(router, judge, 2)
        while len(most) < 2:
            await asyncio.sleep(0.001)
        judge.run_on(asyncio.get_running_loop())
        served(router, judge, 2)
        await asyncio.sleep(0.01)
        assert (judge.waits(), max(most)) == (4, 2)
        goes_on.set()
        assert await judge.aflush(30.0)
        assert (judge.waits(), judge.counts.judged) == (0, 4)
        judge.close()

    asyncio.run(main())


def test_it_goes_on_where_its_event_loop_stays_open_and_runs_no_more():
    async def ask(prompt, answer):
        await asyncio.sleep(0.0 if goes_on else 60.0)
        return 1.0

    async def serve(n):
        judge.run_on(asyncio.get_running_loop())
        served(router, judge, n)
        await asyncio.sleep(0.01)
        return await judge.aflush(30.0) if goes_on else True

    router, goes_on = started(), []
    judge = router.judge_with(ask, share=1.0, concurrency=2)
    first = asyncio.new_event_loop()
    first.run_until_complete(serve(2))
    goes_on.append(True)
    assert asyncio.run(serve(3))
    assert judge.counts.judged == 3
    for task in asyncio.all_tasks(first):
        task.cancel()
    first.run_until_complete(asyncio.sleep(0.0))
    first.close()
    judge.close()


def test_it_goes_on_after_its_event_loop_has_ended():
    router = started()
    judge = router.judge_with(lambda prompt, answer: 1.0, share=1.0)

    async def one():
        judge.run_on(asyncio.get_running_loop())
        served(router, judge)
        assert await judge.aflush()

    asyncio.run(one())
    asyncio.run(one())
    served(router, judge)
    assert judge.flush()
    assert judge.counts.judged == 3
    judge.close()


def test_a_text_may_be_made_in_the_background():
    router = started(horizon=10)
    judge = router.judge_with(lambda prompt, answer: float(prompt + answer == "pa"), share=0.5, held=0, seed=0)
    made = []
    served(router, judge, 10, lambda: made.append(1) or "p", lambda: "a")
    assert judge.flush()
    assert 4 <= len(made) == judge.counts.judged <= 6
    judge.close()


def test_calls_without_a_context_and_released_ones_are_not_scored():
    router = started()
    judge = router.judge_with(lambda prompt, answer: 1.0, share=1.0)
    assert not judge.offer(router.decide("hello")._replace(context=-1), "p", "a")
    decision = router.decide("hello")
    router.release(decision)
    judge.offer(decision, "p", "a")
    assert judge.flush()
    assert router.estimates.labels.sum() == 0.0
    judge.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"share": 1.5}, "share must lie"),
        ({"name": "two words"}, "source must be"),
        ({"budget_usd": 1.0}, "needs cost_usd"),
        ({"every": "day"}, "every needs budget_usd"),
        ({"timeout_s": 0.0}, "timeout_s must be above 0"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"weight": 2.0}, "weight must lie"),
    ],
)
def test_settings_out_of_range_are_refused(settings, says):
    router = started()
    with pytest.raises(InvalidInput, match=says):
        router.judge_with(lambda prompt, answer: 1.0, **settings)
    assert router.judge is None


def test_a_router_has_one_judge():
    router = started()
    judge = router.judge_with(lambda prompt, answer: Verdict(1.0))
    with pytest.raises(InvalidInput, match="one judge"):
        router.judge_with(lambda prompt, answer: 1.0)
    judge.close()
