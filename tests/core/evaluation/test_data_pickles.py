"""Pickled tables of any origin are read without running any of their code."""

import builtins
import contextlib
import copyreg
import functools
import operator
import os
import pickle
import re
import struct
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.frames import MODELS, routerbench_like
from wiserouter.errors import LogError, WiseRouterError
from wiserouter.evaluation.datasets import routerbench, safe_pickle
from wiserouter.evaluation.datasets.pandas_frame import columns_of
from wiserouter.evaluation.errors import ForbiddenPickle

OLD = sorted((Path(__file__).parent / "pickles").glob("*.pkl"))
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
PLAIN = pickle.dumps(routerbench_like(), protocol=5)


def read(payload):
    return columns_of(safe_pickle.load(payload))


def plain(columns):
    return {name: list(column) for name, column in columns.items()}


class Reduced:
    """Pickles as a call of the given function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("shape", ["whole", "filtered", "reordered", "one block", "numpy scalars", "missing", "empty"])
def test_a_frame_is_read_as_pandas_reads_it(protocol, shape):
    frame = routerbench_like(6)
    if shape == "filtered":
        frame = frame[frame["large"] == 1.0]
    if shape == "reordered":
        frame = frame[list(frame.columns[::-1])]
    if shape == "one block":
        frame = frame[[f"{name}|total_cost" for name in MODELS]].copy()
    if shape == "numpy scalars":
        frame["large"] = pd.Series(
            [np.float64(0.5), np.float32(0.25), np.int64(1), np.bool_(True), 0, 1.0], dtype=object
        )
    if shape == "missing":
        frame.loc[2, "large"] = None
        frame.loc[3, "large|total_cost"] = np.nan
    if shape == "empty":
        frame = frame.iloc[:0]
    found = read(pickle.dumps(frame, protocol=protocol))
    assert list(found) == list(frame.columns)
    for name in frame:
        pd.testing.assert_series_equal(pd.Series(list(found[name]), dtype=object), frame[name].astype(object), **LOOSE)


LOOSE = {"check_index": False, "check_names": False, "check_dtype": False}


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<i4", ">i2", "u1", "?"])
def test_every_type_of_number(dtype):
    frame = pd.DataFrame({"a": np.array([0, 1, 1]).astype(dtype)})
    assert read(pickle.dumps(frame))["a"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("file", OLD, ids=lambda file: file.stem)
def test_a_frame_of_another_pandas_version(file):
    """Written by pandas 1.1, 1.3, 1.5, 2.0 and 3.1 at protocol 5 from the frame of `routerbench_like`."""
    wanted = routerbench_like()
    assert plain(read(file.read_bytes())) == {name: wanted[name].tolist() for name in wanted}


def test_there_are_frames_of_other_pandas_versions():
    assert len(OLD) == 5


ATTACKS = {
    "os.system": ("posix.system", lambda canary: Reduced(os.system, f"touch {canary}")),
    "eval": ("builtins.eval", lambda canary: Reduced(eval, f"open({canary!r}, 'w').close()")),
    "exec": ("builtins.exec", lambda canary: Reduced(exec, f"open({canary!r}, 'w').close()")),
    "open": ("_?io.open", lambda canary: Reduced(open, canary, "w")),
    "import": ("builtins.eval", lambda canary: Reduced(eval, f"__import__('os').mkdir({canary!r})")),
    "partial": (
        "posix.system|functools.partial",
        lambda canary: Reduced(functools.partial(os.system, f"touch {canary}")),
    ),
    "getattr": ("builtins.getattr", lambda canary: Reduced(getattr, "", "join")),
    "attrgetter": ("operator.attrgetter", lambda canary: Reduced(operator.attrgetter("mkdir"), "")),
    "mkdir": ("posix.mkdir", lambda canary: Reduced(os.mkdir, canary)),
    "numpy": ("numpy.*(save|savetxt)", lambda canary: Reduced(np.savetxt, canary, [1.0])),
    "pandas": ("pandas.io.pickle.to_pickle", lambda canary: Reduced(pd.to_pickle, 1, canary)),
    "reconstructor": ("pathlib.*Path", Path),
    "map": ("builtins.list", lambda canary: Reduced(list, Reduced(map, os.mkdir, [canary]))),
}
LIVE = ("os.system", "eval", "exec", "import", "mkdir", "numpy", "pandas")
HIDDEN = {
    "bare": lambda attack: attack,
    "in a cell": lambda attack: routerbench_like().assign(prompt=pd.Series(["a", attack, "b", "c", "d"], dtype=object)),
    "in a list": lambda attack: [1, {"a": (attack,)}],
    "as a column's name": lambda attack: pd.DataFrame({0: [1]}).set_axis(pd.Index([attack], dtype=object), axis=1),
}


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_by_name_and_changes_nothing(name, hidden, tmp_path):
    canary = tmp_path / "canary"
    refused, attack = ATTACKS[name]
    for protocol in (0, 2, 4, 5):
        payload = pickle.dumps(HIDDEN[hidden](attack(str(canary))), protocol=protocol)
        file = tmp_path / "table.pkl"
        file.write_bytes(payload)
        with pytest.raises(ForbiddenPickle, match=re.escape(str(file))) as caught:
            routerbench.read(file)
        assert re.search(refused.replace("builtins", "(builtins|__builtin__)"), caught.value.refused), caught.value
        assert [one.name for one in tmp_path.iterdir()] == ["table.pkl"]


@pytest.mark.parametrize("name", LIVE)
def test_the_attacks_are_live(name, tmp_path):
    canary = tmp_path / "canary"
    pickle.loads(pickle.dumps(ATTACKS[name][1](str(canary))))
    assert canary.exists()


def short(text):
    return b"\x8c" + bytes([len(text)]) + text.encode()


def name_of(module, name):
    return short(module) + short(name) + b"\x93"


HAND_WRITTEN = {
    "dotted name": (name_of("pandas.core.frame", "DataFrame.eval") + b".", "DataFrame.eval"),
    "name through a module": (name_of("pandas.core.frame", "sys.modules") + b".", "sys.modules"),
    "class by INST": (b"(S'touch canary'\nios\nsystem\n.", "os.system"),
    "class by OBJ": (b"(cos\nsystem\nS'touch canary'\no.", "os.system"),
    "after POP": (b"cos\nsystem\n(S'touch canary'\ntR0N.", "os.system"),
    "behind a plain frame": (PLAIN[:-1] + b"0cos\nsystem\n(S'touch canary'\ntR.", "os.system"),
    "partial of something else": (
        name_of("functools", "partial") + name_of("pandas.core.frame", "DataFrame") + b"\x85R)R.",
        "functools.partial",
    ),
    "persistent id": (b"Pabc\n.", "PERSID 'abc'"),
    "binary persistent id": (b"K\x01Q.", "BINPERSID"),
    "buffer from outside": (b"\x80\x05\x97.", "NEXT_BUFFER"),
}


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_hand_written_opcodes_are_refused_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    payload, refused = HAND_WRITTEN[name]
    with pytest.raises(ForbiddenPickle, match=re.escape(refused)):
        safe_pickle.load(payload)
    assert not list(tmp_path.iterdir())


def test_a_registered_extension_code_is_refused_even_when_it_is_cached(tmp_path):
    copyreg.add_extension("posix", "mkdir", 0x70)
    try:
        payload = pickle.dumps(Reduced(os.mkdir, str(tmp_path / "canary")), protocol=2)
        pickle.loads(payload)  # now cached: `find_class` would not be called
        (tmp_path / "canary").rmdir()
        with pytest.raises(ForbiddenPickle, match="EXT1 112"):
            safe_pickle.load(payload)
    finally:
        copyreg.remove_extension("posix", "mkdir", 0x70)
        copyreg.clear_extension_cache()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_sets_anything_on_our_classes(protocol):
    """BUILD with a state of slots is `setattr` on any object on the stack."""
    before = dict(vars(safe_pickle.Frame))
    payload = name_of("pandas.core.frame", "DataFrame") + b"N}" + short("state") + b"K\x01s\x86b."
    with pytest.raises(LogError, match="damaged"):
        safe_pickle.load(payload)
    assert dict(vars(safe_pickle.Frame)) == before


BOMBS = {
    "memo": b"N" + b"r" + struct.pack("<I", 2**31 - 1) + b".",
    "bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.",
    "text": b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b"x.",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"x.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 2**50) + b"N.",
    "integer": b"I" + b"9" * 100_000 + b"\n.",
    "cut short": PLAIN[: len(PLAIN) // 2],
    "empty": b"",
    "no pickle": b"PK\x03\x04 a zip",
    "protocol of the future": b"\x80\x63N.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_damage_and_sizes_beyond_the_file_are_refused(name):
    with pytest.raises((LogError, ForbiddenPickle)):
        safe_pickle.load(BOMBS[name])


def test_shapes_beyond_the_data_are_refused():
    array = pickle.dumps(pd.DataFrame({"a": [0.25, 0.5]}), protocol=5)
    lying = array.replace(b"K\x01K\x02\x86", b"K\x01K\x63\x86")
    assert lying != array
    with pytest.raises(LogError, match=r"shape \(1, 99\) must hold 792 bytes, got 16"):
        read(lying)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([1, 2], "a frame is wanted, got list"),
        ({"a": 1}, "a frame is wanted, got dict"),
        (np.zeros(3), "a frame is wanted"),
        (pd.DataFrame({1: [1.0]}), "names of its columns must be text"),
        (pd.DataFrame([[1, 2.0]], columns=["a", "a"]), "column 'a' comes twice"),
        (pd.DataFrame({"a": np.array([1 + 2j])}), "got type 'c16'"),
    ],
)
def test_anything_but_a_frame_of_plain_columns_is_refused(value, says):
    with pytest.raises(LogError, match=re.escape(says)):
        read(pickle.dumps(value))


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (pd.Series([1.0]), "pandas.core.series.Series"),
        (pd.DataFrame({"a": pd.Categorical(["x"])}), "pandas"),
        (pd.DataFrame({"a": pd.to_datetime(["2024-01-01"])}), "pandas"),
    ],
)
def test_other_pandas_objects_are_refused_by_name(value, refused):
    with pytest.raises(ForbiddenPickle, match=refused):
        read(pickle.dumps(value))


CUTS = st.lists(st.tuples(st.integers(0, len(PLAIN) - 1), st.integers(0, 255)), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(CUTS)
def test_changed_bytes_give_a_table_or_one_of_our_errors(changes):
    payload = bytearray(PLAIN)
    for place, value in changes:
        payload[place] = value
    with contextlib.suppress(WiseRouterError):
        read(bytes(payload))


OPCODES = st.sampled_from([bytes([one]) for one in b"(.0129NKMJ)]}te\x85\x86\x87RbasuoQ\x81\x93\x94\x88h\x01\x02"])
PIECES = st.one_of(
    OPCODES, st.sampled_from([name_of(*name.split()) for name in safe_pickle.ALLOWED]), st.just(short("latin1"))
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=25))
def test_any_arrangement_of_the_allowed_names_is_harmless(pieces):
    before = {kind: dict(vars(kind)) for kind in set(safe_pickle.ALLOWED.values())}
    with contextlib.suppress(WiseRouterError):
        read(b"\x80\x04" + b"".join(pieces) + b".")
    assert {kind: dict(vars(kind)) for kind in before} == before


def test_only_one_module_of_ours_knows_pickles():
    """No pickle of a file is loaded unrestricted: nothing else may import pickle, or a loader that uses it.

    The room of parallel runs sends values to workers by pickles of its own, and reads no file.
    """
    loaders = re.compile(
        r"^\s*(import|from) (pickle|dill|cloudpickle|joblib|shelve|marshal)|read_pickle|allow_pickle=True"
    )
    names = ("wiserouter", "wiserouter_litellm", "wiserouter_langchain")
    folders = [Path(place) for name in names for place in find_spec(name).submodule_search_locations]
    texts = {file: file.read_text(encoding="utf-8") for folder in folders for file in folder.rglob("*.py")}
    found = [file for file, text in texts.items() if any(loaders.search(line) for line in text.splitlines())]
    assert [file.name for file in found if file.parent.name != "parallel"] == ["safe_pickle.py"]
    reading = re.compile(r"\bopen\(|\.load\(|read_bytes|Unpickler|Memory\(|memmap|import_module")
    assert not [file.name for file in found if file.parent.name == "parallel" and reading.search(texts[file])]
    assert "super().find_class" not in Path(safe_pickle.__file__).read_text(encoding="utf-8")


def test_the_allowed_names_make_records_only():
    assert all(issubclass(kind, safe_pickle.PickledObject) for kind in safe_pickle.ALLOWED.values())
    assert not {vars(builtins).get(name.split()[1]) for name in safe_pickle.ALLOWED} & set(safe_pickle.ALLOWED.values())
