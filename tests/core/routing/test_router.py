import asyncio
import copy
import math
import threading
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from wiserouter import (
    Budget,
    Contexts,
    Conversations,
    EpsilonFirst,
    Estimates,
    Model,
    Offline,
    Optimistic,
    Price,
    RoutingLog,
    Usage,
    WiseRouter,
)
from wiserouter.errors import (
    AlreadySettled,
    BudgetExhausted,
    HorizonExhausted,
    InvalidInput,
    NoEligibleModel,
    NotStarted,
    UnknownDecision,
    UnknownModel,
    UnknownPrice,
    WiseRouterError,
)
from wiserouter.stores import MemoryStore
from wiserouter.testing import FakeClock, TableEncoder

SMALL = Model("small", Price(1e-6, 2e-6), max_output_tokens=1_000, max_input_tokens=8_192, max_cost_usd=2.0)
LARGE = Model("large", Price(1e-5, 3e-5), max_output_tokens=1_000, max_cost_usd=5.0)


def known(cost_usd=((1.0, 3.0), (1.0, 3.0)), reward=((0.2, 0.9), (0.5, 0.6))):
    estimates = Estimates(*np.shape(reward))
    estimates.add_table(np.arange(len(reward)), np.array(reward), np.array(cost_usd))
    return estimates


def make(models=(SMALL, LARGE), seed=0, **options):
    contexts = Contexts([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])
    options.setdefault("encoder", TableEncoder({"code": [1.0, 0.1], "chat": [0.1, 1.0]}))
    return WiseRouter(list(models), contexts, estimates=known(), seed=seed, **options)


def figures(router):
    """Return everything a refused input must leave as it was."""
    return copy.deepcopy((router.status().as_dict(), {k: v.copy() for k, v in router.estimates.arrays().items()}))


def test_a_query_is_placed_decided_charged_and_rewarded():
    router = make(policy=Offline(accounting="paper"))
    router.start(Budget(amount_usd=8.0, horizon=4))
    decision = router.decide("code")
    assert (decision.model, decision.context, decision.rate_usd, decision.probability) == ("large", 0, 2.0, 1.0)
    assert (decision.expected_cost_usd, decision.expected_reward, decision.reserved_usd) == (3.0, 0.9, 3.0)
    assert router.status().reserved_usd == 3.0
    router.charge(decision, 2.5)
    router.reward(decision.id, 0.75)
    status = router.status()
    assert (status.spent_usd, status.reserved_usd, status.left_usd, status.horizon_left) == (2.5, 0.0, 5.5, 3)
    assert status.rate_usd == pytest.approx(5 / 3)  # the paper's accounting debits the mean, 3.0
    assert status.mix == pytest.approx({"small": 2 / 3, "large": 1 / 3})  # 2/3 of context 0's step, the steeper one
    assert router.estimates.calls[0].tolist() == [1.0, 2.0]
    assert router.estimates.reward[0, 1] == pytest.approx(0.9 + 0.75)


def test_tokens_are_priced():
    router = make()
    router.start(Budget(8.0, 4))
    decision = router.decide("chat", eligible=["large"])
    router.charge(decision, usage=Usage(input_tokens=1_000, output_tokens=100))
    assert router.status().spent_usd == pytest.approx(1_000 * 1e-5 + 100 * 3e-5)


def test_the_same_seed_gives_the_same_run():
    runs = []
    for _ in range(2):
        router = make(seed=7)
        router.start(Budget(150.0, 100))
        rng = np.random.default_rng(3)
        models = []
        for _ in range(60):
            decision = router.decide(["code", "chat"][rng.integers(2)])
            router.charge(decision, float(rng.random()) * 3)
            models.append(decision.model)
        runs.append(models)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 2


