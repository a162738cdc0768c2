import json
import logging
import os
import threading

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Estimates, Model, Offline, RoutingLog, WiseRouter
from wiserouter.errors import QuerySkipped, UnknownDecision
from wiserouter.routing.journal import Journal
from wiserouter.routing.journal_reader import JournalReader, find_explanation

CANARY = "xylophone quartz canary"


def make(**options):
    estimates = Estimates(1, 2)
    estimates.add_table(np.zeros(1, dtype=np.int64), [[0.2, 0.9]], [[1.0, 3.0]])
    models = [Model("small", max_cost_usd=2.0), Model("large", max_cost_usd=4.0)]
    router = WiseRouter(models, Contexts.single(), estimates=estimates, seed=0, **options)
    router.start(Budget(2_000.0, 1_000))
    return router


@pytest.fixture
def path(tmp_path):
    return tmp_path / "decisions.jsonl"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_event_is_one_line(path):
    router = make()
    journal = router.journal_to(path)
    first, second = router.decide("a"), router.decide("b")
    router.charge(first, 1.5)
    router.reward(first, 0.25)
    router.release(second)
    assert journal.flush()
    told = lines(path)
    assert [event["event"] for event in told] == ["decision", "decision", "charge", "reward", "release"]
    assert told[0].items() >= {"id": first.id, "model": first.model, "scope": "default", "rate_usd": 2.0}.items()
    assert told[0]["context"] == {"id": 0, "share": 1.0}
    assert told[0]["decided_at"] == first.decided_at
    assert sum(model["probability"] for model in told[0]["models"]) == pytest.approx(1.0)
    assert told[2].items() >= {"id": first.id, "cost_usd": 1.5, "model": first.model, "learn": True}.items()
    assert told[3]["reward"] == 0.25
    journal.close()


def test_what_is_read_back_equals_what_the_router_tells(path):
    router = make()
    journal = router.journal_to(path)
    decision, other = router.decide("a"), router.decide("b")
    router.charge(decision, 1.5, model="large")
    router.reward(decision, 0.25)
    journal.flush()
    mine = router.explain(decision).as_dict()
    for name in ("terms", "typical_prompts"):
        del mine["context"][name]
    assert find_explanation(JournalReader(path), decision.id) == mine
    assert find_explanation(JournalReader(path), "last")["id"] == other.id
    router.release(other)
    journal.close()
    assert find_explanation(JournalReader(path), "last")["state"] == "released"
    with pytest.raises(UnknownDecision, match="'nobody'"):
        find_explanation(JournalReader(path), "nobody")
    with pytest.raises(FileNotFoundError):
        find_explanation(JournalReader(path.with_name("none")), "last")


def test_the_file_is_readable_by_its_owner_only(path):
    before = os.umask(0)
    try:
        Journal(path).close()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_journal_is_read_by_its_path_as_a_text(path):
    router = make()
    journal = router.journal_to(path)
    router.decide("a")
    journal.close()
    assert list(JournalReader(str(path))) == list(JournalReader(path)) != []


def test_a_journal_may_begin_with_a_byte_order_mark(path):
    router = make()
    journal = router.journal_to(path)
    decision = router.decide("a")
    journal.close()
    path.write_text(path.read_text(), encoding="utf-8-sig")
    reading = JournalReader(path)
    assert [event["id"] for event in reading if event["event"] == "decision"] == [decision.id]
    assert reading.skipped == 0


def test_a_skipped_query_is_told(path):
    router = make(policy=Offline(allow_skip=True))
    router.start(Budget(0.0, 10, on_exhausted="cheapest"))
    router.start(Budget(1e-9, 10))
    journal = router.journal_to(path)
    with pytest.raises(QuerySkipped):
        router.decide("a")
    journal.close()
    found = find_explanation(JournalReader(path), "last")
    assert (found["model"], found["skip_probability"], found["cost_usd"]) == ("", pytest.approx(1.0), 0.0)


def test_nothing_of_a_prompt_is_in_the_file(path):
    prompts = [f"{CANARY} number {i}" if i % 2 else f"an ordinary question {i}" for i in range(60)]
    rng = np.random.default_rng(0)
    router = WiseRouter.fit(
        RoutingLog.from_arrays(prompts, rng.random((60, 2)), rng.random((60, 2)), ("a", "b")), n_contexts=2
    )
    router.start(Budget(1_000.0, 100))
    journal = router.journal_to(path)
    for prompt in prompts[:10]:
        decision = router.decide(prompt)
        router.charge(decision, 0.5)
        router.reward(decision, 1.0)
    why = router.explain(decision).context
    assert {"canary", "quartz"} & set(why.terms)
    journal.close()
    written = path.read_text()
    assert written.count("\n") == 30
    assert not any(word in written for word in [*CANARY.split(), "ordinary"])


