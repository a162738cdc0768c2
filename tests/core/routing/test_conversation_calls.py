"""Calls of runs and conversations in a router with a store in memory: models, counts, costs and budgets."""

from contextlib import suppress
from threading import Barrier, Thread

import numpy as np
import pytest

from support.run_router import LARGE, RUN_USD, SMALL, Clock, fitted, serve, usage
from wiserouter import (
    NO_CONTEXT,
    Budget,
    Contexts,
    Conversations,
    Estimates,
    Growing,
    Model,
    Offline,
    Price,
    Usage,
    WiseRouter,
)
from wiserouter.cli.explain import _show as show
from wiserouter.errors import BudgetExhausted, InvalidInput, QuerySkipped, RunBudgetExhausted
from wiserouter.evaluation.off_policy.logged_decisions import read_decisions
from wiserouter.routing.journal_reader import JournalReader, find_explanation
from wiserouter.stores import MemoryStore


def test_a_run_is_one_decision_of_the_horizon_and_keeps_its_model():
    router = fitted()
    decisions = serve(router, "run-1", 8)
    assert {decision.model for decision in decisions} == {"large"}
    assert [decision.visit for decision in decisions] == ["first", *["stay"] * 7]
    assert {decision.run_id for decision in decisions} == {decisions[0].id}
    status = router.status()
    assert (status.decided, status.horizon_left, status.charged) == (1, 99, 8)
    assert [router.explain(one).rule for one in decisions[:2]] == ["plan", "hold"]


def test_where_the_plan_mixes_two_models_each_run_keeps_its_own():
    router = fitted(budget=Budget(5.5, horizon=100))
    models = [{one.model for one in serve(router, f"run-{i}", 4)} for i in range(40)]
    assert all(len(one) == 1 for one in models)
    assert {next(iter(one)) for one in models} == {"small", "large"}


def test_the_cost_of_a_run_is_learned_once_as_the_sum_of_its_calls():
    router = fitted()
    before = router.estimates.copy()
    decisions = serve(router, "run-1", 5)
    spent_usd = router.status().spent_usd
    assert router.estimates.calls[0, 1] == before.calls[0, 1] + 1
    router.end("run-1")
    assert router.estimates.calls[0, 1] == before.calls[0, 1] + 1
    assert router.estimates.cost[0, 1] - before.cost[0, 1] == pytest.approx(spent_usd, rel=1e-12)
    assert router.estimates.cost_sq[0, 1] - before.cost_sq[0, 1] == pytest.approx(spent_usd**2, rel=1e-9)
    assert router.estimates.invoked[0, 1] == 1
    assert len(decisions) == 5


def test_a_run_that_changed_its_model_counts_at_what_the_first_was_expected_to_cost():
    router = fitted()
    before = router.estimates.copy()
    serve(router, "run-1", 2)
    expected_usd = router.estimates.cost[0, 1] - before.cost[0, 1]
    router.release(router.decide("fix the bug", conversation="run-1"))
    assert {one.model for one in serve(router, "run-1", 30, first=2)} == {"small"}
    router.end("run-1")
    assert router.estimates.cost[0, 1] - before.cost[0, 1] == pytest.approx(expected_usd, rel=1e-12)
    assert router.estimates.calls[0].tolist() == [50, 51]
    assert router.estimates.cost[0, 0] == before.cost[0, 0]


def test_a_run_whose_first_model_never_answered_counts_for_the_second():
    router = fitted()
    before = router.estimates.copy()
    router.release(router.decide("fix the bug", conversation="run-1"))
    serve(router, "run-1", 3)
    router.end("run-1")
    assert router.estimates.calls[0].tolist() == [51, 50]
    spent_usd = router.status().spent_usd
    assert router.estimates.cost[0, 0] - before.cost[0, 0] == pytest.approx(spent_usd, rel=1e-12)


def test_a_run_whose_first_call_a_fallback_answered_counts_for_that_model():
    router = fitted()
    before = router.estimates.copy()
    decision = router.decide("fix the bug", conversation="run-1")
    router.charge(decision, usage=usage(0), model="small")
    assert {one.model for one in serve(router, "run-1", 2, first=1)} == {"small"}
    router.end("run-1")
    assert router.estimates.calls[0].tolist() == [51, 50]
    spent_usd = router.status().spent_usd
    assert router.estimates.cost[0, 0] - before.cost[0, 0] == pytest.approx(spent_usd, rel=1e-12)


