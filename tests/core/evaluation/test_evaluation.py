import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, Offline, RoutingLog
from wiserouter.errors import InvalidInput, LogError
from wiserouter.evaluation import reference_policies
from wiserouter.evaluation.datasets.synthetic import KINDS, PRICES, make_table
from wiserouter.evaluation.outcome import outcome_of
from wiserouter.evaluation.plots import plot_outcomes, plot_plan
from wiserouter.evaluation.replay import complete_queries, prepare, prepare_with, run, table_of
from wiserouter.evaluation.table import Table, random_halves
from wiserouter.learning.estimates import Means

TABLE = make_table(400, np.random.default_rng(0))


def setup(seed=0, **options):
    return prepare(TABLE, seed=seed, n_contexts=6, **options)


def budget(per_query, n=200, **options):
    return Budget(per_query * n, n, **options)


def test_split_halves_at_random_and_by_seed():
    train, test = random_halves(101, 0)
    assert (len(train), len(test)) == (50, 51)
    assert sorted([*train, *test]) == list(range(101))
    assert np.array_equal(train, random_halves(101, 0)[0])
    assert not np.array_equal(train, random_halves(101, 1)[0])


def test_a_replay_accounts_for_every_call():
    replay = run(setup(), budget(1e-3))
    ours = replay.outcome
    assert ours.queries == ours.served == 200
    assert sum(ours.models.values()) == pytest.approx(1.0)
    assert ours.spend_ratio == pytest.approx(1.0, abs=0.05)
    assert replay.as_dict()["naive"]["always-best"]["models"]["max"] == 1.0


def test_the_same_seed_replays_the_same_and_runs_are_independent():
    one = setup()
    first = run(one, budget(1e-3)).outcome
    run(one, budget(3e-3))
    assert run(one, budget(1e-3)).outcome == first
    assert run(setup(), budget(1e-3)).outcome == first


def test_quality_lies_between_the_cheapest_and_the_oracle():
    for per_query in (5e-4, 1e-3, 4e-3):
        replay = run(setup(), budget(per_query))
        by_name = {one.method: one for one in replay.references}
        assert by_name["always-cheapest"].quality < replay.outcome.quality < by_name["oracle"].quality


def test_a_hard_replay_never_exceeds_its_budget():
    for seed in range(3):
        for per_query in (1e-4, 5e-4, 2e-3):
            assert run(setup(seed), budget(per_query, limit="hard")).outcome.spend_ratio <= 1.0


@pytest.mark.slow
def test_paper_accounting_drifts_from_the_budget_more_than_actual():
    large, terms = make_table(3_000, np.random.default_rng(2)), budget(1e-3, 1_500)

    def drift(accounting):
        setups = [prepare(large, seed=seed, policy=Offline(accounting=accounting)) for seed in range(5)]
        return np.mean([abs(run(each, terms).outcome.spend_ratio - 1) for each in setups])

    assert drift("actual") < 0.5 * drift("paper")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 2.0))
def test_no_choice_of_models_beats_the_oracle_at_its_spend(seed, per_query):
    rng = np.random.default_rng(seed)
    reward, cost = rng.random((12, 3)), rng.random((12, 3))
    chosen = rng.integers(-1, 3, size=12)
    models = ("a", "b", "c")
    ours = outcome_of("x", chosen, reward, cost, models=models, budget_usd=per_query, seed=0)
    best = reference_policies.oracle_outcome(reward, cost, models, ours.spend_usd, seed=0)
    assert best.quality >= ours.quality - 1e-12
    assert best.spend_usd <= ours.spend_usd + 1e-12


def test_single_best_and_the_fixed_choices_by_hand():
    means = Means(np.array([[0.2, 0.9], [0.5, 0.6]]), np.array([[1.0, 3.0], [3.0, 4.0]]))
    freq = np.array([0.5, 0.5])
    assert (reference_policies.cheapest_model(means, freq), reference_policies.best_model(means, freq)) == (0, 1)
    assert reference_policies.single_best(means, 3.0, np.array([0, 1, 0])).tolist() == [1, 0, 1]
    assert reference_policies.single_best(means, 1.0, np.array([0, 1])).tolist() == [0, -1]


def test_a_fitted_router_replays_another_log(tmp_path):
    router = setup().router
    replay = run(prepare_with(router, TABLE, seed=0), budget(1e-3, 400))
    assert replay.outcome.queries == 400
    few = RoutingLog.from_arrays(TABLE.prompts, TABLE.reward[:, :2], TABLE.cost_usd[:, :2], ("nano", "mini"))
    with pytest.raises(InvalidInput, match="got none of coder, max"):
        prepare_with(router, complete_queries(table_of(few))[0], seed=0)


def test_one_query_cannot_be_learned_from_and_routed():
    with pytest.raises(InvalidInput, match="two queries or more, to learn from and to route, got 1"):
        prepare(TABLE.rows(np.array([0])), seed=0)


def test_incomplete_queries_are_left_out_and_counted():
    reward = np.array([[0.5, np.nan], [0.5, 0.5]])
    table, dropped = complete_queries(Table(["a", "b"], reward, np.ones((2, 2)), ("m", "n")))
    assert (table.prompts, dropped) == (["b"], 1)
    with pytest.raises(LogError, match="a score and a cost of every model, got none"):
        complete_queries(Table(["a"], reward[:1], np.ones((1, 2)), ("m", "n")))


def test_the_synthetic_workload_has_its_stated_rates_and_costs():
    table = make_table(4_000, np.random.default_rng(1))
    expected = [sum(kind.share * kind.skill[name] for kind in KINDS.values()) for name in PRICES]
    assert table.reward.mean(axis=0) == pytest.approx(expected, abs=0.03)
    assert np.all(np.diff(table.cost_usd.mean(axis=0)) > 0)
    assert sum(kind.share for kind in KINDS.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_pictures_are_saved(tmp_path, ending):
    replay = run(setup(), budget(1e-3))
    plot_outcomes([replay.outcome, *replay.references], tmp_path / f"a.{ending}", "title", setup().router.plan)
    plot_plan(setup().router.plan, TABLE.models, tmp_path / f"b.{ending}")
    assert min((tmp_path / f"{name}.{ending}").stat().st_size for name in "ab") > 4_000


def test_an_unknown_picture_format_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"must end in \.png"):
        plot_plan(setup().router.plan, TABLE.models, tmp_path / "a.doc")