def test_set_budget_changes_the_rate_without_a_refit():
    router = make()
    router.start(Budget(8.0, 4))
    router.set_budget(amount_usd=16.0)
    assert router.status().rate_usd == 4.0
    router.set_budget(horizon=8)
    assert router.status().rate_usd == 2.0
    before = figures(router)
    with pytest.raises(InvalidInput, match="horizon"):
        router.set_budget(amount_usd=99.0, horizon=0)
    with pytest.raises(InvalidInput, match="got neither"):
        router.set_budget()
    np.testing.assert_equal(figures(router), before)


def test_exhausted_money_is_refused_or_served_by_the_cheapest():
    reject, cheapest = make(), make()
    reject.start(Budget(5.0, 4))
    cheapest.start(Budget(5.0, 4, on_exhausted="cheapest"))
    for router in (reject, cheapest):
        router.charge(router.decide("code"), 5.0)
    with pytest.raises(BudgetExhausted, match="5 USD is used up: 5 spent") as error:
        reject.decide("code")
    assert (error.value.spent_usd, error.value.left_usd) == (5.0, 0.0)
    assert cheapest.decide("code").model == "small"


@pytest.mark.parametrize("limit", ["expected", "hard"])
def test_a_model_that_costs_nothing_goes_on_when_the_money_is_used_up(limit):
    local, paid = Model("local", Price(0.0, 0.0), max_output_tokens=9), Model("paid", max_cost_usd=1.0)
    router = WiseRouter([local, paid], seed=0)
    router.start(Budget(1.0, 10, limit=limit, on_exhausted="cheapest"))
    router.charge(router.decide("hello", eligible=["paid"]), 1.0)
    assert [router.decide("hello").model for _ in range(5)] == ["local"] * 5
    with pytest.raises(BudgetExhausted) if limit == "hard" else nullcontext():
        router.decide("hello", eligible=["paid"])


def test_a_used_up_horizon_is_refused_or_served_by_the_cheapest():
    reject, cheapest = make(), make()
    reject.start(Budget(50.0, 1))
    cheapest.start(Budget(50.0, 1, on_exhausted="cheapest"))
    for router in (reject, cheapest):
        router.charge(router.decide("code"), 1.0)
    with pytest.raises(HorizonExhausted, match="horizon of 1 requests is used up"):
        reject.decide("code")
    assert cheapest.decide("code").model == "small"
    reject.set_budget(horizon=2)
    assert reject.decide("code").model == "large"


def test_nothing_known_and_nothing_left_takes_the_lowest_list_price():
    router = WiseRouter([LARGE, SMALL], policy=EpsilonFirst(5), seed=0)
    router.start(Budget(0.0, 5, on_exhausted="cheapest"))
    assert router.decide("x").model == "small"


def test_a_released_call_gives_back_its_money_and_its_place():
    router = make()
    router.start(Budget(8.0, 4))
    before = router.status()
    router.release(router.decide("code"))
    after = router.status()
    assert (after.rate_usd, after.left_usd, after.horizon_left) == (before.rate_usd, before.left_usd, 4)
    assert after.released == 1


def test_a_hard_limit_reserves_the_worst_case_and_falls_to_a_model_that_fits():
    router = make([Model("small", max_cost_usd=2.0), Model("large", max_cost_usd=5.0)])
    router.start(Budget(8.0, 2, limit="hard"))
    first = router.decide("code")
    assert (first.model, first.reserved_usd) == ("large", 5.0)
    second = router.decide("code")
    assert (second.model, second.reserved_usd, second.probability) == ("small", 2.0, 1.0)
    router.set_budget(horizon=9)
    with pytest.raises(BudgetExhausted, match=r"7 reserved.*1 left, 2 needed"):
        router.decide("code")
    router.charge(first, 3.0)
    assert router.decide("code").model == "small"


def test_a_hard_limit_bounds_a_call_by_its_tokens():
    router = make()
    router.start(Budget(1.0, 10, limit="hard"))
    decision = router.decide(embedding=[1.0, 0.0], input_tokens=1_000, max_output_tokens=50, eligible=["large"])
    assert decision.reserved_usd == pytest.approx(1_000 * 1e-5 + 50 * 3e-5)
    decision = router.decide("code", eligible=["large"])
    assert decision.reserved_usd == pytest.approx(4 * 1e-5 + 1_000 * 3e-5)  # at most one token per byte


