"""Artifacts from elsewhere: a file that breaks a rule is refused in one line, never a crash and never bad estimates."""

import json
import struct
import subprocess
import sys
import warnings
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.memory import output_and_peak_mb
from wiserouter import Budget, Model, Optimistic, Price, RoutingLog, WiseRouter
from wiserouter.artifacts import file as artifact_file
from wiserouter.artifacts import unzip
from wiserouter.artifacts.file import read_artifact, write_artifact
from wiserouter.artifacts.unzip import MAX_MEMBERS
from wiserouter.errors import ArtifactError, DamagedArtifact, InvalidInput, NoEligibleModel, NotAnArtifact

PROMPTS = [f"question {i} about {'code' if i % 2 else 'cooking'}" for i in range(40)]


def fitted(**options):
    rng = np.random.default_rng(0)
    log = RoutingLog.from_arrays(PROMPTS, rng.random((40, 2)), rng.random((40, 2)), ("a", "b"))
    return WiseRouter.fit(log, n_contexts=2, models=[Model("a", Price(1e-6, 2e-6), 100, 1000)], **options)


SAVED = {
    "means": {},
    "ridge": {"estimator": "ridge"},
    "optimistic": {"policy": Optimistic()},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for name, options in SAVED.items():
        fitted(**options).save(folder / f"{name}.wise")
    return folder


@pytest.fixture
def artifact(saved, tmp_path):
    path = tmp_path / "x.wise"
    path.write_bytes((saved / "means.wise").read_bytes())
    return path


def changed(path, change):
    """Rewrite an artifact with other content, whose hash is right."""
    manifest, arrays = read_artifact(path)
    change(manifest, arrays)
    write_artifact(path, manifest, arrays)


def repacked(path, change):
    """Rewrite the members of an artifact."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def refusal(path):
    with pytest.raises(ArtifactError) as error:
        WiseRouter.load(path)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value)


def put(name, where, value):
    def change(_, arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][where] = value

    return change


ARRAYS = [
    (put("estimates.calls", (0, 0), -5.0), "estimates.calls must hold finite numbers from 0"),
    (put("estimates.cost", (0, 0), -5.0), "estimates.cost must hold"),
    (put("estimates.cost_sq", (0, 0), -1e-9), "estimates.cost_sq must hold"),
    (put("estimates.reward", (0, 0), np.nan), "estimates.reward must hold"),
    (put("estimates.invoked", (0, 0), -5.0), "estimates.invoked must hold"),
    (put("estimates.labels", (0, 0), np.inf), "got inf"),
    (put("estimates.cost", (0, 0), 1e300), "to 1e[+]30, got 1e[+]300"),
    (put("estimates.calls", ..., 0.0), "estimates.cost must be 0 for a model whose estimates.calls are 0"),
    (
        lambda _, arrays: arrays.update({k: array * 0 for k, array in arrays.items() if "es.c" in k}),
        "at least one cost",
    ),
    (put("contexts.centroids", (0, 0), np.nan), "contexts.centroids must hold"),
    (put("contexts.centroids", (0, 0), 1e25), "rows of finite length"),
    (put("contexts.freq", 0, -0.5), "contexts.freq must hold"),
    (put("contexts.freq", 0, 0.9), "freq must hold one share per centroid"),
    (put("encoder.idf", 0, np.nan), "finite"),
    (put("encoder.components", (0, 0), np.inf), "finite"),
    (lambda _, arrays: arrays.update({"estimates.calls": np.ones((3, 2))}), r"must have shape \(2, 2\), got \(3, 2\)"),
    (lambda _, arrays: arrays.update({"estimates.calls": np.ones(4)}), r"got \(4,\)"),
    (lambda _, arrays: arrays.update({"estimates.calls": np.array([["1", "2"]] * 2)}), "must hold numbers, got <U1"),
    (lambda _, arrays: arrays.update({"contexts.freq": np.array(["0.5", "0.5"])}), "must hold numbers"),
    (lambda _, arrays: arrays.update({"contexts.centroids": np.array([["1", "2"]] * 2)}), "must hold numbers"),
    (lambda _, arrays: arrays.update({"contexts.centroids": np.ones((2, 3))}), "dimensions of the centroids"),
    (lambda _, arrays: arrays.update({"estimates.luck": np.ones((2, 2))}), "known ones, got 'estimates.luck'"),
    (lambda _, arrays: arrays.update({"other": np.ones(1)}), "known ones, got 'other'"),
    (lambda _, arrays: arrays.update({"finer.prices.price": np.ones(1)}), "lacks 'finer.prices.spend_usd'"),
    (lambda _, arrays: arrays.pop("estimates.met"), "lacks 'estimates.met'"),
    (lambda _, arrays: arrays.update({"encoder.vocabulary": np.frombuffer(b"[" * 100_000, "u1")}), "restored"),
    (lambda _, arrays: arrays.update({"encoder.vocabulary": np.frombuffer(b'["a"]', "u1")}), "row for each of 1"),
    (lambda _, arrays: arrays.update({"encoder.vocabulary": np.frombuffer(b"[1, 2]", "u1")}), "different terms"),
]


@pytest.mark.parametrize(("change", "says"), ARRAYS)
def test_an_array_that_breaks_a_rule_is_refused(artifact, change, says):
    changed(artifact, change)
    with pytest.raises(DamagedArtifact, match=says):
        WiseRouter.load(artifact)
    refusal(artifact)


RESIDUALS = [
    ("ridge", put("finer.residual.weights", (0, 0), np.nan), "finer.residual.weights must hold"),
    ("ridge", put("finer.residual.offset", (0, 0), np.inf), "finer.residual.offset must hold"),
    ("ridge", put("finer.prices.price", 0, 1e12), "never fall"),
    ("ridge", lambda _, arrays: arrays.update({"finer.residual.offset": np.ones((1, 1))}), "must have shape"),
    ("ridge", lambda _, arrays: arrays.update({"finer.prices.price": np.ones(0)}), "must have shape|never fall"),
    ("ridge", lambda manifest, _: manifest["finer"].update(n_models=3), "the number of models, 2, got 3"),
    ("ridge", lambda manifest, _: manifest["finer"].update(residual=None), "known ones, got 'finer.residual"),
    ("ridge", lambda manifest, _: manifest["finer"].update(residual="oracle"), "got 'oracle'"),
    ("ridge", lambda manifest, _: manifest["finer"].update(residual="neighbours"), "got 'neighbours': fit it again"),
]


@pytest.mark.parametrize(("name", "change", "says"), RESIDUALS)
def test_estimators_of_single_queries_are_checked(saved, tmp_path, name, change, says):
    path = tmp_path / "x.wise"
    path.write_bytes((saved / f"{name}.wise").read_bytes())
    changed(path, change)
    with pytest.raises(DamagedArtifact, match=says):
        WiseRouter.load(path)


MANIFESTS = [
    (lambda m: m["models"][0].update(name=3), "Model.name must be a string"),
    (lambda m: m["models"][0].update(price=[1, 2]), "Model.price must be a JSON object"),
    (lambda m: m["models"][0]["price"].update(input="1"), "Price.input must be a finite number"),
    (lambda m: m["models"][0]["price"].update(input=-1), "Price.input must be a finite number"),
    (lambda m: m["models"][0]["price"].update(input=1e300), "finite and at most 1e[+]30, got 1e[+]300"),
    (lambda m: m["models"][0].update(max_output_tokens=10**400), "an integer of 1329 bits"),
    (lambda m: m["models"][0].update(retired="false"), "Model.retired must be a JSON boolean"),
    (lambda m: m["models"][0].update(speed=1), "speed"),
    (lambda m: m["models"][0].update(name="\ud800"), "surrogates not allowed"),
    (lambda m: m["models"].append(m["models"][0]), "unique"),
    (lambda m: m.update(models={}), "models must be a JSON array"),
    (lambda m: m.update(models=[]), "at least one model"),
    (lambda m: m.update(models=["a", "b"]), "a model must be a JSON object"),
    (lambda m: m.update(policy="offline"), "policy must be a JSON object"),
    (lambda m: m["policy"].update(name=["offline"]), "unhashable"),
    (lambda m: m["policy"].update(settings=[]), "settings must be a JSON object"),
    (lambda m: m["policy"]["settings"].update(accounting="paperback"), "must be 'actual' or 'paper'"),
    (lambda m: m["policy"]["settings"].update(allow_skip="no"), "allow_skip must be a JSON boolean"),
    (lambda m: m.update(policy={"name": "optimistic", "settings": {"alpha": "high"}}), "fit"),
    (lambda m: m.update(encoder="tfidf"), "encoder must be a JSON object"),
    (lambda m: m["encoder"].update(spec=["tfidf"]), "unhashable"),
    (lambda m: m["encoder"].update(settings={"dim": "many"}), "dim must be a whole number"),
    (lambda m: m.update(portraits=[1, 2]), "fit"),
    (lambda m: m["portraits"][0].update(terms="code"), "portraits.terms must be a JSON array"),
    (lambda m: m["portraits"][0].update(terms=[1]), "portraits.terms must be a JSON string"),
    (lambda m: m.update(n_queries="many"), "n_queries must be a whole number"),
    (lambda m: m.update(note=json.loads("[" * 40 + "]" * 40)), "nested at most 32 deep"),
    (lambda m: m.pop("models"), "it lacks 'models'"),
]


@pytest.mark.parametrize(("change", "says"), MANIFESTS)
def test_a_manifest_that_breaks_a_rule_is_refused(artifact, change, says):
    changed(artifact, lambda manifest, _: change(manifest))
    with pytest.raises(DamagedArtifact, match=says):
        WiseRouter.load(artifact)
    refusal(artifact)


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"NaN", b'{"format": 1}', b"\xff", b'{"format":"wiserouter-artifact","version":true}']
)
def test_a_manifest_that_is_none_is_refused(artifact, text):
    repacked(artifact, lambda members: members.update({"manifest.json": text}))
    with pytest.raises(NotAnArtifact, match="not a WISERouter artifact"):
        WiseRouter.load(artifact)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_in_the_manifest_is_refused(artifact, constant):
    def change(members):
        members["manifest.json"] = members["manifest.json"].replace(b'"max_output_tokens":100', b'"max_output_tokens":')
        head, _, rest = members["manifest.json"].partition(b'"max_output_tokens":')
        members["manifest.json"] = head + b'"max_output_tokens":' + constant.encode() + rest

    repacked(artifact, change)
    assert "must be finite" in refusal(artifact)


def npy(shape, descr="<f8", data=b""):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    "data",
    [npy((10**15,)), npy((10**9, 10**9)), npy((-1,)), npy((2,), data=b"\0" * 99), npy((1,), "|O", b"\x80\x04N."), b"x"],
)
def test_an_array_whose_header_lies_is_refused(artifact, data):
    repacked(artifact, lambda members: members.update({"estimates.calls.npy": data}))
    head = with_hash(artifact)
    assert head in refusal(artifact)


def with_hash(path):
    """Give an artifact the hash of its members, and return the name of the changed one."""

    def change(members):
        head = json.loads(members.pop("manifest.json"))
        head["sha256"] = artifact_file._digest(head["content"], members)
        members["manifest.json"] = json.dumps(head).encode()

    repacked(path, change)
    return "'estimates.calls.npy' is not an array of numbers"


def test_an_encrypted_member_is_refused(artifact):
    data = bytearray(artifact.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    artifact.write_bytes(data)
    assert "not encrypted" in refusal(artifact)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_comes_twice_is_refused(artifact):
    with zipfile.ZipFile(artifact, "a") as archive:
        archive.writestr("estimates.calls.npy", b"")
    assert "a member must come once, got 'estimates.calls.npy' twice" in refusal(artifact)


def test_too_many_members_are_refused_before_they_are_listed(artifact):
    with zipfile.ZipFile(artifact, "a") as archive:
        for i in range(MAX_MEMBERS):
            archive.writestr(f"{i}.npy", b"")
    assert f"at most {MAX_MEMBERS} members" in refusal(artifact)


def test_a_zip_bomb_is_refused_by_its_stated_size(artifact):
    with (
        zipfile.ZipFile(artifact, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("bomb.npy", "w") as member,
    ):
        for _ in range(65):
            member.write(bytes(2**24))
    assert "must unpack to at most 1,073,741,824 bytes, got 1,090,5" in refusal(artifact)


LOAD = """
import sys
from wiserouter import WiseRouter
from wiserouter.errors import ArtifactError
try:
    WiseRouter.load(sys.argv[1])
except ArtifactError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_a_zip_bomb_that_states_a_small_size_unpacks_no_more_than_it_states(artifact):
    with (
        zipfile.ZipFile(artifact, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("bomb.npy", "w") as member,
    ):
        for _ in range(60):
            member.write(bytes(2**24))
    size, data = struct.pack("<L", 60 * 2**24), artifact.read_bytes()
    assert data.count(size) >= 1
    artifact.write_bytes(data.replace(size, struct.pack("<L", 1000)))
    said, peak_mb = output_and_peak_mb(LOAD, str(artifact))
    assert "truncated or damaged" in said
    assert peak_mb < 400


def test_nothing_is_saved_that_could_not_be_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(artifact_file, "MAX_UNPACKED_BYTES", 2**24 + 1000)
    with pytest.raises(InvalidInput, match="an artifact must have at most 16,778,216 bytes, got"):
        fitted().save(tmp_path / "x.wise")
    monkeypatch.undo()
    monkeypatch.setattr(artifact_file, "MAX_MANIFEST_BYTES", 1000)
    with pytest.raises(InvalidInput, match="the manifest of an artifact must have at most 1,000 bytes"):
        fitted().save(tmp_path / "x.wise")
    assert list(tmp_path.iterdir()) == []
    assert unzip.MAX_UNPACKED_BYTES == 2**30


def test_what_was_taken_back_after_it_had_faded_is_0_and_saved_as_such(tmp_path):
    router = WiseRouter([Model("a", max_cost_usd=1.0)])
    router.start(Budget(10.0, 10))
    decision = router.decide("x")
    router.estimates.fade(0.25)
    router.release(decision)
    assert router.estimates.invoked.item() == 0.0
    router.save(tmp_path / "x.wise")
    assert read_artifact(tmp_path / "x.wise")[1]["estimates.invoked"].item() == 0.0
    assert WiseRouter.load(tmp_path / "x.wise").estimates.n_invoked == 0


def test_the_command_prints_one_line_and_exits_with_2(artifact):
    changed(artifact, put("estimates.calls", (0, 0), np.nan))
    command = [sys.executable, "-m", "wiserouter.cli", "plan", str(artifact)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {artifact}: estimates.calls must hold finite numbers")
    assert done.stderr.count("\n") == 1


# Any change

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "paper", "optimistic", "epsilon-first", "ridge", "tfidf", "custom"]),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, -1e-12, 1e-320, 1e6, 1e29, 1e31, 1e300, -1e300, np.nan, np.inf, -np.inf])
DTYPES = ["f2", "f4", "f8", ">f8", "i1", "i8", "u1", "?", "U3", "S2", "c16", "M8[s]"]


