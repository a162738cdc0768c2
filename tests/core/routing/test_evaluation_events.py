import sys

import pytest

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.errors import InvalidInput


class Exported:
    """A logger that keeps what it is given."""

    def __init__(self):
        self.records = []

    def emit(self, record):
        self.records.append(record)


def make():
    router = WiseRouter([Model("small", Price(1e-6, 1e-6))])
    router.start(Budget(1.0, 100))
    decision = router.decide("a")
    router.charge(decision, cost_usd=0.001)
    return router, decision


def test_each_score_is_an_event():
    pytest.importorskip("opentelemetry")
    exported, (router, decision) = Exported(), make()
    router.emit_evaluations(exported)
    router.reward(decision, 0.5, source="judge:a", comment="a secret")
    router.charge(router.decide("b"), cost_usd=0.001)
    (record,) = exported.records
    assert record.event_name == "gen_ai.evaluation.result"
    assert record.attributes == {
        "gen_ai.evaluation.name": "judge:a",
        "gen_ai.evaluation.score.value": 0.5,
        "wiserouter.decision.id": decision.id,
    }


def test_a_journal_is_kept_beside_the_events(tmp_path):
    pytest.importorskip("opentelemetry")
    exported, (router, decision) = Exported(), make()
    router.emit_evaluations(exported)
    assert router.journal is None
    journal = router.journal_to(tmp_path / "j.jsonl")
    router.reward(decision, 1.0)
    assert (router.journal, len(exported.records)) == (journal, 1)
    router.journal = None
    router.reward(decision, 0.0)
    assert (router.journal, len(exported.records)) == (None, 2)
    journal.close()


def test_without_opentelemetry_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry._logs", None)
    with pytest.raises(InvalidInput, match="pip install opentelemetry-api"):
        make()[0].emit_evaluations()