def test_a_run_in_progress_counts_at_its_full_expected_cost():
    router = fitted()
    router.charge(router.decide("fix the bug", conversation="run-1"), usage=usage(0))
    booked_usd = router.estimates.cost[0, 1] - 50 * RUN_USD[1]
    assert booked_usd == pytest.approx(RUN_USD[1], rel=0.05)
    assert booked_usd > 5 * router.status().spent_usd
    assert router.snapshot().committed_usd == pytest.approx(booked_usd - router.status().spent_usd)


def test_open_runs_are_committed_so_that_the_plan_does_not_spend_their_money_twice():
    router = fitted(budget=Budget(10.0, horizon=100))
    rates = [router.decide("fix the bug", conversation=f"run-{i}").rate_usd for i in range(50)]
    assert max(rates) / min(rates) < 1.15
    for i in range(50):
        router.end(f"run-{i}")
    assert router.snapshot().committed_usd == 0.0


def test_a_failed_call_sends_the_run_to_another_model_which_then_keeps_it():
    router = fitted()
    serve(router, "run-1", 2)
    router.release(router.decide("fix the bug", conversation="run-1"))
    decisions = serve(router, "run-1", 3, first=2)
    assert {one.model for one in decisions} == {"small"}
    assert router.status().decided == 1


def test_a_first_call_that_failed_does_not_use_up_the_horizon():
    router = fitted()
    router.release(router.decide("fix the bug", conversation="run-1"))
    assert router.status().decided == 0
    again = router.decide("fix the bug", conversation="run-1")
    assert (again.model, again.run_id, router.status().decided) == ("small", again.id, 1)


def test_a_run_whose_model_may_not_take_a_call_is_decided_again():
    router = fitted()
    serve(router, "run-1", 1)
    other = router.decide("fix the bug", conversation="run-1", eligible=["small"])
    assert (other.model, other.visit) == ("small", "first")
    assert router.decide("fix the bug", conversation="run-1").model == "small"


def test_ids_of_different_callers_and_scopes_are_different_runs():
    router = fitted()
    router.start(Budget(1.0, horizon=10), scope="team")
    keys = {
        router.decide("fix", conversation="run-1").conversation,
        router.decide("fix", conversation="run-1", caller="b").conversation,
        router.decide("fix", conversation="run-1", scope="team").conversation,
    }
    assert len(keys) == 3
    assert not any("run-1" in key for key in keys)


def test_the_budget_of_a_run_ends_a_runaway_loop():
    router = fitted(run_budget_usd=0.05)
    with pytest.raises(RunBudgetExhausted) as refused:
        serve(router, "run-1", 100)
    state = router.conversation("run-1")
    assert state.spent_usd <= 0.05
    assert refused.value.amount_usd == 0.05
    assert serve(router, "run-2", 3)  # other runs go on


def test_a_part_of_a_run_draws_on_the_budget_of_the_whole():
    router = fitted(run_budget_usd=0.05)
    serve(router, "agent", 2)
    spent_usd = router.conversation("agent").spent_usd
    with pytest.raises(RunBudgetExhausted):
        for call in range(100):
            tokens = usage(call).input_tokens
            part = router.decide("look it up", conversation="helper", parent="agent", input_tokens=tokens)
            router.charge(part, usage=usage(call))
    assert spent_usd + router.conversation("helper").spent_usd <= 0.05
    with pytest.raises(RunBudgetExhausted):
        router.decide("look it up", conversation="helper-of-helper", parent="helper", input_tokens=100_000)


def test_a_part_that_was_refused_has_parts_that_draw_on_the_same_budget():
    router = fitted(run_budget_usd=0.05)
    with pytest.raises(RunBudgetExhausted):
        serve(router, "agent", 100)
    for part, parent in (("helper", "agent"), ("helper-of-helper", "helper"), ("last", "helper-of-helper")):
        with pytest.raises(RunBudgetExhausted):
            router.decide("look it up", conversation=part, parent=parent, input_tokens=100_000)
    router.end("agent")
    assert serve(router, "helper", 1)[0].visit == "first"