def test_a_call_dearer_than_its_worst_case_is_charged_and_announced(caplog):
    router = make([Model("small", max_cost_usd=2.0), Model("large", max_cost_usd=5.0)])
    router.start(Budget(8.0, 2, limit="hard"))
    router.charge(router.decide("code", eligible=["small"]), 2.5)
    assert router.status().spent_usd == 2.5
    assert "a call of small cost 2.5 USD, more than its worst case of 2" in caplog.text


def test_a_hard_limit_refuses_what_nothing_bounds():
    router = make([Model("small"), Model("large")])
    with pytest.raises(UnknownPrice, match="'small' has no bound on the cost of a call: give price"):
        router.start(Budget(1.0, 10, limit="hard"))
    router = make([Model("small", Price(1e-6, 1e-6)), LARGE])
    router.start(Budget(1.0, 10, limit="hard"))
    with pytest.raises(UnknownPrice, match="max_output_tokens"):
        router.decide("code")


def test_a_hard_limit_bounds_those_models_only_that_may_take_the_call():
    router = make()
    router.start(Budget(100.0, 10, limit="hard"))
    router.add_model(Model("new"))
    with pytest.raises(UnknownPrice, match="'new' has no bound on the cost of this call"):
        router.decide("code")
    assert router.decide("code", eligible=["small"]).model == "small"
    stated = {"small": 50.0, "large": 50.0, "new": 0.5}
    assert router.decide("code", eligible=["new"], worst_case_usd=stated).reserved_usd == 0.5
    router.retire_model("new")
    decision = router.decide("code")
    assert decision.model in {"small", "large"}
    assert [model.worst_case_usd for model in router.explain(decision).models][2] is None
    router.start(Budget(100.0, 10, limit="hard"))  # a retired one needs no bound


def test_models_that_cannot_take_the_query_are_left_out():
    router = make()
    router.start(Budget(100.0, 10))
    assert router.decide("chat", input_tokens=9_000).model == "large"
    with pytest.raises(
        NoEligibleModel, match="small: needs 9000 tokens, window is 8192; large: not in eligible"
    ) as error:
        router.decide("chat", input_tokens=9_000, eligible=["small"])
    assert set(error.value.reasons) == {"small", "large"}