def places(value, path=()):
    """Yield the path of each value of a JSON object."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def change_manifest(data, manifest):
    *above, last = data.draw(st.sampled_from([path for path in places(manifest) if path]))
    for key in above:
        manifest = manifest[key]
    if data.draw(st.booleans()) and isinstance(manifest, dict):
        del manifest[last]
    else:
        manifest[last] = data.draw(VALUES)


def change_array(data, arrays):
    name = data.draw(st.sampled_from(sorted(arrays)))
    array = arrays[name].copy()
    how = data.draw(st.sampled_from(["number", "all", "shape", "dtype", "drop", "rename", "swap"]))
    if how == "number" and array.size:
        with np.errstate(all="ignore"):
            number = np.array(data.draw(NUMBERS)).astype(array.dtype)
        array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = number
    elif how == "all":
        with np.errstate(all="ignore"):
            array[...] = np.array(data.draw(NUMBERS)).astype(array.dtype)
    elif how == "shape":
        shape = data.draw(st.sampled_from([(), (0,), (1,), (2, 2, 1), (0, 2), (2, 0), (3, 2), (array.size,)]))
        array = np.resize(array, shape)
    elif how == "dtype":
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            array = array.astype(data.draw(st.sampled_from(DTYPES)))
    elif how == "swap":
        array = arrays[data.draw(st.sampled_from(sorted(arrays)))]
    elif how == "rename":
        arrays[data.draw(st.sampled_from(["", "estimates.", "finer.residual.x", "encoder.x"]))] = array
    arrays[name] = array
    if how == "drop":
        del arrays[name]


def check_usable(router):
    with np.errstate(all="ignore"):
        means = router.estimates.means() if router.estimates.calls.any() else None
    for name, array in router.estimates.arrays().items():
        assert np.isfinite(array).all()
        assert (array >= 0).all() or (router.residuals is not None and name in ("cost", "reward", "reward_sq"))
    assert np.isfinite(router.contexts.centroids).all()
    assert router.contexts.freq.sum() == pytest.approx(1.0)
    assert (router.contexts.freq >= 0).all()
    if means is not None:
        assert np.isfinite(means.cost_usd).all()
        assert ((means.reward >= 0) & (means.reward <= 1)).all()
        assert (means.cost_usd >= 0).all() or router.residuals is not None
    router.start(Budget(1e9, 10, on_exhausted="cheapest"))
    by_text = router.encoder is not None
    query = {"text": "a question about code"} if by_text else {"embedding": np.zeros(router.contexts.dim)}
    with suppress(NoEligibleModel), np.errstate(all="ignore"):
        assert router.decide(**query, input_tokens=10).model in router.pool.names


@pytest.mark.parametrize("name", SAVED)
def test_any_change_is_refused_or_leaves_a_router_that_works(saved, tmp_path, name):
    path = tmp_path / "x.wise"
    manifest, arrays = read_artifact(saved / f"{name}.wise")
    refusals = []

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(st.data())
    def check(data):
        copy, others = json.loads(json.dumps(manifest)), dict(arrays)
        for _ in range(data.draw(st.integers(1, 3))):
            if data.draw(st.booleans()):
                change_manifest(data, copy)
            else:
                with suppress(TypeError, ValueError):  # of a conversion that numpy does not have
                    change_array(data, others)
        write_artifact(path, copy, others)
        try:
            with np.errstate(all="ignore"):
                router = WiseRouter.load(path)
        except ArtifactError as error:
            refusals.append(str(error))
            return
        check_usable(router)

    check()
    assert refusals
    assert not any("\n" in one for one in refusals)
