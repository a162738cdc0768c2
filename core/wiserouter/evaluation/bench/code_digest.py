"""The hash of the code that the rows of a method depend on.

A row depends on the module of its method and of the bench, and on all modules of the package that these import, at any
place. Changed code of one method, or of a room that it does not use, leaves the finished rows of the others valid.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_NAME = re.compile(r"wiserouter(\.\w+)+")
"""A module named in a string, as by registries that import on first use."""

RUN = ("wiserouter.evaluation.bench.serve", "wiserouter.evaluation.bench.splits", "wiserouter.evaluation.bench.metrics")
"""The modules of the bench that every row depends on."""


def digest_of(module: str) -> str:
    """Return the hash of library versions, of a module and the bench, and of all that they import.

    Parameters
    ----------
    module : str
        The module of a method, such as `wiserouter.evaluation.baselines.port`.
    """
    return _hash(frozenset({module, *RUN}))


@cache
def code_digest() -> str:
    """Return the hash of library versions and of all sources of the package."""
    return _hash(frozenset(_modules()), follow=False)


@cache
def _hash(roots: frozenset[str], *, follow: bool = True) -> str:
    import numpy as np
    import sklearn

    digest = hashlib.sha256(f"{np.__version__} {sklearn.__version__}".encode())
    for name in sorted(closure(roots) if follow else roots):
        digest.update(name.encode() + b"\0" + _modules()[name].read_bytes())
    return digest.hexdigest()


def closure(roots: Iterable[str]) -> set[str]:
    """Return some modules and all modules of the package that they import, directly or not; not for type checking.

    Examples
    --------
    >>> found = closure(["wiserouter.evaluation.baselines.nearest_neighbors"])
    >>> "wiserouter.types" in found, "wiserouter.router" in found
    (True, False)
    """
    found: set[str] = set()
    left = list(roots)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _imported(name)
    return found


@cache
def _modules() -> dict[str, Path]:
    """Return the file of every module of the package."""
    import wiserouter

    root = Path(wiserouter.__file__).parent
    files = {path.relative_to(root.parent).with_suffix("").parts: path for path in root.rglob("*.py")}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): path for parts, path in files.items()}


@cache
def _imported(name: str) -> tuple[str, ...]:
    tree = ast.parse(_modules()[name].read_text(encoding="utf-8"))
    return tuple(sorted({each for node in _run(tree) for each in _names(node) if each in _modules()}))


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those below `if TYPE_CHECKING`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield from _run(child)


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node may import: modules, and members of packages."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        members = [f"{node.module}.{alias.name}" for alias in node.names]
        modules = [member for member in members if member in _modules()]
        yield from modules
        if len(modules) < len(members):
            yield node.module
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (named := _NAME.match(node.value)):
        yield named[0]