def test_scopes_pay_for_themselves_and_learn_together():
    router = make()
    router.start(Budget(8.0, 4), scope="team-a")
    router.start(Budget(100.0, 4), scope="team-b")
    router.charge(router.decide("code", scope="team-a"), 2.0)
    router.charge(router.decide("code", scope="team-b"), 4.0)
    assert (router.status("team-a").spent_usd, router.status("team-b").spent_usd) == (2.0, 4.0)
    assert router.estimates.calls[0].sum() == 4
    with pytest.raises(NotStarted):
        router.decide("code")


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda r, d: r.decide(), InvalidInput, "text or embedding"),
        (lambda r, d: r.decide("unheard of"), InvalidInput, "encoder's table"),
        (lambda r, d: r.decide(embedding=[math.nan, 1.0]), InvalidInput, "finite"),
        (lambda r, d: r.decide(embedding=[1.0]), InvalidInput, "shape"),
        (lambda r, d: r.decide(context=True), InvalidInput, "in 0..1, got True"),
        (lambda r, d: r.decide(context=1.0), InvalidInput, "in 0..1, got 1.0"),
        (lambda r, d: r.decide(context="x"), InvalidInput, "in 0..1, got 'x'"),
        (lambda r, d: r.reserve_decision(d._replace(id="new", context=2)), InvalidInput, "in 0..1, got 2"),
        (lambda r, d: r.decide(embedding="x"), InvalidInput, "embedding must be a vector of numbers"),
        (lambda r, d: r.decide(embedding=[10**400, 1.0]), InvalidInput, "embedding must be a vector of numbers"),
        (lambda r, d: r.decide("code", eligible=["gpt-9"]), UnknownModel, "small, large; got 'gpt-9'"),
        (lambda r, d: r.decide("code", eligible=[]), NoEligibleModel, "not in eligible"),
        (
            lambda r, d: r.decide("code", eligible="small"),
            InvalidInput,
            "eligible must be a list of names.* got 'small'",
        ),
        (lambda r, d: r.decide("code", eligible=5), InvalidInput, "eligible must be a list of names.* got 5"),
        (lambda r, d: r.decide("code", eligible=[["small"]]), InvalidInput, "eligible must be a list of names"),
        (lambda r, d: r.charge(None, 1.0), InvalidInput, "decision must be a Decision or its id, got None"),
        (lambda r, d: r.reward([], 1.0), InvalidInput, r"decision must be a Decision or its id, got \[\]"),
        (lambda r, d: r.judge_with(0.8), InvalidInput, "ask must be a function of prompt and answer, got 0.8"),
        (lambda r, d: r.decide("code", input_tokens=-1), InvalidInput, "input_tokens"),
        (lambda r, d: r.decide("code", max_output_tokens=0), InvalidInput, "max_output_tokens"),
        (lambda r, d: r.decide("code", scope="nobody"), NotStarted, "'nobody'"),
        (lambda r, d: r.charge(d, math.nan), InvalidInput, "cost_usd must be a finite number"),
        (lambda r, d: r.charge(d, math.inf), InvalidInput, "cost_usd"),
        (lambda r, d: r.charge(d, -0.1), InvalidInput, "got -0.1"),
        (lambda r, d: r.charge(d), InvalidInput, "cost_usd or usage"),
        (lambda r, d: r.charge(d, 10**400), InvalidInput, "cost_usd must be a finite number of at least 0, got 1000"),
        (lambda r, d: r.charge(d, usage={"prompt_tokens": 10**400}), InvalidInput, "must be a whole number"),
        (lambda r, d: r.charge(d, 1.0, resources=3), InvalidInput, "resources must be a mapping .*, got 3"),
        (lambda r, d: r.spend("1"), InvalidInput, "cost_usd must be a finite number, got '1'"),
        (lambda r, d: r.spend(None), InvalidInput, "got None"),
        (lambda r, d: r.spend(-(10**400)), InvalidInput, "cost_usd must be a finite number, got -1000"),
        (lambda r, d: r.set_budget(amount_usd="10"), InvalidInput, "amount_usd must be a finite number .* got '10'"),
        (lambda r, d: r.set_budget(amount_usd=Decimal("0.1")), InvalidInput, "amount_usd .* got Decimal"),
        (lambda r, d: r.set_budget(amount_usd=5.0, horizon="9"), InvalidInput, "horizon must be a whole number"),
        (lambda r, d: r.charge("no such id", 1.0), UnknownDecision, "no such id"),
        (lambda r, d: r.charge("no such id", usage=Usage(1, 1)), UnknownDecision, "no such id"),
        (lambda r, d: r.release("no such id"), UnknownDecision, "no such id"),
        (lambda r, d: r.reward("no such id", 1.0), UnknownDecision, "no such id"),
        (lambda r, d: r.reward(d, 1.01), InvalidInput, r"\[0, 1\], got 1.01"),
        (lambda r, d: r.reward(d, -0.01), InvalidInput, "rescale"),
        (lambda r, d: r.reward(d, math.nan), InvalidInput, "got nan"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(call, error, says):
    router = make()
    router.start(Budget(8.0, 4))
    decision = router.decide("code")
    before = figures(router)
    with pytest.raises(error, match=says):
        call(router, decision)
    assert issubclass(error, WiseRouterError)
    np.testing.assert_equal(figures(router), before)
    assert router.decide(context=1).context == 1


def test_a_scope_within_itself_is_refused_and_its_budget_goes_on():
    router = make(policy=Offline())
    router.start(Budget(8.0, 4), scope="organisation")
    router.start(Budget(8.0, 4), scope="team", parent="organisation")
    with pytest.raises(InvalidInput, match="within itself, got 'organisation' within 'team' within 'organisation'"):
        router.start(Budget(1.0, 4), scope="organisation", parent="team")
    router.charge(router.decide("code", scope="team"), 1.0)
    assert router.status("organisation").left_usd == 7.0
    router.change_mode("shadow")  # which divides all budgets
    assert router.budget("organisation").amount_usd == 8.0


@pytest.mark.parametrize("wrong", [3, "small", [0.1, 0.1], {"small": 10**400}, {"small": "1"}, {"small": np.ones(2)}])
def test_worst_cases_that_are_no_amounts_by_name_are_refused(wrong):
    router = make()
    router.start(Budget(8.0, 4, limit="hard"))
    with pytest.raises(InvalidInput, match="worst_case_usd must be a "):
        router.decide("code", worst_case_usd=wrong)
    assert router.account().in_flight == 0


def test_charging_twice_charges_once():
    router = make()
    router.start(Budget(8.0, 4))
    decision = router.decide("code")
    router.charge(decision, 1.0)
    before = figures(router)
    for again in (lambda: router.charge(decision, 1.0), lambda: router.release(decision)):
        with pytest.raises(AlreadySettled, match="charged before"):
            again()
    np.testing.assert_equal(figures(router), before)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: WiseRouter([]), "at least one model"),
        (lambda: WiseRouter(["a"]), "must be Model values, .* got 'a'"),
        (lambda: WiseRouter([Model("a"), Model("a")]), "unique, got 'a' 2 times"),
        (lambda: WiseRouter([Model("a")], estimates=Estimates(2, 1)), "one row per context"),
        (lambda: WiseRouter([Model("a")], policy=Offline()), "at least one cost"),
        (lambda: Model(" "), "must be a string that is not empty"),
        (lambda: Model("a", max_output_tokens=0), "max_output_tokens"),
        (lambda: Price(-1e-6, 0.0), "Price.input"),
        (lambda: Price(0.0, math.nan), "Price.output"),
        (lambda: Usage(-1, 0), "Usage.input_tokens"),
        (lambda: Usage(1, 1, cache_read_tokens=2), "part of input_tokens=1, got 2"),
        (lambda: Usage(1, 1, reasoning_tokens=2), "part of output_tokens=1, got 2"),
    ],
)
def test_bad_pools_and_prices_are_refused(build, says):
    with pytest.raises(InvalidInput, match=says):
        build()


