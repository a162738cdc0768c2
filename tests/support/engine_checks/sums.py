"""Checks of shared sums, notes and odd names."""

from __future__ import annotations

import pytest

from support.engines import CHARGED, apply, charge, counters, opened, reserve, window
from wiserouter.stores.engines.base import ReadRequest
from wiserouter.stores.engines.events import Alias, Find, Learn, Note, Open, Score


def check_sums(place):
    engine = opened(place)
    apply(
        engine,
        Learn("x", "one", 1, {"a": 0.1, "b": -1.0}),
        Learn("x", "one", 1, {"a": 9.0}),
        Learn("y", "one", 1, {"a": 7}),
    )
    assert apply(engine, Learn("x", "two", 5, {"a": 0.2}), Learn("x", "two", 4, {"a": 9.0})) == ["ok", "ok"]
    reply = engine.exchange([Learn("x", "one", 3, {"a": 0.3, "c": 1e-300})], ReadRequest(sums=["x", "y", "z"]))
    assert reply.sums == {"x": {"a": pytest.approx(0.6), "b": -1.0, "c": 1e-300}, "y": {"a": 7.0}, "z": {}}
    assert place.open().exchange([], ReadRequest(sums=["x"])).sums["x"] == reply.sums["x"]


def check_many_cells(place):
    engine = place.open()
    deltas = {f"{i}": i / 7 for i in range(5000)}
    for sequence in (1, 2):
        reply = engine.exchange([Learn("x", "one", sequence, deltas)], ReadRequest(sums=["x"]))
        assert reply.sums["x"] == {cell: sequence * delta for cell, delta in deltas.items()}


def check_a_note_in_place_of_another_one(place):
    engine = place.open()
    first, late = Note("n", "1", former=""), Note("n", "2", former="")
    assert apply(engine, first, late, Note("n", "2", former="0")) == ["ok", "other", "other"]
    assert apply(engine, Note("n", "2", former="1"), Note("n", "3", former="2")) == ["ok", "ok"]
    assert apply(engine, Note("n", "", former="3"), Note("n", "4", former="")) == ["ok", "ok"]
    assert place.open().exchange([], ReadRequest(notes=["n"])).notes == {"n": "4"}


def check_notes(place):
    engine = opened(place)
    texts = {"": "", "a:b": 'é"\\/\n\t ', "b": "x" * 100_000, "{c}": "\x00\x7f", "ü": "[]"}
    assert apply(engine, *[Note(name, "earlier") for name in texts]) == ["ok"] * 5
    reply = engine.exchange([Note(name, text) for name, text in texts.items()], ReadRequest(notes=[*texts, "none"]))
    assert reply.notes == texts == place.open().exchange([], ReadRequest(notes=[*texts])).notes


def check_odd_names(place):
    """Names that could be taken for something else."""
    names = ["a:b", "{w}", "call:a", "é", "a b", "x" * 1000, '"', "0", "null", "\ud83d"]
    engine = place.open()
    for name in names:
        events = [Open(name, 0, name, (window(name),)), reserve(name, name), Alias(f"{name} too", name)]
        assert apply(engine, *events) == [1, "ok", "ok"]
        assert apply(engine, Find(f"{name} too"))[0][:2] == (name, f"record of {name}")
        assert apply(engine, charge(name, 0.5, name), Score(name, "human", "0.5", name)) == ["in flight", {}]
        assert counters(engine, scope=name) == CHARGED
        learned = Learn(name, "one", 1, {name: 0.5})
        read = engine.exchange([learned, Note(name, name)], ReadRequest(None, [name], [name]))
        assert (read.accounts[name].terms, read.sums, read.notes) == (name, {name: {name: 0.5}}, {name: name})
