"""Random names: ids of decisions, and the name of a worker, which a forked process replaces."""

import os

from wiserouter.stores.ids import IDS_PER_DRAW, WorkerIdentity, fresh_id


def test_no_id_is_given_twice():
    ids = [fresh_id() for _ in range(2 * IDS_PER_DRAW + 1)]
    assert len(set(ids)) == len(ids)
    assert {len(one) for one in ids} == {32}


def test_a_forked_process_has_another_name(monkeypatch):
    identity = WorkerIdentity()
    parent = identity.name
    assert (identity.is_current, identity.renew_after_fork(), identity.name) == (True, False, parent)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert not identity.is_current
    assert identity.renew_after_fork()
    assert identity.name != parent
    assert (identity.is_current, identity.renew_after_fork()) == (True, False)


def test_two_workers_of_one_process_have_different_names():
    assert WorkerIdentity().name != WorkerIdentity().name