def test_fit_learns_contexts_and_means_from_a_log():
    rng = np.random.default_rng(0)
    kinds = rng.integers(2, size=400)
    prompts = [
        ["sort this python list quickly", "tell me a long story please"][kind] + f" {i % 7}"
        for i, kind in enumerate(kinds)
    ]
    reward = np.where(kinds[:, None] == 0, [0.2, 0.9], [0.8, 0.85])
    cost = np.full((400, 2), [0.001, 0.01])
    log = RoutingLog.from_arrays(prompts, reward, cost, ("small", "large"))
    router = WiseRouter.fit(log, n_contexts=2, models=[Model("large", Price(1e-6, 1e-6))], seed=0)
    router.start(Budget(400 * 0.0055, 400))
    assert router.decide("sort this python list").model == "large"
    assert router.decide("tell me a story").model == "small"
    assert [m.max_cost_usd for m in router.pool.models] == [0.001, 0.01]
    assert router.pool.models[1].price == Price(1e-6, 1e-6)
    with pytest.raises(InvalidInput, match=r"models must be in the log \(small, large\), got .huge."):
        WiseRouter.fit(log, models=[Model("huge")])


def test_fit_refuses_a_model_that_was_never_observed():
    reward = np.array([[0.5, np.nan]] * 4)
    log = RoutingLog.from_arrays(["a", "b", "c", "d"], reward, reward, ("seen", "unseen"))
    with pytest.raises(InvalidInput, match="got none of unseen"):
        WiseRouter.fit(log, n_contexts=1)


