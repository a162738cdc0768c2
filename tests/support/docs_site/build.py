"""Builds the site below build/docs: pages, reference, Markdown twins and `llms.txt`, with warnings as errors.

Run as `uv run poe docs`.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.docs_site import links, pages, reference
from support.docs_site.pages import ROOT

BUILD = ROOT / "build" / "docs"
LOOK = ROOT / "docs" / "site"
CONFIGURATION = "zensical.toml"


class SiteError(Exception):
    """The site has a broken link, or a page with a warning."""


def build(folder: Path = BUILD) -> Path:
    """Build the site in a folder, check it, and return its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    stage(folder)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    site = folder / "site" / version
    run_zensical(folder, version)
    add_twins(folder, site)
    add_versions(site.parent, version)
    refuse(f"a link must lead somewhere, got {one}" for one in links.broken(site))
    refuse(f"a page must load nothing from another host, got {one}" for one in links.other_hosts(site))
    return site


def stage(folder: Path) -> None:
    """Write the pages; a warning about a docstring is an error."""
    warnings = Warnings()
    logging.getLogger("griffe").addHandler(warnings)
    pages.stage(folder / "pages")
    for name in ("site.css", "site.js"):
        shutil.copyfile(LOOK / name, folder / "pages" / name)
    reference.stage(folder / "pages")
    refuse(warnings.texts)


class Warnings(logging.Handler):
    """Keeps the warnings of a logger."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.texts.append(record.getMessage())


def refuse(faults: Any) -> None:
    """Raise an error that names all faults, if there are any."""
    if found := list(faults):
        raise SiteError("\n".join(found))


def run_zensical(folder: Path, version: str) -> None:
    """Render the pages; Zensical ends with an error on the first warning."""
    text = (LOOK / CONFIGURATION).read_text(encoding="utf-8")
    text = text.replace('docs_dir = "pages"', f'docs_dir = "pages"\nsite_dir = "site/{version}"')
    (folder / CONFIGURATION).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SiteError(done.stdout + done.stderr)


def add_twins(folder: Path, site: Path) -> None:
    """Put the Markdown of each page beside it, and the list of all in `llms.txt`."""
    for page in sorted((folder / "pages").rglob("*.md")):
        twin = site / page.relative_to(folder / "pages")
        twin.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, twin)
    project = navigation(folder)
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}"]
    for part in project["nav"]:
        for heading, entries in part.items():
            lines += ["", f"## {heading}", ""]
            lines += [f"- [{name}]({page}){first_sentence(site / page)}" for name, page in entries_of(entries)]
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def navigation(folder: Path) -> dict[str, Any]:
    """Return the project's part of the configuration."""
    return tomllib.loads((folder / CONFIGURATION).read_text(encoding="utf-8"))["project"]


def entries_of(entries: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the page of each entry, those of groups included."""
    for entry in entries:
        for name, page in entry.items():
            if isinstance(page, str):
                yield name, page
            else:
                yield from entries_of(page)


def first_sentence(page: Path) -> str:
    """Return the first sentence of a page as the description of its entry, or nothing where it has only a list."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    prose = next((one for one in text.split("\n\n")[1:] if one.strip() and one.lstrip()[0] not in "#|-<!>["), "")
    sentence = " ".join(prose.split()).split(". ")[0].rstrip(".:")
    return f": {sentence}." if sentence else ""


def add_versions(root: Path, version: str) -> None:
    """Write the list from which pages offer other versions, and a page that leads to this one."""
    entry = [{"version": version, "title": version, "aliases": ["latest"]}]
    (root / "versions.json").write_text(json.dumps(entry), encoding="utf-8")
    moved = f'<meta http-equiv="refresh" content="0; url={version}/"><a href="{version}/">WISERouter {version}</a>'
    page = f'<!doctype html><html lang="en"><title>WISERouter</title>{moved}</html>\n'
    (root / "index.html").write_text(page, encoding="utf-8")


def main() -> None:
    """Build, and say where the site is."""
    try:
        site = build()
    except SiteError as error:
        sys.exit(str(error))
    n_pages = len(list(site.rglob("*.html")))
    print(f"{n_pages} pages without a warning or a broken link: {site.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
