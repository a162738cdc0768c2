"""Many runs, and runs of many calls: what is kept is bounded, and takes no longer to look up."""

from time import perf_counter
from uuid import uuid4

from wiserouter_langchain import WiseFeedbackHandler
from wiserouter_langchain.decisions.decision_index import DecisionIndex
from wiserouter_langchain.decisions.routed_call import RECORD


class FindsAll:
    """A router that finds every decision."""

    def feedback(self, target, score, **_):
        return 1

    def note_run(self, decision_id, run_id):
        pass


def noted(handler, run, decision_id):
    record = {RECORD: {"decision_id": decision_id}}
    handler.on_chat_model_start({}, [], run_id=uuid4(), parent_run_id=run, metadata=record)


def fastest(step):
    """Return the least time of ten calls, in seconds."""
    times = []
    for _ in range(10):
        start = perf_counter()
        step()
        times.append(perf_counter() - start)
    return min(times)


def test_feedback_on_a_run_takes_no_longer_where_many_others_are_known():
    def seconds(n):
        handler, runs = WiseFeedbackHandler(FindsAll()), [uuid4() for _ in range(n)]
        for run in runs:
            noted(handler, run, str(run))
        return fastest(lambda: handler.feedback(runs[0], 1.0))

    assert seconds(10_000) < 20 * seconds(10)


def test_the_decisions_of_one_run_are_bounded_and_the_latest_are_kept():
    handler, run = WiseFeedbackHandler(FindsAll(), max_runs=5), uuid4()
    for i in range(20):
        noted(handler, run, f"d{i}")
    assert handler.decisions == {run: [f"d{i}" for i in range(15, 20)]}
    assert handler.feedback(run, 1.0) == 5


def test_a_decision_of_a_run_of_many_is_dropped_in_the_same_time():
    def seconds(n):
        index, ids = DecisionIndex(n), map(str, range(2 * n))
        for _ in range(n):
            index.add(next(ids), "run")
        return fastest(lambda: index.add(next(ids), "run"))

    assert seconds(10_000) < 20 * seconds(100)