def test_a_budget_below_the_cheapest_models_is_announced(caplog):
    make().start(Budget(2.0, 4))
    assert "it will last for about 2 of 4" in caplog.text


@pytest.mark.parametrize(("cost_usd", "n"), [(0.1, 20), (1e-3, 30), (1e-5, 100)])
def test_a_budget_of_n_equal_calls_serves_n(caplog, cost_usd, n):
    costs = np.full((20, 1), cost_usd)
    log = RoutingLog.from_arrays([f"question {i}" for i in range(20)], np.ones((20, 1)), costs, ("only",))
    for policy in (Offline(), Optimistic()):
        router = WiseRouter.fit(log, n_contexts=1, policy=policy)
        router.start(Budget(n * cost_usd, n))
        for _ in range(n):
            router.charge(router.decide("question"), cost_usd)
        assert router.status().spent_usd == pytest.approx(n * cost_usd)
    assert "it will last" not in caplog.text


async def test_adecide_encodes_off_the_event_loop():
    threads = []

    class Encoder(TableEncoder):
        def encode(self, text):
            threads.append(threading.get_ident())
            return super().encode(text)

    router = make(encoder=Encoder({"code": [1.0, 0.0]}))
    router.start(Budget(100.0, 50))
    decisions = await asyncio.gather(*(router.adecide("code") for _ in range(20)))
    assert threading.get_ident() not in threads
    await asyncio.gather(*(router.acharge(d, 1.0) for d in decisions))
    assert router.status().spent_usd == 20.0
    assert (await router.adecide(embedding=[1.0, 0.0])).context == 0


async def test_a_call_of_a_run_that_is_cancelled_while_it_is_decided_reserves_nothing():
    begun, go_on = threading.Event(), threading.Event()

    class Encoder(TableEncoder):
        def encode(self, text):
            begun.set()
            go_on.wait(5)
            return super().encode(text)

    router = make(encoder=Encoder({"code": [1.0, 0.0]}), conversations=Conversations("run"))
    router.start(Budget(100.0, 50))
    deciding = asyncio.create_task(router.adecide("code", conversation="a"))
    await asyncio.to_thread(begun.wait, 5)
    deciding.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await deciding
    async with asyncio.timeout(5):
        while router.status().released == 0:
            await asyncio.sleep(0.001)
    assert router.status().reserved_usd == 0.0


def test_reservations_expire_by_the_clock():
    clock = FakeClock()
    router = make(store=MemoryStore(clock, reservation_ttl_s=10.0))
    router.start(Budget(8.0, 4))
    decision = router.decide("code")
    clock.advance(11)
    assert router.status().reserved_usd == 0.0
    router.charge(decision, 2.0)
    assert router.status().spent_usd == 2.0


