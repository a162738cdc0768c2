"""The public API, a line per name and method with its signature; `uv run poe api` compares it with the recorded one."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

from support.docs_site import api

RECORD = Path(__file__).parents[1] / "packaging" / "public_api.txt"
REMEDY = (
    "The public API must be the recorded one. Undo the change, or record it by `uv run poe api --write` and say so in "
    "CHANGELOG.md."
)


def lines() -> list[str]:
    """Return the lines of the public API, in order."""
    packages = [line for name in api.PACKAGES for line in lines_of(api.exported(name), name)]
    module = api.package("wiserouter")["errors"]
    errors = {one.name: one for one in module.classes.values() if not one.name.startswith("_")}
    return sorted(packages + list(lines_of(errors, "wiserouter.errors")))


def lines_of(things: dict[str, griffe.Object], home: str) -> Iterator[str]:
    """Yield the lines of the names of a module: each with its methods, fields and properties."""
    for name, thing in things.items():
        yield f"{home}.{described(thing, name)}"
        if thing.is_class:
            yield from (f"{home}.{described(one, f'{name}.{one.name}')}" for one in members(thing))


def members(thing: griffe.Object) -> Iterator[griffe.Object]:
    """Yield the public members of a class, those of the project's own bases included."""
    for name, member in sorted(thing.all_members.items()):
        one = member.final_target if member.is_alias else member
        if not name.startswith("_") and (one.is_function or one.is_attribute):
            yield one


def described(thing: griffe.Object, name: str) -> str:
    """Return a name with its signature, its type, or its bases."""
    if thing.is_attribute:
        return f"{name}: {thing.annotation}" if thing.annotation else name
    bases = f" of {', '.join(map(str, thing.bases))}" if thing.is_class and thing.bases else ""
    returns = f" -> {thing.returns}" if thing.is_function and thing.returns else ""
    return f"{name}({', '.join(api.arguments(thing))}){returns}{bases}"


def differences() -> list[str]:
    """Return the lines that differ from the record, those that are gone marked by - and new ones by +."""
    recorded = RECORD.read_text(encoding="utf-8").splitlines()
    return [line for line in difflib.ndiff(recorded, lines()) if line[0] in "+-"]


def main() -> None:
    """Compare, or write the record."""
    if sys.argv[1:] == ["--write"]:
        RECORD.write_text("\n".join(lines()) + "\n", encoding="utf-8")
    elif found := differences():
        sys.exit("\n".join([*found, REMEDY]))
    print(f"{len(lines())} names of the public API are as recorded in tests/packaging/{RECORD.name}")


if __name__ == "__main__":
    main()
