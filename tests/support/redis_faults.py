"""Faults of a Redis server: it stops, pauses, forgets or refuses for a while."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import contextmanager

import pytest


@contextmanager
def stopped(server):
    server.stop()
    yield
    server.start()


@contextmanager
def restarted_without_data(server):
    server.kill()
    for kept in server.folder.glob("appendonly*"):
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    yield
    server.start()


@contextmanager
def paused(server):
    os.kill(server.pid, signal.SIGSTOP)
    yield
    os.kill(server.pid, signal.SIGCONT)


@contextmanager
def emptied(server):
    server.empty()
    yield


@contextmanager
def emptied_twice(server):
    server.empty()
    yield
    server.empty()


@contextmanager
def full(server):
    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.ask("CONFIG", "SET", "maxmemory", "1")
    yield
    server.ask("CONFIG", "SET", "maxmemory", "0")


@contextmanager
def read_only(server):
    server.ask("REPLICAOF", "127.0.0.1", "1")
    yield
    server.ask("REPLICAOF", "NO", "ONE")


@contextmanager
def other_password(server):
    server.ask("CONFIG", "SET", "requirepass", "another")
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    yield
    server.ask_all(("AUTH", "another"), ("CONFIG", "SET", "requirepass", ""))


FAULTS = [stopped, restarted_without_data, paused, emptied, emptied_twice, full, read_only, other_password]
DURATIONS_S = [1.5, pytest.param(10.0, marks=pytest.mark.slow)]


def slow_but(plain, *faults):
    """Return faults as parameters of a test: all are slow but the plain one."""
    return [fault if fault is plain else pytest.param(fault, marks=pytest.mark.slow) for fault in faults]
