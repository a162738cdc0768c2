import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from wiserouter import Budget, Contexts, EpsilonFirst, Model, Price, RoutingLog, WiseRouter
from wiserouter.artifacts.file import read_artifact, write_artifact
from wiserouter.cli import app
from wiserouter.errors import DamagedArtifact, InvalidInput, NotMergeable

MODELS = ("small", "medium", "large")
COLUMNS = ["query_id", "prompt", "model", "reward", "cost_usd"]


def letters(texts):
    return [[text.count("a"), text.count("b")] for text in texts]


FIRST = WiseRouter.fit(
    RoutingLog.from_arrays(["aaa", "aab", "abb", "bbb"], np.ones((4, 1)), np.ones((4, 1)), ("small",)),
    encoder=letters,
    n_contexts=3,
)


def calls(n, rng):
    """Return some calls as rows of a long log; not every model answers every query."""
    prompts = ["".join(rng.choice(list("ab"), size=4)) for _ in range(n)]
    return [
        (f"q{i}", prompts[i], model, float(rng.random()), float(rng.exponential(1e-3)))
        for i in range(n)
        for model in rng.choice(MODELS, size=rng.integers(1, 4), replace=False)
    ]


def fit(rows, **options):
    log = RoutingLog.from_frame(pl.DataFrame(rows, schema=COLUMNS, orient="row"))
    return WiseRouter.fit(log, encoder=FIRST.encoder, contexts=FIRST.contexts, **options)


def same(a, b):
    assert a.pool.names == b.pool.names
    assert a.pool.models == b.pool.models
    assert a.contexts.n_queries == b.contexts.n_queries
    assert a.contexts.summaries == b.contexts.summaries
    assert np.array_equal(a.contexts.centroids, b.contexts.centroids)
    assert a.contexts.freq == pytest.approx(b.contexts.freq, abs=1e-12)
    for name, array in a.estimates.arrays().items():
        assert array == pytest.approx(b.estimates.arrays()[name], abs=1e-9, rel=1e-9), name
    for rate in np.linspace(a.plan.floor_usd, a.plan.ceiling_usd, 5):
        assert a.plan.value(rate + 1e-12) == pytest.approx(b.plan.value(rate + 1e-12), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 25), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_parts_add_up_to_the_whole_in_any_order_and_grouping(n, n_parts, seed):
    rng = np.random.default_rng(seed)
    rows = calls(n, rng)
    where = rng.integers(n_parts, size=n)
    where[:n_parts] = np.arange(n_parts)[: len(where[:n_parts])]
    parts = [fit([row for row in rows if where[int(row[0][1:])] == part]) for part in set(where.tolist())]
    whole = fit(rows)
    same(WiseRouter.merge(parts), whole)
    for order in itertools.permutations(parts):
        same(WiseRouter.merge(order), whole)
    same(WiseRouter.merge([WiseRouter.merge(parts[:-1]), parts[-1]]) if len(parts) > 2 else whole, whole)
    same(WiseRouter.merge([parts[0], WiseRouter.merge(parts[1:])]) if len(parts) > 2 else whole, whole)


def test_artifacts_add_up_as_routers_do(tmp_path):
    texts = [f"{word} number {i}" for i in range(30) for word in ("cooking with", "code for", "poems on")]
    rng = np.random.default_rng(0)
    reward, cost = rng.random((90, 2)), rng.random((90, 2))
    half = slice(0, 45), slice(45, 90)
    logs = [RoutingLog.from_arrays(texts[h], reward[h], cost[h], ("n", "m")) for h in half]
    first = WiseRouter.fit(logs[0], n_contexts=3)
    second = WiseRouter.fit(logs[1], encoder=first.encoder, contexts=first.contexts)
    first.save(tmp_path / "a.wise")
    second.save(tmp_path / "b.wise")
    merged = WiseRouter.merge([tmp_path / "a.wise", str(tmp_path / "b.wise")])
    whole = WiseRouter.fit(
        RoutingLog.from_arrays(texts, reward, cost, ("n", "m")), encoder=first.encoder, contexts=first.contexts
    )
    same(merged, whole)
    same(merged, WiseRouter.merge([second, tmp_path / "a.wise"]))
    hashes = {WiseRouter.merge(order).save(tmp_path / "c.wise") for order in ([first, second], [second, first])}
    assert len(hashes) == 1
    same(WiseRouter.load(tmp_path / "c.wise"), whole)
    merged.start(Budget(50.0, 100))
    assert merged.decide("code for number 5").model in ("n", "m")


