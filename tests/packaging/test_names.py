"""The names, the words and the sizes that the sources of the three packages keep to.

Each test collects all offenders and fails once, with a line for each.
"""

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "wiserouter"
PACKAGES = (CORE, ROOT / "wiserouter_litellm", ROOT / "wiserouter_langchain")

# Names of earlier versions, by where they may no longer be defined. "" is everywhere. A plain word that is right
# elsewhere (a time window, a stored record, to ask a provider) is listed with the folders in which it had another
# meaning.
OLD_NAMES = {
    "": """
        Ledgers ruling heir _hand_down Outlook Past look_ahead
        Caution cautious_usd walk_usd Basis Trials basis_of Facts FollowingPlan
        Finer Particulars judges_embeddings Standing Survey Belief believed
        Sitter Portrait NamesTerms portraits_of Placing Placed aplace aside _aside
        Sharing News heard hear Wire Ends Views
        _ahead _held_ahead _see_to _known_again _restoring Reading Opened
        Berth Fleet take_in Offered Offer Asked Selected Payers OwnBudget NamedByProgram
        Arm arm_of arms_of Turn begin_turn _aturn Trail Tariff Ask
        Arena Halves Purse Exhibit Findings foretold
        GROWTH AT_ONCE SHORT _SHORT
    """,
    "core/wiserouter/budgets": "miss _miss",
    "core/wiserouter/evaluation": "Record",
    "core/wiserouter/integration": "place",
    "core/wiserouter/learning": "turn _turn Row",
    "core/wiserouter/planning": "Row Step",
    "core/wiserouter/router.py": "turn _turn",
    "core/wiserouter/routing": "turn _turn",
    "core/wiserouter/stores": "ask tell beat survey Step Window View Chain _show _look turn _turn",
    "wiserouter_langchain": "Bill Trace names_of place _turn",
    "wiserouter_litellm": """
        Bill MARK NOTE Request Scopes marked name_of names_asked names_of noted passed_on place welcome
    """,
}
OLD_PARAMETERS = {"finer"}

SAME_CLASS_NAME: dict[str, str] = {}
"""Class names that stand in several modules, each with the reason."""

MAX_ROOT_FILES = 6  # `__init__.py router.py types.py validation.py errors.py py.typed`
MAX_LINES, MAX_ROUTER_LINES = 400, 520

UNUSED_WORDS = re.compile(r"\b(anew|dearest|dearer|nobody|somebody|whoever)\b", re.IGNORECASE)
INDIRECT_RETURN = re.compile(r"\s*Return (what|how|whether)\b")


class Source(NamedTuple):
    """One module: its path from the root of the project, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module


class Place(NamedTuple):
    """A line, and what stands there."""

    path: str
    line: int
    found: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.found}"


@cache
def sources() -> tuple[Source, ...]:
    paths = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return tuple(Source(path, text, ast.parse(text, path)) for path, text in texts.items())


def expect_none(offenders: Iterable[Place | str], rule: str) -> None:
    lines = sorted(map(str, offenders))
    if lines:
        pytest.fail("\n".join([f"{len(lines)} x {rule}", *lines]), pytrace=False)


def targets(node: ast.stmt) -> Iterator[tuple[str, int]]:
    """Yield the names that an assignment binds."""
    assigned = (
        node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    )
    for target in assigned:
        yield from ((name.id, name.lineno) for name in ast.walk(target) if isinstance(name, ast.Name))


def definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each class, function and method, and what modules and classes assign; with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement in node.body:
                yield from targets(statement)


def is_below(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(f"{folder}/")


def old_names(path: str) -> set[str]:
    return {name for folder, names in OLD_NAMES.items() if is_below(path, folder) for name in names.split()}


def parameters(tree: ast.Module) -> Iterator[tuple[str, int]]:
    return ((node.arg, node.lineno) for node in ast.walk(tree) if isinstance(node, ast.arg))


def docstrings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the strings that stand alone: docstrings of modules, classes, functions and attributes; with their line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value, node.lineno


def comments(text: str) -> Iterator[tuple[str, int]]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return ((token.string, token.start[0]) for token in tokens if token.type == tokenize.COMMENT)


def prose_lines(source: Source) -> Iterator[tuple[str, int]]:
    """Yield each line of the docstrings and the comments, with its number."""
    for text, first in (*docstrings(source.tree), *comments(source.text)):
        yield from ((line, first + i) for i, line in enumerate(text.split("\n")))


def test_the_list_of_old_names_refers_to_folders_that_exist():
    missing = [folder for folder in OLD_NAMES if not (ROOT / folder).exists()]
    assert not missing, missing


def test_no_old_name_is_defined():
    offenders = [
        Place(source.path, line, name)
        for source in sources()
        for old in [old_names(source.path)]
        for name, line in definitions(source.tree)
        if name in old
    ]
    expect_none(offenders, "name of an earlier version")


def test_no_parameter_has_an_old_name():
    offenders = [
        Place(source.path, line, name)
        for source in sources()
        for name, line in parameters(source.tree)
        if name in OLD_PARAMETERS
    ]
    expect_none(offenders, "parameter name of an earlier version")


def test_each_class_name_stands_in_one_module():
    places = defaultdict(list)
    for source in sources():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(Place(source.path, node.lineno, f"class {node.name}"))
    several = {name for name, found in places.items() if len({place.path for place in found}) > 1}
    offenders = [f"{name}: " + ", ".join(map(str, places[name])) for name in sorted(several - SAME_CLASS_NAME.keys())]
    expect_none(offenders, "class name in several modules")
    assert SAME_CLASS_NAME.keys() <= several, "exceptions that are no longer needed"


def test_a_docstring_says_what_is_returned_and_not_that_something_is():
    offenders = [
        Place(source.path, line, text.strip().split("\n")[0])
        for source in sources()
        for text, line in docstrings(source.tree)
        if INDIRECT_RETURN.match(text)
    ]
    expect_none(offenders, "docstring that begins with Return what, how or whether")


def test_prose_keeps_to_plain_words():
    offenders = [
        Place(source.path, line, f"{word.lower()!r}: {text.strip()}")
        for source in sources()
        for text, line in prose_lines(source)
        for word in UNUSED_WORDS.findall(text)
    ]
    expect_none(offenders, "word that our prose does not use")


def test_the_root_of_the_core_stays_small():
    files = sorted(path.name for path in CORE.iterdir() if path.is_file())
    assert len(files) <= MAX_ROOT_FILES, f"{len(files)} files, at most {MAX_ROOT_FILES}: {' '.join(files)}"


def test_files_stay_short():
    limits = {"core/wiserouter/router.py": MAX_ROUTER_LINES}
    offenders = [
        Place(source.path, n_lines, f"lines, at most {limit}")
        for source in sources()
        if not is_below(source.path, "core/wiserouter/testing")
        if (n_lines := len(source.text.splitlines())) > (limit := limits.get(source.path, MAX_LINES))
    ]
    expect_none(offenders, "long file")


def test_import_contracts_see_imports_for_type_checking():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    assert settings["exclude_type_checking_imports"] is False