def test_sixteen_threads_keep_one_hard_budget():
    router = make([Model("small", max_cost_usd=2.0), Model("large", max_cost_usd=5.0)])
    router.start(Budget(12_000.0, 10_000, limit="hard"))
    costs, refused = [[] for _ in range(16)], [0] * 16

    def serve(worker):
        rng = np.random.default_rng(worker)
        for _ in range(625):
            try:
                decision = router.decide(embedding=rng.random(2))
            except BudgetExhausted:
                refused[worker] += 1
                continue
            if rng.random() < 0.05:
                router.release(decision)
                continue
            cost = float(rng.random()) * {"small": 2.0, "large": 5.0}[decision.model]
            costs[worker].append(cost)
            router.charge(decision, cost)
            router.reward(decision, float(rng.random()))

    threads = [threading.Thread(target=serve, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = router.status()
    charged = [cost for worker in costs for cost in worker]
    assert status.spent_usd <= 12_000.0
    assert status.spent_usd == pytest.approx(math.fsum(charged), abs=1e-9)
    assert (status.in_flight, status.reserved_usd) == (0, 0.0)
    assert status.charged + status.released + sum(refused) == 10_000
    assert router.estimates.calls.sum() == 4 + len(charged)
    assert router.estimates.labels.sum() == 4 + len(charged)


@pytest.mark.parametrize("policy", [Optimistic(), EpsilonFirst(20), EpsilonFirst(8, accounting="paper")])
def test_a_retired_model_gets_no_more_queries_until_it_is_back(policy):
    pool = [Model("a", Price(0.0, 1e-5)), Model("b", Price(0.0, 2e-5)), Model("c", Price(0.0, 3e-5))]
    router = WiseRouter(pool, policy=policy, seed=0)
    router.start(Budget(1.0, 1_000))

    def serve(n):
        chosen = []
        for _ in range(n):
            decision = router.decide()
            router.charge(decision, usage=Usage(0, 20))
            router.reward(decision, 1.0 if decision.model == "c" else 0.2)
            chosen.append(decision.model)
        return chosen

    assert "c" in serve(100)
    in_flight = router.decide(eligible=["c"])
    router.retire_model("c")
    assert "c" not in serve(100)
    router.charge(in_flight, usage=Usage(0, 20))
    with pytest.raises(NoEligibleModel, match="retired"):
        router.decide(eligible=["c"])
    router.update_model(pool[2])
    assert "c" in serve(100)
    router.retire_model("a")
    router.retire_model("b")
    with pytest.raises(InvalidInput, match="not retired"):
        router.retire_model("c")
    assert set(serve(20)) == {"c"}


def test_a_cost_with_its_tokens_rules_and_the_tokens_are_learned():
    router = WiseRouter([Model("a", Price(1e-6, 2e-6))], seed=0)
    router.start(Budget(1.0, 10))
    router.charge(router.decide(), 0.5, usage=Usage(100, 10))
    assert router.status().spent_usd == 0.5
    assert (router.estimates.input_tokens[0, 0], router.estimates.output_tokens[0, 0]) == (100, 10)


class WaitingStore(MemoryStore):
    """A store that may have to be waited for, and records the threads that its steps run in."""

    durable = True

    def __init__(self):
        super().__init__()
        self.threads = []

    def waits(self, scope, decision_id=None):
        return True

    def release(self, decision_id):
        self.threads.append(threading.current_thread())
        return super().release(decision_id)

    def presume(self, decision_id):
        self.threads.append(threading.current_thread())
        return super().presume(decision_id)

    def reward(self, decision_id, score, source="human"):
        self.threads.append(threading.current_thread())
        return super().reward(decision_id, score, source)


@pytest.mark.parametrize("store", [MemoryStore, WaitingStore])
async def test_releases_rewards_and_presumptions_keep_the_event_loop_free(store):
    router = make(store=store())
    router.start(Budget(amount_usd=8.0, horizon=4))
    rated, failed = router.decide("code"), router.decide("chat")
    await router.apresume(failed)
    assert await router.areward(rated, 0.5, comment="fine") is False
    assert await router.areward(rated.id, 1.0) is True
    await router.arelease(failed)
    assert router.estimates.labels.sum() - known().labels.sum() == 1
    assert router.status().released == 1
    with pytest.raises(AlreadySettled):
        await router.arelease(failed)
    with pytest.raises(InvalidInput):
        await router.areward(rated, 2.0)
    assert threading.main_thread() not in getattr(router._store, "threads", [])


def test_a_decision_of_another_router_is_unknown():
    router, other = make(), make(models=(replace(SMALL, name="tiny"), LARGE))
    for each in (router, other):
        each.start(Budget(amount_usd=8.0, horizon=4))
    decision = other.decide("chat", eligible=["tiny"])
    with pytest.raises(UnknownDecision):
        router.charge(decision, usage=Usage(1, 1))
    with pytest.raises(UnknownDecision):
        router.charge(decision, 1.0)
    assert router.status().charged == 0