def test_writers_in_many_threads_and_two_journals_keep_whole_lines(path):
    routers = [make(), make()]
    journals = [router.journal_to(path) for router in routers]

    def serve(router):
        for _ in range(100):
            router.charge(router.decide("a"), 1.0)

    threads = [threading.Thread(target=serve, args=(router,)) for router in routers for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for journal in journals:
        journal.close()
    told = lines(path)
    assert len(told) == 2 * 2 * 400
    assert len({event["id"] for event in told}) == 800
    assert [journal.dropped for journal in journals] == [0, 0]


@pytest.mark.parametrize("rest", [b'{"event": "decision", "id": "half', b"\xff\xfe nothing", b"[1]"])
def test_a_line_cut_short_by_a_crash_is_skipped_and_counted(path, rest):
    router = make()
    journal = router.journal_to(path)
    decision = router.decide("a")
    journal.close()
    with path.open("ab") as file:
        file.write(rest)
    reading = JournalReader(path)
    assert find_explanation(reading, "last")["id"] == decision.id
    assert reading.skipped == 1
    again = make()
    later = again.journal_to(path)  # begins a line of its own
    second = again.decide("b")
    later.close()
    reading = JournalReader(path)
    assert find_explanation(reading, "last")["id"] == second.id
    assert reading.skipped == 1


def test_a_full_file_is_set_aside_and_still_read(path):
    router = make()
    router.journal = Journal(path, max_bytes=2_000)
    decisions = []
    for _ in range(12):
        decisions.append(router.decide("a"))
        router.journal.flush()
    router.journal.close()
    kept = sorted(each.name for each in path.parent.iterdir())
    assert kept == ["decisions.jsonl", *(f"decisions.jsonl.{age}" for age in (1, 2, 3))]
    assert all(each.stat().st_size <= 2_000 for each in path.parent.iterdir())
    found = [event["id"] for event in JournalReader(path)]
    assert found == [decision.id for decision in decisions[-len(found) :]]
    assert len(found) >= 4


@pytest.fixture
def four_files(path):
    """Return the files of a journal that were rotated 0 to 3 times, each with two lines."""
    names = [path, *(path.with_name(f"{path.name}.{age}") for age in (1, 2, 3))]
    for age, name in enumerate(names):
        name.write_text("".join(json.dumps({"event": "release", "id": f"{age} {line}"}) + "\n" for line in range(2)))
    return names


def set_aside(files):
    for older, newer in zip(files[:0:-1], files[-2::-1], strict=True):
        newer.replace(older)
    files[0].touch()


def test_files_that_are_set_aside_while_they_are_read_are_read_whole_and_once(path, four_files):
    reading = iter(JournalReader(path))
    found = [next(reading)["id"]]
    set_aside(four_files)
    assert found + [event["id"] for event in reading] == [f"{age} {line}" for age in (3, 2, 1, 0) for line in range(2)]


def test_a_journal_whose_newest_file_was_just_set_aside_is_read(path, four_files):
    set_aside(four_files)
    path.unlink()
    found = [event["id"] for event in JournalReader(path)]
    assert found == [f"{age} {line}" for age in (2, 1, 0) for line in range(2)]


@pytest.mark.parametrize("n_opened", [1, 2, 3])
def test_files_that_are_set_aside_while_they_are_opened_are_read_whole_and_once(
    path, four_files, monkeypatch, n_opened
):
    opened, open_file = [], type(path).open

    def counted(file, **settings):
        opened.append(open_file(file, **settings))
        if len(opened) == n_opened:
            set_aside(four_files)
        return opened[-1]

    monkeypatch.setattr(type(path), "open", counted)
    found = [event["id"] for event in JournalReader(path)]
    assert found == [f"{age} {line}" for age in (2, 1, 0) for line in range(2)]  # the oldest is no more


def test_of_several_writers_of_one_file_one_sets_it_aside(path):
    journals = [Journal(path, max_bytes=2_000) for _ in range(4)]
    written = [f"{number:04}" for number in range(120)]
    for number, name in enumerate(written):
        journals[number % 4].event("release", name, 0.0)
        journals[number % 4].flush()
    for journal in journals:
        journal.close()
    found = [event["id"] for event in JournalReader(path)]
    assert found == written[-len(found) :]
    assert sum(each.stat().st_size for each in path.parent.iterdir()) > 3 * 1_800
    assert {journal.dropped for journal in journals} == {0}


def test_writers_that_set_a_file_aside_at_the_same_time_lose_no_line(path):
    journals = [Journal(path, max_bytes=40_000) for _ in range(4)]

    def write(journal, first):
        for name in range(first, first + 300):
            journal.event("release", f"{name:04}", 0.0)
            if name % 7 == 0:
                journal.flush()

    threads = [threading.Thread(target=write, args=(one, 300 * i)) for i, one in enumerate(journals)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for journal in journals:
        journal.close()
    assert sorted(event["id"] for event in JournalReader(path)) == [f"{name:04}" for name in range(1_200)]


def test_a_file_that_is_moved_away_is_begun_again(path):
    journal = Journal(path)
    journal.event("release", "a", 0.0)
    journal.flush()
    path.rename(path.with_name("moved"))
    journal.event("release", "b", 0.0)
    journal.close()
    assert [event["id"] for event in JournalReader(path)] == ["b"]
    assert journal.dropped == 0


def test_nobody_waits_and_a_dropped_line_is_counted_and_logged_once(path, caplog):
    journal = Journal(path, max_waiting=3)
    held, gate = threading.Event(), threading.Event()
    journal.note(lambda: {"waited": held.set() or gate.wait(60)})
    assert held.wait(30)  # the writer has the first
    with caplog.at_level(logging.WARNING, "wiserouter"):
        for i in range(50):
            journal.note(lambda i=i: {"i": i})
    gate.set()
    assert journal.flush(30.0)
    assert lines(path)[0]["waited"]  # no note has waited for the writer, which would have waited in vain
    assert journal.dropped == 47
    assert len(caplog.records) == 1
    assert [event.get("i") for event in lines(path)] == [None, 0, 1, 2]
    journal.close()


def test_a_file_that_fails_is_a_warning_and_never_an_error(path, caplog):
    router = make()
    journal = router.journal_to(path)
    os.close(journal._writer._file)
    journal._writer._file = os.open(path, os.O_RDONLY)
    with caplog.at_level(logging.WARNING, "wiserouter"):
        for _ in range(3):
            router.charge(router.decide("a"), 1.0)
            journal.flush()
    assert journal.dropped == 6
    (said,) = caplog.records
    assert said.getMessage().startswith(f"the journal {path} cannot be written")
    assert router.status().charged == 3
    journal.close()


def test_a_folder_that_is_missing_is_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="none: no such folder: make it, or name another one"):
        make().journal_to(tmp_path / "none" / "decisions.jsonl")


def test_a_line_that_cannot_be_made_costs_no_other(path, caplog):
    journal, together = Journal(path), threading.Event()
    journal.note(lambda: {"event": "first", "waited": together.wait(10.0)})
    for cost_usd in (1.0, float("nan"), 2.0):
        journal.event("charge", "a", 0.0, cost_usd=cost_usd, model="small")
    together.set()
    journal.close()
    assert [event.get("cost_usd") for event in JournalReader(path)] == [None, 1.0, 2.0]
    assert journal.dropped == 1
    assert "cannot be written" in caplog.text


def test_a_journal_that_ends_in_its_own_thread_loses_nothing(path):
    journal, writers = Journal(path), []
    journal.note(lambda: writers.append(threading.current_thread()) or {"event": "first"})
    assert journal.flush()
    journal.note(lambda: journal.close() or {"event": "last"})  # as where the thread collects it
    writers[0].join(10.0)
    assert [event["event"] for event in JournalReader(path)] == ["first", "last"]
    assert (journal.dropped, writers[0].is_alive()) == (0, False)


def disk_with(room):
    """Return `os.write` as a journal meets it on a disk with room for so many bytes."""
    write = os.write

    def write_some(file, data):
        nonlocal room
        if threading.current_thread().name != "wiserouter-journal":
            return write(file, data)
        if not room:
            raise OSError(28, "No space left on device")
        taken = data[:room]
        room -= len(taken)
        return write(file, taken)

    return write_some


def test_a_line_of_which_a_full_disk_took_a_part_is_counted_and_costs_no_other(path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", disk_with(40))
    journal = Journal(path)
    journal.event("release", "a", 0.0)  # 43 bytes with its end
    journal.flush()
    assert journal.dropped == 1
    monkeypatch.setattr(os, "write", write)
    journal.event("release", "b", 0.0)
    journal.event("release", "c", 0.0)
    journal.close()
    reading = JournalReader(path)
    assert [event["id"] for event in reading] == ["b", "c"]
    assert (reading.skipped, journal.dropped) == (1, 1)


def test_only_lines_that_a_full_disk_did_not_take_are_counted_as_dropped(path, monkeypatch):
    together = threading.Event()
    journal = Journal(path)
    journal.note(lambda: {"event": "first", "waited": together.wait(10.0)})
    monkeypatch.setattr(os, "write", disk_with(100))
    for name in "abcd":
        journal.event("release", name, 0.0)
    together.set()
    journal.close()
    reading = JournalReader(path)
    assert len(list(reading)) == 5 - journal.dropped
    assert reading.skipped == 1
    assert 0 < journal.dropped < 4


def test_a_journal_that_cannot_be_opened_anew_writes_into_no_other_file_and_keeps_the_older_ones(path, monkeypatch):
    journal = Journal(path, max_bytes=200)
    for name in "abcdefgh":
        journal.event("release", name, 0.0)
        journal.flush()
    kept = [event["id"] for event in JournalReader(path)]

    def refuse(*_args, **_options):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    for name in "ijklmnop":
        journal.event("release", name, 0.0)
        journal.flush()
    monkeypatch.undo()
    other = path.with_name("other")
    with other.open("wb"):
        journal.event("release", "q", 0.0)
        journal.close()
    assert other.stat().st_size == 0
    written = [event["id"] for event in JournalReader(path)]
    assert written[: len(kept)] == kept
    assert written[-1] == "q"
    assert len(written) + journal.dropped == 17
