"""The reference of a package: signatures and docstrings of its public names, read by griffe without an import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import griffe

from support.docs_site.pages import ROOT

PACKAGES = ("wiserouter", "wiserouter_litellm", "wiserouter_langchain")

_OPTIONS: Any = {"warn_unknown_params": False}  # a class whose base takes the arguments describes them itself


def package(name: str) -> griffe.Module:
    """Return a package as griffe reads it, with the targets of imported names."""
    return _packages()[name]


@cache
def _packages() -> griffe.ModulesCollection:
    """Return all packages: their names refer to each other, and reading them takes seconds."""
    loader = griffe.GriffeLoader(
        search_paths=[str(ROOT / one) for one in ("core", ".")], docstring_parser="numpy", docstring_options=_OPTIONS
    )
    for one in PACKAGES:
        loader.load(one)
    loader.resolve_aliases()
    return loader.modules_collection


def exported(name: str) -> dict[str, griffe.Object]:
    """Return the public objects of a package by name, in the order of the alphabet."""
    homes = {one.name: one for one in package(name).members.values() if one.is_alias and not one.runtime}
    return {one: homes[one].final_target for one in sorted(homes)}  # type: ignore[attr-defined]


def public_members(thing: griffe.Object) -> Iterator[griffe.Object]:
    """Yield the documented public methods and properties of a class, those of its own bases included."""
    for name, member in sorted(thing.all_members.items()):
        one = member.final_target if member.is_alias else member
        if not name.startswith("_") and one.docstring and (one.is_function or one.is_attribute):
            yield one


def page(name: str) -> str:
    """Return the reference of a package as Markdown."""
    things = exported(name)
    index = "\n".join(f"- [`{one}`](#{anchor(one)}): {summary(thing)}" for one, thing in things.items())
    parts = [section(thing, one, 2) for one, thing in things.items()]
    return f"# The package {name}\n\n{package(name).docstring.value}\n\n{index}\n\n" + "\n".join(parts)


def error_page() -> str:
    """Return the tree of the errors and the reference of each."""
    module = package("wiserouter")["errors"]
    drawn = module.docstring.value.replace("::\n", "", 1)
    names = [one for one in module.classes.values() if not one.name.startswith("_")]
    tree = drawn[drawn.index("    WiseRouterError") : drawn.index("\n\n`ThinOverlap`")]
    return f"# Errors\n\n{drawn.splitlines()[0]}\n\n```text\n{tree}\n```\n\n" + "\n".join(
        section(one, one.name, 2) for one in names
    )


def anchor(text: str) -> str:
    """Return the anchor of a heading that is one name."""
    return text.lower()


def summary(thing: griffe.Object) -> str:
    """Return the first sentence of a docstring."""
    return thing.docstring.value.split("\n\n")[0].replace("\n", " ") if thing.docstring else ""


def section(thing: griffe.Object, heading: str, level: int) -> str:
    """Return the heading, signature and docstring of a class or function, and of the methods of a class."""
    lines = [f"{'#' * level} `{heading}`", "", *signature(thing, heading)]
    lines += [
        text for part in (thing.docstring.parsed if thing.docstring else []) for text in (_SHOWN[part.kind](part), "")
    ]
    if thing.is_class:
        lines += [section(one, f"{heading}.{one.name}", level + 1) for one in public_members(thing)]
    return "\n".join(lines) + "\n"


def signature(thing: griffe.Object, name: str) -> list[str]:
    """Return the call of a class or function, or the type of an attribute, as a block of code."""
    if thing.is_attribute:
        return [f"```python\n{name}: {thing.annotation}\n```", ""] if thing.annotation else []
    if thing.is_class and thing.bases and not arguments(thing):
        return [f"```python\nclass {name}({', '.join(map(str, thing.bases))})\n```", ""]
    return call(thing, name)


def call(thing: griffe.Object, name: str) -> list[str]:
    """Return a signature, one argument a line where it is long."""
    given = arguments(thing)
    returns = f" -> {thing.returns}" if thing.is_function and thing.returns else ""
    line = f"{name}({', '.join(given)}){returns}"
    if len(line) > 88:
        line = f"{name}(\n" + "".join(f"    {one},\n" for one in given) + f"){returns}"
    return [f"```python\n{line}\n```", ""]


def arguments(thing: griffe.Object) -> list[str]:
    """Return the arguments of a call with annotations and defaults."""
    found: list[str] = []
    marks = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    starred = False
    for one in thing.parameters:
        if one.name in {"self", "cls"}:
            continue
        if one.kind is griffe.ParameterKind.keyword_only and not starred:
            found.append("*")
        starred = starred or one.kind in {griffe.ParameterKind.keyword_only, griffe.ParameterKind.var_positional}
        annotation = f": {one.annotation}" if one.annotation else ""
        default = f" = {one.default}" if one.default is not None and one.kind not in marks else ""
        found.append(f"{marks.get(one.kind, '')}{one.name}{annotation}{default}")
    return found


def table(first: str) -> Callable[[Any], str]:
    """Return a function that shows a section of names, types and descriptions."""

    def shown(part: Any) -> str:
        rows = "".join(f"| `{one.name}` | {cell(one.annotation)} | {cell(one.description)} |\n" for one in part.value)
        return f"| {first} | type | |\n|---|---|---|\n{rows}"

    return shown


def returned(part: Any) -> str:
    """Return the section of what a call returns."""
    return "\n".join(f"Returns {code(one.annotation)}: {flat(one.description)}" for one in part.value)


def raised(part: Any) -> str:
    """Return the section of the errors of a call."""
    return "".join(f"- raises {code(one.annotation)}: {flat(one.description)}\n" for one in part.value)


def examples(part: Any) -> str:
    """Return the examples of a docstring."""
    return "\n\n".join(
        f"```pycon\n{text}\n```" if kind is griffe.DocstringSectionKind.examples else text for kind, text in part.value
    )


def noted(part: Any) -> str:
    """Return a titled paragraph, such as the notes."""
    return f"**{part.title or 'Notes'}.** {part.value.contents}"


def code(annotation: Any) -> str:
    """Return a type as code."""
    return f"`{annotation}`" if annotation else ""


def cell(text: Any) -> str:
    """Return a text as a cell of a table."""
    return flat(str(text or "")).replace("|", "\\|")


def flat(text: str) -> str:
    """Return a text as one line."""
    return " ".join(text.split())


_KIND = griffe.DocstringSectionKind
_SHOWN: dict[griffe.DocstringSectionKind, Callable[[Any], str]] = {
    _KIND.text: lambda part: part.value,
    _KIND.parameters: table("argument"),
    _KIND.other_parameters: table("argument"),
    _KIND.attributes: table("attribute"),
    _KIND.returns: returned,
    _KIND.yields: returned,
    _KIND.raises: raised,
    _KIND.examples: examples,
    _KIND.admonition: noted,
}
