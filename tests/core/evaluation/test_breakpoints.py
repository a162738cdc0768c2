"""Tests of the study of regret at breakpoint budgets."""

import numpy as np
import pytest

from wiserouter.evaluation.simulation.paper_environment import paper_environment
from wiserouter.evaluation.studies.breakpoints import RULES, _located, _table, breakpoints, regrets, served
from wiserouter.planning.plan import Plan


@pytest.mark.parametrize("seed", range(3))
def test_the_table_mixes_as_the_plan_does(seed):
    plan = paper_environment(seed, 100, n_contexts=4, n_models=5).plan
    table = _table(plan)
    for rate in np.linspace(plan.floor_usd, plan.ceiling_usd * 1.1, 23):
        taken, share = (one[0] for one in _located(table.spend_usd, np.array([rate])))
        mix = np.zeros((4, 5))
        mix[np.arange(4), table.low[taken]] = 1.0
        split = table.step_context[taken]
        if share:
            mix[split, table.low[taken, split]] -= share
            mix[split, table.high[taken]] += share
        assert np.allclose(mix, plan.mix(rate))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_keeps_the_budget_and_loses_little(rule):
    plan = Plan([0.5, 0.5], [[0.2, 0.9], [0.4, 0.6]], [[1.0, 3.0], [1.0, 2.0]])
    rng = np.random.default_rng(0)
    contexts, draws = rng.integers(2, size=(400, 30)), rng.random((400, 30))
    counted = Plan(plan.freq, plan.cost_usd / 10, plan.cost_usd)  # pays a tenth of the cost: what is gained was spent
    table = _table(plan)
    spent = 10.0 * served(table._replace(reward=counted.reward), rule, 2.0 * 400, contexts, draws)
    assert spent.max() <= 2.0 * 400 + 1e-6
    gained = served(table, rule, 2.0 * 400, contexts, draws)
    assert gained.mean() == pytest.approx(400 * plan.value(2.0), rel=0.01)


def test_regret_from_the_best_in_hindsight_is_never_negative():
    found = regrets(0, 300, True, 20)
    assert found.shape == (len(RULES), 2)
    assert (found[:, 0] >= -1e-9).all()


def test_the_section_has_a_row_per_budget_rule_and_benchmark():
    section = breakpoints([0, 1], [100, 200], 5)
    assert len(section.rows) == 2 * (2 * 3 + 2)
    assert all(len(row) == len(section.head) for row in section.rows)