def test_a_model_of_one_part_is_kept():
    rng = np.random.default_rng(0)
    rows = calls(30, rng)
    few, others = ([row for row in rows if (row[2] == "large") == is_large] for is_large in (True, False))
    split = WiseRouter.merge([fit(few), fit(others)])
    assert split.pool.names == ("large", "medium", "small")
    assert split.estimates.calls.sum() == len(rows)
    assert split.pool.models[0].max_cost_usd == max(row[4] for row in few)


def test_the_order_of_models_is_kept_where_all_agree():
    ones = np.full((4, 2), 0.5)

    def part(*models):
        log = RoutingLog.from_arrays(["aa", "bb", "ab", "ba"], ones, ones, models)
        return WiseRouter.fit(log, encoder=FIRST.encoder, contexts=FIRST.contexts)

    assert WiseRouter.merge([part("z", "a"), part("z", "a")]).pool.names == ("z", "a")
    assert WiseRouter.merge([part("z", "a"), part("z", "b")]).pool.names == ("a", "b", "z")


def priced(usd, **terms):
    rows = [("q0", "ab", "small", 0.5, usd), ("q1", "aa", "large", 0.5, 2 * usd)]
    return fit(rows, models=[Model("small", Price(usd / 1e4, usd / 1e4), **terms)])


def test_prices_must_agree_or_be_chosen(tmp_path):
    priced(1.0).save(tmp_path / "a.wise")
    with pytest.raises(
        NotMergeable, match=r"same price of model 'small', got Price\(input=0.0001.* in .*router 2"
    ) as error:
        WiseRouter.merge([priced(1.0), priced(3.0)])
    assert (error.value.what, error.value.parts) == ("price", ("router 1", "router 2"))
    assert "--prices-from" in str(error.value)
    for chosen in (priced(3.0), fit([("q", "a", "small", 1.0, 1.0)], models=[Model("small", Price(3e-4, 3e-4))])):
        merged = WiseRouter.merge([priced(1.0), priced(3.0)], prices_from=chosen)
        small = next(model for model in merged.pool.models if model.name == "small")
        assert (small.price, small.max_cost_usd) == (Price(3e-4, 3e-4), 3.0)
        assert merged.estimates.cost.sum() == 12.0  # as it was paid
    with pytest.raises(
        NotMergeable, match="same max_output_tokens of model 'small', got 7 in router 1, None in router 2"
    ):
        WiseRouter.merge([priced(1.0, max_output_tokens=7), priced(1.0)])


def test_a_call_that_nothing_bounds_stays_unbounded():
    def learning(bound, calls):
        router = WiseRouter([Model("m", max_cost_usd=bound)])
        router.start(Budget(10.0, 10))
        for _ in range(calls):
            router.charge(router.decide("x"), 0.1)
        return router

    def bound(*parts):
        return WiseRouter.merge([learning(*part) for part in parts]).pool.models[0].max_cost_usd

    assert bound((0.5, 1), (0.7, 1)) == 0.7
    assert bound((0.5, 1), (None, 1)) is None
    assert bound((0.5, 1), (None, 0)) == 0.5


def test_routers_that_learn_add_up_too():
    def learning(n):
        router = WiseRouter([Model("m", Price(1e-6, 1e-6)), Model("n", Price(1e-6, 2e-6))], seed=n)
        router.start(Budget(10.0, 100))
        for _ in range(n):
            router.reward(decision := router.decide("x"), 0.5)
            router.charge(decision, 0.1)
        return router

    merged = WiseRouter.merge([learning(3), learning(4)])
    assert (merged.estimates.calls.sum(), merged.estimates.labels.sum(), merged.estimates.n_invoked) == (7, 7, 7)
    assert merged.policy.name == "optimistic"


def test_what_does_not_add_up_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    rows = calls(30, rng)
    part = fit(rows)
    other = WiseRouter.fit(
        RoutingLog.from_frame(pl.DataFrame(rows, schema=COLUMNS, orient="row")), encoder=letters, n_contexts=2
    )
    with pytest.raises(NotMergeable, match=r"same contexts and encoder, got [0-9a-f]{12} in router 1 and") as e:
        WiseRouter.merge([part, fit(rows), other])
    assert (e.value.what, e.value.parts) == ("contexts", ("router 1", "router 3"))
    assert "--contexts-of" in str(e.value)
    ridge = fit(rows, estimator="ridge")
    with pytest.raises(NotMergeable, match=r"got some in router 2: add up the means alone with .*means_only=True"):
        WiseRouter.merge([part, ridge])
    merged = WiseRouter.merge([part, ridge], means_only=True)
    assert merged.residuals is None
    same(merged, WiseRouter.merge([part, fit(rows)]))
    with pytest.raises(NotMergeable, match=r"same policy, got offline .* in router 1 and others in router 2"):
        WiseRouter.merge([part, fit(rows, policy=EpsilonFirst(5))])
    chosen = WiseRouter.merge([part, fit(rows, policy=EpsilonFirst(5))], policy=EpsilonFirst(7))
    assert chosen.policy.settings()["length"] == 7
    with pytest.raises(InvalidInput, match="at least two routers, got 1"):
        WiseRouter.merge([part])


