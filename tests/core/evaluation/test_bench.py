import numpy as np
import pytest

from support.tiny_bench import opened
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.baselines import METHODS, module_of, open_methods
from wiserouter.evaluation.baselines.base import Server, Terms
from wiserouter.evaluation.bench import Bench, budgets_of, run_bench
from wiserouter.evaluation.bench.code_digest import RUN, closure, digest_of
from wiserouter.evaluation.bench.list_prices import TYPICAL_CALL_TOKENS
from wiserouter.evaluation.bench.serve import serve_all
from wiserouter.evaluation.bench.splits import split_table
from wiserouter.evaluation.datasets.synthetic import make_table
from wiserouter.evaluation.table import random_halves
from wiserouter.learning.cost_prior import TYPICAL_TOKENS

TABLE = make_table(200, np.random.default_rng(0))
TIMES = ("fit_s", "start_s", "prepare_s", "serve_s", "decide_us", "decide_p99_us")


def bench(**changes):
    settings = {"budgets": budgets_of(TABLE.cost_usd, 3), "methods": ("always-best",), "seeds": (0, 1), "n_contexts": 4}
    return Bench(opened(TABLE), **(settings | changes))


class Calls(Server):
    """Calls these models on every query and returns the answer of one."""

    def __init__(self, *models, give):
        self.models, self.give, self.met, self.learned = models, give, [], []

    def serve(self, query, funds, call):
        self.met.append((query, funds, [call(k) for k in self.models]))
        return self.give

    def learn(self, query, model, reward, cost_usd):
        self.learned.append((model, reward, cost_usd))


@pytest.fixture(scope="module")
def split():
    return split_table(TABLE, seed=0, n_contexts=4)


def test_a_server_pays_for_every_call_and_gets_the_reward_of_one(split):
    server, answers = Calls(0, 2, give=0), split.test.answers
    trace = serve_all(server, split.test, Terms(1.0, 100))
    assert trace.reward.tolist() == answers.reward[:, 0].tolist()
    assert trace.cost_usd == pytest.approx(answers.cost_usd[:, [0, 2]].sum(axis=1))
    assert trace.calls.tolist() == [2] * 100
    assert server.learned[:2] == [(k, answers.reward[0, k], answers.cost_usd[0, k]) for k in (0, 2)]
    left = [funds.left_usd for _, funds, _ in server.met]
    assert left == pytest.approx([1.0, *(1.0 - trace.cost_usd.cumsum()[:-1])])
    assert [funds.requests for _, funds, _ in server.met] == list(range(100, 0, -1))
    assert all(query.truth is None for query, _, _ in server.met)


def test_an_answer_must_be_paid_for_and_a_model_called_once(split):
    for server in (Calls(0, give=1), Calls(0, 0, give=0), Calls(9, give=9), Calls(give=0)):
        with pytest.raises(InvalidInput):
            serve_all(server, split.test, Terms(1.0, 100))


def test_an_interrupted_bench_resumes(tmp_path):
    done = []
    few = bench(methods=("always-cheapest",))
    first = run_bench(few, tmp_path, tick=done.append)
    more = run_bench(bench(methods=("always-cheapest", "always-best")), tmp_path, tick=done.append)
    assert done == [0, 3, 3, 6, 3, 3]
    assert more.filter(method="always-cheapest").equals(first)
    assert run_bench(few, tmp_path).equals(first)


def test_rows_depend_on_the_table_the_settings_and_the_code(monkeypatch):
    keys = set(bench().keys())
    assert keys == set(bench().keys())
    other = opened(TABLE._replace(reward=1.0 - TABLE.reward))
    assert keys.isdisjoint(bench()._replace(table=other).keys())
    assert keys.isdisjoint(bench(n_contexts=5).keys())
    monkeypatch.setattr("wiserouter.evaluation.bench.runner.digest_of", lambda module: "changed")
    assert keys.isdisjoint(bench().keys())


def test_rows_of_a_method_depend_on_the_code_that_it_imports():
    ours, regressed = (closure([module_of(name)]) for name in ("wr-offline", "routing"))
    assert {"wiserouter.router", "wiserouter.learning.estimates", "wiserouter.planning.plan"} <= ours
    assert "wiserouter.evaluation.baselines.answer_regressions" in regressed
    assert not regressed & {"wiserouter.router", "wiserouter.learning.estimates", "wiserouter.evaluation.baselines"}
    every = closure(RUN)
    assert {"wiserouter.prompts.encoders.tfidf", "wiserouter.prompts.contexts"} <= every
    assert not every & {"wiserouter.router", "wiserouter.learning.estimates", "wiserouter.fitting.log.reader"}
    assert digest_of(module_of("routing")) != digest_of(module_of("wr-offline"))
    assert digest_of(module_of("routing")) == digest_of(module_of("cascade-routing"))


def test_a_typical_call_is_that_of_the_prior_of_costs():
    assert sum(TYPICAL_TOKENS) == TYPICAL_CALL_TOKENS


def test_embeddings_of_the_table_are_used_unless_an_encoder_is_named():
    own = np.random.default_rng(0).random((200, 3)).astype(np.float32)
    test = random_halves(200, 1)[1]
    assert split_table(TABLE, seed=1, embeddings=own, n_contexts=4).test.embeddings.tolist() == own[test].tolist()
    named = split_table(TABLE, seed=1, embeddings=own, encoder="tfidf", n_contexts=4)
    without = split_table(TABLE, seed=1, n_contexts=4)
    assert named.test.embeddings.tolist() == without.test.embeddings.tolist()
    assert named.test.context_ids.tolist() == without.test.context_ids.tolist()


@pytest.mark.slow
def test_two_processes_give_the_same_rows(tmp_path):
    work = bench(methods=("always-cheapest", "always-best"))
    one, two = run_bench(work, tmp_path / "1"), run_bench(work, tmp_path / "2", jobs=2)
    assert one.drop(TIMES).sort("key").equals(two.drop(TIMES).sort("key"))


def test_methods_are_opened_by_name_in_the_order_of_the_tables():
    assert [method.name for method in open_methods()] == list(METHODS)
    with pytest.raises(InvalidInput, match="always-best"):
        open_methods(["always-worst"])
    with pytest.raises(InvalidInput, match="none"):
        open_methods([])
