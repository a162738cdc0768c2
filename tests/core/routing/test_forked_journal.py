"""The journal of a process that is forked: each process writes its own events."""

from support.fork_programs import NEEDS_FORK, run

pytestmark = NEEDS_FORK


def test_children_write_their_own_events_into_the_journal_and_none_of_their_parent(tmp_path):
    run(f"""
import multiprocessing

path, router = {str(tmp_path / "journal.jsonl")!r}, routed()
journal = router.journal_to(path)

def decides():
    for _ in range(10):
        router.charge(router.decide("hello"), 0.001)

decides()
assert in_child(lambda: decides() or journal.flush() or 1 / 0) == 0
child = multiprocessing.get_context("fork").Process(target=decides)
child.start()
child.join()
decides()
assert journal.flush()
assert len(open(path).readlines()) == 4 * 20
journal.close()
assert in_child(decides) == 0
assert len(open(path).readlines()) == 4 * 20
""")


def test_a_child_writes_its_decisions_into_the_journal_whose_modules_take_long_to_import(tmp_path):
    run(f"""
from importlib.machinery import SourceFileLoader

imports = SourceFileLoader.exec_module

def slowly(loader, module):
    if module.__name__ == "wiserouter.routing.explanation":
        time.sleep(1.0)
    imports(loader, module)

SourceFileLoader.exec_module = slowly
path, router = {str(tmp_path / "journal.jsonl")!r}, routed()
journal = router.journal_to(path)
router.decide("hello")
time.sleep(0.2)
assert in_child(lambda: router.decide("hello") and journal.flush() or 1 / 0) == 0
assert journal.flush()
assert len(open(path).readlines()) == 2
""")


def test_a_child_that_cannot_write_the_journal_goes_on(tmp_path):
    (tmp_path / "of_the_parent").mkdir()
    run(f"""
import logging, shutil

logging.disable(logging.CRITICAL)
router = routed()
journal = router.journal_to({str(tmp_path / "of_the_parent" / "journal.jsonl")!r})
shutil.rmtree({str(tmp_path / "of_the_parent")!r})
assert in_child(lambda: router.charge(router.decide("hello"), 0.001) or 1 / (journal.dropped == 2)) == 0
""")


def test_threads_of_a_child_that_write_its_first_events_at_once_start_one_writer(tmp_path):
    path = tmp_path / "journal.jsonl"
    run(f"""
import sys
from wiserouter.routing.journal import Journal

journal = Journal({str(path)!r})
sys.setswitchinterval(1e-6)

def notes():
    together = threading.Barrier(8)

    def note(thread):
        together.wait()
        journal.event("charge", str(thread), 0.0)

    threads = [threading.Thread(target=note, args=(each,)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(each.name == "wiserouter-journal" for each in threading.enumerate()) == 1
    assert journal.flush()

assert [in_child(notes) for _ in range(10)] == [0] * 10
""")
    assert len(path.read_text().splitlines()) == 80