def test_a_part_that_has_ended_has_parts_that_draw_on_the_same_budget():
    router = fitted(run_budget_usd=0.05)
    serve(router, "agent", 2)
    part = router.decide("look it up", conversation="helper", parent="agent", input_tokens=1_000)
    router.charge(part, usage=usage(0))
    router.end("helper")
    with pytest.raises(RunBudgetExhausted):
        serve(router, "agent", 100)
    with pytest.raises(RunBudgetExhausted):
        router.decide("look it up", conversation="helper-of-helper", parent="helper", input_tokens=100_000)
    assert router.decide("look it up", conversation="another", parent="unknown", input_tokens=1_000).visit == "first"


def test_calls_of_one_run_at_once_share_one_model_and_one_budget():
    router = fitted(budget=Budget(5.5, horizon=100), run_budget_usd=0.2)
    for run in range(10):
        barrier, found = Barrier(8), []

        def call(run=run, barrier=barrier, found=found):
            barrier.wait()
            try:
                found.append(router.decide("fix the bug", conversation=f"run-{run}", worst_case_usd=WORST_USD))
            except BudgetExhausted:
                found.append(None)

        threads = [Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        served = [decision for decision in found if decision is not None]
        assert len({decision.model for decision in served}) == 1
        assert len({decision.run_id for decision in served}) == 1
        assert len(served) == 8
    assert router.status().decided == 10


def test_calls_of_one_run_at_once_cannot_both_take_the_rest_of_its_budget():
    router = fitted(run_budget_usd=0.05)
    barrier, found = Barrier(8), []

    def call():
        barrier.wait()
        try:
            found.append(router.decide("fix the bug", conversation="run-1", worst_case_usd=WORST_USD).reserved_usd)
        except RunBudgetExhausted:
            found.append(0.0)

    threads = [Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.04 <= sum(found) <= 0.05 + 1e-12
    assert found.count(0.0) >= 3


WORST_USD = {"small": 0.01, "large": 0.02}


def test_a_run_is_over_after_its_time_to_live_and_then_its_length_is_known():
    clock = Clock()
    router = fitted(clock=clock, ttl_s=60.0)
    first = serve(router, "run-1", 3)[0]
    clock.now_s += 59.0
    assert router.decide("fix the bug", conversation="run-1").run_id == first.id
    clock.now_s += 61.0
    assert router.decide("fix the bug", conversation="run-1").run_id != first.id
    assert router.status().conversations.ended == 1


def test_the_budget_of_a_silent_run_goes_on_with_its_parts_until_the_run_is_ended():
    clock = Clock()
    router = fitted(clock=clock, ttl_s=60.0, run_budget_usd=0.05)
    router.release(router.decide("fix the bug", conversation="agent"))
    held_usd = []
    with pytest.raises(RunBudgetExhausted):
        for _ in range(100):
            clock.now_s += 40.0
            part = router.decide("look it up", conversation="helper", parent="agent", input_tokens=2_000)
            router.charge(part, part.reserved_usd)
            held_usd.append(part.reserved_usd)
    with pytest.raises(RunBudgetExhausted):
        router.decide("fix the bug", conversation="agent", input_tokens=100_000)
    assert 0.04 < sum(held_usd) <= 0.05 + 1e-12
    assert len(held_usd) > 3
    router.end("agent")
    assert router.decide("fix the bug", conversation="agent", input_tokens=2_000).reserved_usd > 0.0


def test_a_silent_run_ends_with_the_next_decision_of_any_other():
    clock = Clock()
    router = fitted(clock=clock, ttl_s=60.0)
    serve(router, "run-1", 3)
    clock.now_s += 61.0
    router.decide("fix the bug", conversation="run-2")
    assert router.status().conversations.ended == 1


def test_a_turn_without_text_goes_on_in_the_context_of_its_conversation():
    estimates = Estimates(2, 2)
    rewards = np.array([[0.9, 0.2], [0.2, 0.9]])
    estimates.add_table(np.arange(2), rewards, np.tile((0.01, 0.01), (2, 1)))
    router = WiseRouter(
        [SMALL, LARGE],
        Contexts([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5]),
        policy=Offline(),
        estimates=estimates,
        conversations=Conversations(),
        seed=0,
    )
    router.start(Budget(100.0, horizon=100))
    assert router.decide(embedding=[0.0, 1.0], conversation="chat").context == 1
    assert router.decide(conversation="chat").context == 1
    with pytest.raises(InvalidInput, match="text or embedding"):
        router.decide(conversation="other")


def test_a_short_answer_goes_on_in_the_context_of_its_conversation():
    estimates = Estimates(2, 2)
    estimates.add_table(np.arange(2), np.full((2, 2), 0.5), np.tile((0.01, 0.01), (2, 1)))
    router = WiseRouter(
        [SMALL, LARGE],
        Contexts([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5]),
        encoder=lambda texts: np.array([[0.0, 1.0] if "parser" in text else [1.0, 0.0] for text in texts]),
        policy=Offline(),
        estimates=estimates,
        conversations=Conversations(),
        seed=0,
    )
    router.start(Budget(100.0, horizon=100))
    turns = ["fix the parser", "yes, go on", "write a poem", "ok"]
    assert [router.decide(turn, conversation="chat").context for turn in turns] == [1, 1, 0, 0]
    assert router.decide("yes, go on", conversation="other").context == 0
    assert router.decide("yes, go on", conversation="chat", embedding=[0.0, 1.0]).context == 1
    with pytest.raises(InvalidInput, match="text must be a string"):
        router.decide(5, conversation="chat")


def test_a_warm_model_is_kept_where_switching_costs_more_than_it_gains():
    models = [Model(name, Price(p, 4 * p, cache_read=p / 10)) for name, p in (("plain", 2e-6), ("better", 3e-6))]
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(50, dtype=np.int64), np.tile((0.55, 0.6), (50, 1)), np.tile((0.0066, 0.0099), (50, 1)))
    switches = {}
    for unit in ("call", "conversation"):
        clock = Clock()
        settings = None if unit == "call" else Conversations()
        router = WiseRouter(
            models,
            policy=Offline(),
            estimates=estimates.copy(),
            conversations=settings,
            store=MemoryStore(clock),
            seed=0,
        )
        router.start(Budget(0.83, horizon=100))  # the plan mixes both
        named, warm, chosen = {} if settings is None else {"conversation": "chat"}, {}, []
        for turn in range(20):
            prompt = 20_000 + 1_000 * turn
            decision = router.decide("go on", input_tokens=prompt, **named)
            chosen.append(decision.model)
            router.charge(decision, usage=Usage(prompt, 100, cache_read_tokens=warm.get(decision.model, 0)))
            warm[decision.model] = prompt
            clock.now_s += 30.0
        switches[unit] = sum(a != b for a, b in zip(chosen[1:], chosen, strict=False))
    assert switches["conversation"] <= 1 < switches["call"]
    figures = router.status().conversations
    assert figures.stays >= 18
    assert figures.charged_usd < 0.5 * figures.never_stay_usd


def test_each_turn_of_a_conversation_uses_one_request_of_the_horizon():
    router = fitted("conversation")
    serve(router, "chat", 6)
    assert (router.status().decided, router.status().horizon_left) == (6, 94)
    assert router.estimates.calls.sum() == 106


def test_a_conversation_needs_a_router_that_keeps_conversations():
    router = WiseRouter([SMALL, LARGE])
    router.start(Budget(1.0, horizon=10))
    with pytest.raises(InvalidInput, match="conversations=Conversations"):
        router.decide("hi", conversation="run-1")
    with pytest.raises(InvalidInput, match="conversations=Conversations"):
        router.end("run-1")


def test_calls_without_a_conversation_are_decided_alone():
    router, plain = fitted(), fitted()
    plain._calls = None
    assert [router.decide("a").model for _ in range(20)] == [plain.decide("a").model for _ in range(20)]


def test_a_bill_that_comes_after_the_end_still_counts():
    router = fitted()
    decision = router.decide("fix the bug", conversation="run-1")
    router.end("run-1")
    router.charge(decision, usage=usage(0))
    assert router.status().charged == 1


async def test_the_steps_of_a_call_have_asynchronous_forms():
    router = fitted()
    first = await router.adecide("fix the bug", conversation="run-1")
    await router.acharge(first, usage=usage(0))
    second = await router.adecide("fix the bug", conversation="run-1")
    assert second.run_id == first.id
    await router.arelease(second)
    await router.areward(second, 0.5)
    assert router.estimates.labels[0, 1] == 51


def test_an_explanation_says_to_which_run_a_call_belongs_and_which_model_holds_it():
    router = fitted()
    first, second = serve(router, "run-1", 2)
    told = router.explain(second)
    assert (told.visit, told.run_id, told.conversation) == ("stay", first.id, first.conversation)
    assert {model.name: model.excluded_by for model in told.models} == {
        "small": "another model holds the run",
        "large": None,
    }


def test_a_journal_and_the_command_that_explains_have_the_run(tmp_path, capsys):
    router = fitted()
    kept = router.journal_to(tmp_path / "d.jsonl")
    first, second = serve(router, "run-1", 2)
    kept.close()
    found = find_explanation(JournalReader(tmp_path / "d.jsonl"), second.id)
    assert (found["rule"], found["visit"], found["run_id"]) == ("hold", "stay", first.id)
    show(found)
    printed = capsys.readouterr().out
    assert "the run goes on with the model that holds it" in printed
    assert f"run {first.id}: the model of the call before stays" in " ".join(printed.split())


def test_off_policy_evaluation_takes_a_run_for_one_decision(tmp_path):
    router = fitted()
    kept = router.journal_to(tmp_path / "d.jsonl")
    runs = [serve(router, f"run-{i}", 3) for i in range(4)]
    router.reward(runs[0][2], 1.0)
    kept.close()
    read = read_decisions(JournalReader(tmp_path / "d.jsonl"))
    assert read.n == 4
    costs = [router.conversation(f"run-{i}").spent_usd for i in range(4)]
    np.testing.assert_allclose(read.cost_usd, costs, rtol=1e-12)
    np.testing.assert_array_equal(read.reward, [1.0, np.nan, np.nan, np.nan])


def test_a_call_without_an_answer_keeps_its_model_unless_that_failed():
    router = fitted()
    held = serve(router, "run", 2)[0].model
    router.presume(router.decide("on", conversation="run"), failed=False)
    assert router.decide("on", conversation="run").model == held
    router.release(router.decide("on", conversation="run"), failed=False)
    assert router.decide("on", conversation="run").model == held
    router.presume(router.decide("on", conversation="run"))
    assert router.decide("on", conversation="run").model != held


def test_a_first_call_that_was_never_sent_is_decided_again():
    router = fitted()
    first = router.decide("fix the bug", conversation="run")
    router.release(first, failed=False)
    second = router.decide("fix the bug", conversation="run")
    assert (second.model, second.run_id) == (first.model, second.id)
    assert router.status().decided == 1


def test_the_state_of_a_conversation_has_the_share_of_its_prompts_that_was_cached():
    router = fitted("conversation")
    serve(router, "chat", 3)
    state = router.conversation("chat")
    assert (state.sent_tokens, state.read_tokens) == (2_000 + 3_000 + 4_000, 2_000 + 3_000)


def test_a_turn_that_could_not_be_assigned_goes_on_in_the_context_of_its_conversation():
    contexts = Contexts([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])
    estimates = Estimates(2, 2)
    estimates.add_table(np.array([0, 1]), np.tile((0.2, 0.9), (2, 1)), np.tile(RUN_USD, (2, 1)))
    router = WiseRouter([SMALL, LARGE], contexts, estimates=estimates, conversations=Conversations(), seed=0)
    router.start(Budget(100.0, horizon=100))
    assert router.decide(context=NO_CONTEXT, conversation="chat").context == NO_CONTEXT
    assert router.decide(context=1, conversation="chat").context == 1
    assert router.decide(context=NO_CONTEXT, conversation="chat").context == 1


def test_a_skipped_query_leaves_its_run_to_the_next_call():
    router = fitted(policy=Offline(allow_skip=True), budget=Budget(0.5, horizon=100))  # half of what all need
    with pytest.raises(QuerySkipped):
        while True:
            router.charge(router.decide("hi", conversation="run"), 0.01)
            router.end("run")
    assert router.conversation("run") is None
    served = None
    while served is None:
        with suppress(QuerySkipped):
            served = router.decide("hi", conversation="run")
    assert served.run_id == served.id
    calls = router.estimates.calls.sum()
    router.charge(served, 0.01)
    assert router.estimates.calls.sum() == calls + 1.0
    assert not router.reward_conversation("run", 1.0)


@pytest.mark.parametrize("unit", ["run", "conversation"])
def test_a_conversation_moves_with_its_queries_when_contexts_are_fitted_again(unit):
    growing = Growing(2, first_after=40, per_context=10, background=False)
    router = WiseRouter([SMALL, LARGE], growing=growing, conversations=Conversations(unit), seed=0)
    router.start(Budget(100.0, horizon=1_000))
    draw, ends = np.random.default_rng(0), np.eye(4, dtype=np.float32)[:2]
    for i in range(60):
        embedding = ends[i % 2] + draw.normal(0.0, 0.02, 4).astype(np.float32)
        router.charge(router.decide(embedding=embedding, conversation=f"c-{i}"), usage=usage(0))
        if i < 2:
            assert router.contexts.n_contexts == 1
    assert router.contexts.n_contexts == 2
    for i in (30, 31):  # from before the fit
        assert router.decide(conversation=f"c-{i}").context == router.contexts.assign(ends[i % 2])


def test_the_rest_of_a_run_is_committed_at_what_runs_are_known_to_cost():
    router = fitted()
    for run in range(3):
        serve(router, f"short-{run}", calls=2)
        router.end(f"short-{run}")
    decision = serve(router, "next", calls=1)[0]
    state = router.conversation("next")
    model = router.pool.index(decision.model)
    known = router.estimates.cost[decision.context, model] / router.estimates.calls[decision.context, model]
    estimate = router._calls.estimates.run_usd(model, decision.context)
    assert estimate != pytest.approx(known, rel=0.05)
    plain = router._calls.estimates.rest_usd(model, decision.context, 1, state.prompt_tokens)
    ratio = state.rest_usd / plain
    assert min(1.0, known / estimate) <= ratio <= max(1.0, known / estimate)


def test_no_more_is_committed_for_a_run_than_its_budget_leaves():
    router = fitted(run_budget_usd=0.06)
    serve(router, "long", calls=5)
    router.end("long")
    for run in range(20):
        serve(router, f"open-{run}", calls=1)
    spent_usd = sum(router.conversation(f"open-{run}").spent_usd for run in range(20))
    assert router.snapshot().committed_usd == pytest.approx(20 * 0.06 - spent_usd)


@pytest.mark.parametrize("factor", [0.01, 7.0])
def test_a_new_price_restates_what_open_runs_are_expected_to_spend(factor):
    clock = Clock()
    router = WiseRouter(
        [Model("small", Price(1e-4, 1e-4))],
        seed=0,
        store=MemoryStore(clock),
        conversations=Conversations("run"),
        watch=None,
    )
    router.start(Budget(1_000.0, 100))

    def call(run, usd):
        clock.now_s += 1.0
        router.charge(router.decide("q", conversation=run), usd, usage=Usage(5_000, 5_000))

    for k in range(3):
        for _ in range(5):
            call(f"run {k}", 1.0)
        router.end(f"run {k}")
    call("goes on", 1.0)
    call("ends", 1.0)
    clock.now_s += 1.0
    router.update_model(Model("small", Price(factor * 1e-4, factor * 1e-4)))
    call("goes on", factor)
    router.end("ends")
    router.end("goes on")
    figures = router.estimates
    assert figures.calls[0, 0] == 5.0
    assert figures.cost[0, 0] == pytest.approx(factor * (15 + 1 + 2))
    assert figures.cost_sq[0, 0] == pytest.approx(factor**2 * (3 * 25 + 1 + 4))