def test_the_same_encoder_with_another_vocabulary_is_another():
    ones = np.ones((3, 1))
    logs = [RoutingLog.from_arrays([f"{word} one", f"{word} two", word], ones, ones, ("m",)) for word in ("x", "y")]
    routers = [WiseRouter.fit(log, n_contexts=1) for log in logs]
    assert np.array_equal(*(router.contexts.centroids.shape for router in routers))
    with pytest.raises(NotMergeable, match="same contexts and encoder"):
        WiseRouter.merge(routers)


def test_one_file_counts_once(tmp_path):
    ones = np.ones((3, 1))
    router = WiseRouter.fit(RoutingLog.from_arrays(["x one", "x two", "x"], ones, ones, ("m",)), n_contexts=1)
    for name in ("a.wise", "copy.wise"):
        router.save(tmp_path / name)
    with pytest.raises(NotMergeable, match=r"copy\.wise has the content of .*a\.wise: leave one out"):
        WiseRouter.merge([tmp_path / "a.wise", tmp_path / "copy.wise"])


def test_a_router_given_twice_is_refused():
    ones = np.ones((3, 1))
    router = WiseRouter.fit(RoutingLog.from_arrays(["x one", "x two", "x"], ones, ones, ("m",)), n_contexts=1)
    with pytest.raises(NotMergeable, match="router 2 is the same as router 1: leave one out"):
        WiseRouter.merge([router, router])


def test_artifacts_of_earlier_versions_lack_the_number_of_queries(tmp_path):
    ones = np.ones((4, 1))
    texts = ["x one", "x two", "y three", "y four"]
    first = WiseRouter.fit(RoutingLog.from_arrays(texts, ones, ones, ("m",)), n_contexts=2)
    again = WiseRouter.fit(
        RoutingLog.from_arrays(texts[:1], ones[:1], ones[:1], ("m",)), encoder=first.encoder, contexts=first.contexts
    )
    first.save(tmp_path / "a.wise")
    manifest, arrays = read_artifact(tmp_path / "a.wise")
    del manifest["n_queries"]
    write_artifact(tmp_path / "old.wise", manifest, arrays)
    with pytest.raises(NotMergeable, match=r"old\.wise does not: fit it again with this version"):
        WiseRouter.merge([tmp_path / "old.wise", again])
    assert WiseRouter.merge([tmp_path / "old.wise", first]).contexts.n_queries is None  # equal frequencies stay
    write_artifact(tmp_path / "odd.wise", {**manifest, "n_queries": -1}, arrays)
    with pytest.raises(DamagedArtifact, match="n_queries must be a whole number of at least 1, got -1"):
        WiseRouter.load(tmp_path / "odd.wise")


def test_counted_contexts_refuse_no_query():
    with pytest.raises(InvalidInput, match="at least one query"):
        Contexts([[0.0], [1.0]], [0.5, 0.5]).counted([0, 0])


def test_what_people_and_judges_agree_on_adds_up(tmp_path):
    price = Price(1e-6, 2e-6)
    routers = [WiseRouter([Model("small", price), Model(other, price)], growing=None) for other in ("mid", "large")]
    for router, score in zip(routers, (0.25, 0.75), strict=True):
        router.start(Budget(1.0, 100))
        for model in router.pool.names:
            decision = router.decide("hello", eligible=[model])
            router.charge(decision, 1e-4)
            router.reward(decision, 1.0, source="judge:mini")
            router.reward(decision, score)
    files = [tmp_path / "a.wise", tmp_path / "b.wise"]
    for router, path in zip(routers, files, strict=True):
        router.save(path)
    assert CliRunner().invoke(app, ["merge", *map(str, files), "-o", str(tmp_path / "all.wise")]).exit_code == 0
    for merged in (WiseRouter.merge(routers), WiseRouter.load(tmp_path / "all.wise")):
        sums = merged.parts().agreements["judge:mini"]
        assert {model: (each[0], each[2]) for model, each in sums.items()} == {
            "small": (2.0, 1.0), "mid": (1.0, 0.25), "large": (1.0, 0.75),
        }  # fmt: skip
