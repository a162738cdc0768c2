"""Routers in processes that are forked while other threads use them."""

import pytest

from support.fork_programs import NEEDS_FORK, run

pytestmark = NEEDS_FORK


def test_a_child_offers_calls_to_a_judge_whose_lock_another_thread_held():
    run("""
router = routed()
judge = router.judge_with(lambda prompt, answer: 0.5, share=1.0)
decision = router.decide("hello")
holding(judge._lock)
assert in_child(lambda: judge.offer(decision, "What is 2 + 2?", "4")) == 0
""")


@pytest.mark.parametrize(
    ("made", "lock", "step"),
    [
        ("", "router._days._lock", "router.spend(0.001)"),
        ("", "router._days._lock", "router.sums_of_days([20_000])"),
        ("router = routed(f'sqlite:///{folder}/store.db')", "router._days._reading", "router.sums_of_days([20_000])"),
        ("signals = Signals(['all'], time.monotonic)", "signals._lock", "signals.answered('a call', 'hello')"),
        ("queue = AdmissionQueue(router)", "queue._lock", "queue.n_waiting"),
    ],
)
def test_a_child_goes_on_with_what_another_thread_was_at(tmp_path, made, lock, step):
    run(f"""
from wiserouter.integration.waiting import AdmissionQueue
from wiserouter.routing.signals import Signals

folder, router = {str(tmp_path)!r}, routed()
{made}
holding({lock})
assert in_child(lambda: {step}) == 0
""")


def test_a_child_counts_tokens_where_a_thread_of_the_parent_was_reading_their_encoding(tmp_path):
    run(f"""
from wiserouter.pricing import tokens

os.environ["TIKTOKEN_CACHE_DIR"] = {str(tmp_path)!r}
tokens._cache_path({str(tmp_path)!r}, "o200k_base").write_bytes(b"of another one")
holding(tokens._LOCK)
assert in_child(lambda: tokens.count_tokens("hello")) == 0
""")


@pytest.mark.parametrize(
    "lock",
    ["router._days._lock", "router._days._reading", "signals._lock", "queue._lock", "tokens._LOCK"],
)
def test_the_handler_of_a_signal_forks_where_its_thread_holds_a_lock(lock):
    run(f"""
from wiserouter.integration.waiting import AdmissionQueue
from wiserouter.pricing import tokens
from wiserouter.routing.signals import Signals

faulthandler.dump_traceback_later(10, exit=True)
router = routed()
queue, signals, forked = AdmissionQueue(router), Signals(['all'], time.monotonic), []
signal.signal(signal.SIGALRM, lambda *_: (fork(), forked.append(True)))
with {lock}:
    os.kill(os.getpid(), signal.SIGALRM)
assert forked
""")
