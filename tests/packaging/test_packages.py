"""What `import wiserouter` loads, what the wheel's packages say without their extras, and that names are kept."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

import wiserouter
from wiserouter.errors import MissingExtra

ROOT = Path(__file__).parents[2]


def modules_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_import_is_light():
    heavy = {
        "sklearn",
        "scipy",
        "polars",
        "tiktoken",
        "matplotlib",
        "typer",
        "rich",
        "litellm",
        "langchain_core",
        "onnxruntime",
    }
    assert not modules_after("from wiserouter import WiseRouter") & heavy
    assert not modules_after("import wiserouter") & {"numpy"}


def test_the_commands_load_what_they_all_need():
    assert not modules_after("import wiserouter.cli.commands") & {"sklearn", "scipy", "polars", "matplotlib", "joblib"}


def test_deciding_by_embedding_needs_numpy_alone():
    serve = (
        "import wiserouter as w; r = w.WiseRouter([w.Model('a'), w.Model('b')], seed=0); r.start(w.Budget(1.0, 5)); "
        "r.charge(r.decide('hi'), 0.1)"
    )
    assert not modules_after(serve) & {"sklearn", "scipy", "polars", "matplotlib"}


def test_every_public_name_is_there():
    for name in wiserouter.__all__:
        assert hasattr(wiserouter, name), name
    assert len(set(wiserouter.__all__)) == len(wiserouter.__all__)


def test_a_type_checker_finds_the_names_that_an_import_of_all_brings(tmp_path):
    packages = [import_module(name) for name in ("wiserouter", "wiserouter_litellm", "wiserouter_langchain")]
    names = [name for one in packages for name in one.__all__ if not name.startswith("_")]
    script = tmp_path / "script.py"
    imports = [f"from {one.__name__} import *" for one in packages]
    script.write_text("\n".join([*imports, f"[{', '.join(names)}, unknown]"]))
    options = ["--config-file=", f"--cache-dir={os.devnull}", "--follow-imports=skip", "--explicit-package-bases"]
    paths = {str(Path(one.__file__).parents[1]) for one in packages}
    said = subprocess.run(
        [sys.executable, "-m", "mypy", *options, script, *[one.__file__ for one in packages]],
        env={**os.environ, "MYPYPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert re.findall('Name "(.*)" is not defined', said) == ["unknown"], said


def test_names_and_modules_are_loaded_when_they_are_used():
    used = "import wiserouter as w; w.errors.BudgetExhausted; w.Price(1e-7, 4e-7)"
    assert "wiserouter.router" not in modules_after(used)
    assert set(wiserouter.__all__) <= set(dir(wiserouter))
    with pytest.raises(AttributeError, match="module 'wiserouter' has no attribute 'WiseRooter'"):
        wiserouter.WiseRooter  # noqa: B018
    assert not hasattr(wiserouter, "errors.none")


def test_threads_load_names_one_after_another(monkeypatch):
    loading, most = [], []

    def slow_import(module):
        loading.append(module)
        time.sleep(0.02)
        most.append(len(loading))
        loading.remove(module)
        return import_module(module)

    monkeypatch.setattr(wiserouter, "import_module", slow_import)
    for name in ("Price", "Budget", "Plan"):
        monkeypatch.delitem(vars(wiserouter), name, raising=False)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(partial(getattr, wiserouter), ("Price", "Budget", "Plan")))
    assert [one.__name__ for one in found] == ["Price", "Budget", "Plan"]
    assert most == [1, 1, 1]


@pytest.mark.parametrize("loaded", ["numpy", "typer"])
def test_ctrl_c_while_a_command_is_loaded_prints_no_traceback(tmp_path, loaded):
    (tmp_path / f"{loaded}.py").write_text("raise KeyboardInterrupt\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from wiserouter.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "Aborted.\n")


@pytest.mark.parametrize(
    ("package", "needs", "extra"),
    [("wiserouter_litellm", "litellm", "litellm"), ("wiserouter_langchain", "langchain_core", "langchain")],
)
def test_an_adapter_without_its_extra_says_which(monkeypatch, package, needs, extra):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == needs else find_spec(name))
    monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(MissingExtra, match=rf"pip install 'wiserouter\[{extra}\]'"):
        importlib.import_module(package)


def test_a_star_import_leaves_out_what_an_extra_is_missing_for():
    code = (
        "import sys; sys.modules['langchain'] = None\n"
        "from wiserouter_langchain import *\n"
        "print(RunnableWiseRouter.__name__, 'WiseRouterMiddleware' in globals())\n"
        "from wiserouter_langchain import WiseRouterMiddleware"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["RunnableWiseRouter", "False"]
    assert "pip install 'wiserouter[langchain-agents]'" in ended.stderr


def test_pins_stay_where_there_is_no_resolution(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("pin", ROOT / "tests" / "packaging" / "pin.py")
    pin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pin)
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.uv]\nconstraint-dependencies = [\n    "numpy==2.4.6",\n]\n')
    monkeypatch.setattr(pin, "PYPROJECT", project)
    monkeypatch.setattr(pin, "resolve", lambda: ["numpy==2.5.5 ; python_full_version >= '3.12'"])
    pin.main()
    pinned = project.read_text()
    assert "    \"numpy==2.5.5 ; python_full_version >= '3.12'\",\n]" in pinned

    def none():
        raise subprocess.CalledProcessError(1, "uv")

    monkeypatch.setattr(pin, "resolve", none)
    with pytest.raises(subprocess.CalledProcessError):
        pin.main()
    assert project.read_text() == pinned


def test_versions_are_pinned_and_no_registry_is_named():
    text = (ROOT / "pyproject.toml").read_text()
    assert "constraint-dependencies = []" not in text
    assert not (ROOT / "uv.lock").exists() or "uv.lock" in (ROOT / ".gitignore").read_text()
