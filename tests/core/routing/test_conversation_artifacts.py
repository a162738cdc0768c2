"""Runs and conversations in artifacts: what was learned of their calls is saved and loaded."""

import numpy as np
import pytest

from support.run_router import fitted, serve
from wiserouter import Budget, Conversations, Estimates, Model, Price, WiseRouter
from wiserouter.artifacts.file import read_artifact, write_artifact
from wiserouter.artifacts.save_load import save
from wiserouter.errors import DamagedArtifact, InvalidInput


def test_a_loaded_router_keeps_conversations(tmp_path):
    fitted().save(tmp_path / "a.wise")
    router = WiseRouter.load(tmp_path / "a.wise")
    assert router.conversations is None
    router.keep_conversations(Conversations("run"))
    router.keep_conversations(Conversations("run"))
    assert router.conversations == Conversations("run")
    router.start(Budget(100.0, horizon=100))
    assert {one.model for one in serve(router, "run-1", 3)} == {"large"}
    with pytest.raises(InvalidInput, match="keeps conversations under one setting"):
        router.keep_conversations(Conversations("conversation"))


def test_what_was_learned_of_the_calls_is_saved_and_loaded(tmp_path):
    router = fitted()
    serve(router, "run-1", 5)
    router.end("run-1")
    router.save(tmp_path / "a.wise")
    loaded = WiseRouter.load(tmp_path / "a.wise")
    loaded.save(tmp_path / "b.wise")  # a router that keeps no conversations loses nothing
    again = WiseRouter.load(tmp_path / "b.wise")
    again.keep_conversations(Conversations("run"))
    sums = router.parts().call_sums
    assert sums["calls_left.stopped"].sum() == 1.0
    for name, array in again.parts().call_sums.items():
        np.testing.assert_array_equal(array, sums[name], err_msg=name)


def test_a_model_that_came_later_is_saved_with_what_was_learned_of_the_calls(tmp_path):
    router = fitted()
    serve(router, "run-1", 5)
    router.add_model(Model("new", Price(1e-6, 2e-6)))
    router.save(tmp_path / "a.wise")  # before the next call of a conversation
    loaded = WiseRouter.load(tmp_path / "a.wise")
    loaded.add_model(Model("newer"))
    loaded.save(tmp_path / "b.wise")  # without conversations
    again = WiseRouter.load(tmp_path / "b.wise")
    again.add_model(Model("newest"))
    again.keep_conversations(Conversations("run"))
    learned, present = router.parts().call_sums, again.parts().call_sums
    assert learned["tokens.first"].any()
    for name, array in learned.items():
        assert len(present[name]) == 5
        np.testing.assert_array_equal(present[name][:3], array, err_msg=name)


def test_an_artifact_with_sums_of_other_models_is_refused(tmp_path):
    router = fitted()
    serve(router, "run-1", 5)
    router.save(tmp_path / "a.wise")
    manifest, arrays = read_artifact(tmp_path / "a.wise")
    write_artifact(tmp_path / "a.wise", manifest, {**arrays, "calls.hits.firsts": np.zeros(3)})
    with pytest.raises(DamagedArtifact, match=r"calls.hits.firsts must have shape \(2,\), got \(3,\)"):
        WiseRouter.load(tmp_path / "a.wise")


def test_costs_below_zero_after_their_deviation_plan_as_zero_and_can_be_saved(tmp_path):
    router = fitted(unit="conversation")
    estimates = Estimates(1, 2)
    estimates.add_cost(0, 0, -0.001)
    estimates.add_cost(0, 1, 0.002)
    np.testing.assert_array_equal(estimates.means(shrink=False).cost_usd, [[0.0, 0.002]])
    save(router.parts()._replace(estimates=estimates), tmp_path / "a.wise")
    assert WiseRouter.load(tmp_path / "a.wise").parts().estimates.cost.tolist() == [[0.0, 0.002]]
