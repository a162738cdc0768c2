"""The numeric constants of the decision and the learning, as the sources and docs/constants.md list them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "wiserouter"
PAGE = ROOT / "docs" / "constants.md"

ROOMS = ("learning", "planning", "budgets", "conversations")
FILES = (
    "fitting/fit.py",
    "fitting/fit_residuals.py",
    "judging/agreement.py",
    "judging/settings.py",
    "pricing/pool.py",
    "pricing/prior_scores.py",
    "prompts/contexts.py",
    "prompts/encoders/tfidf.py",
    "prompts/short_answers.py",
    "routing/conversation_calls.py",
    "routing/decider.py",
    "routing/keyed_draws.py",
    "routing/label_budget.py",
    "routing/unspent.py",
)
KINDS = ("choice", "setting", "grid", "derived", "fact", "refresh", "notice", "limit", "rounding")


class Constant(NamedTuple):
    """A constant: its file below the core, its name, and its value as the source writes it."""

    file: str
    name: str
    value: str

    def __str__(self) -> str:
        return f"| `{self.file}` | `{self.name}` | `{self.value}` |"


def in_sources() -> Iterator[Constant]:
    """Yield the constants of the modules, and the defaults of arguments and fields other than 0 and 1."""
    paths = [path for room in ROOMS for path in sorted((CORE / room).rglob("*.py"))] + [CORE / name for name in FILES]
    for path in paths:
        tree, file = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(CORE).as_posix()
        for statement in tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value and is_number(statement.value):
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                yield Constant(file, ast.unparse(target), ast.unparse(statement.value))
        for owner, name, value in defaults(tree):
            yield Constant(file, f"{owner}({name})", value)


def is_number(node: ast.expr) -> bool:
    """Return True for a number, an expression of numbers, or a tuple of these."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return bool(parts) and all(map(is_number, parts))
    return False


def defaults(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield owner, name and value of each numeric default other than 0 and 1, of arguments and of fields."""
    for owner, node in functions(tree):
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args]
        pairs = [*zip(named[::-1], arguments.defaults[::-1], strict=False)]
        pairs += [(one, value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
        yield from ((owner, one.arg, ast.unparse(value)) for one, value in pairs if is_setting(value))
    for node in ast.walk(tree):
        for field in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(field, ast.AnnAssign) and field.value and is_setting(field.value):
                yield node.name, ast.unparse(field.target), ast.unparse(field.value)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield each function with its name; `__init__` with that of its class."""
    owners = {
        id(method): node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owners.get(id(node), node.name), node


def is_setting(node: ast.expr) -> bool:
    """Return True for a number other than 0 and 1."""
    return isinstance(node, ast.Constant) and is_number(node) and node.value not in {0, 1}


ROW = re.compile(r"^\| `([\w/]+\.py)` \| `([^`]+)` \| `([^`]+)` \| (\w+) \| (.+?) \|$", re.MULTILINE)


def on_page() -> dict[Constant, tuple[str, str]]:
    """Return the kind and the reason of each constant on the page."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {Constant(*row[:3]): (row[3], row[4]) for row in rows}
