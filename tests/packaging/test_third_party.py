"""Every script, style sheet, font, picture and data file is listed with its licence, or is said to be written here."""

import gzip
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "third-party.md").read_text(encoding="utf-8")
PLACES = ("core", "wiserouter_litellm", "wiserouter_langchain", "tests", "examples", "docs")
WRITTEN = {".py", ".pyi", ".md", ".toml", ".yml", ".yaml", ".typed", ".pyc"}
FROM_ELSEWHERE = [re.findall(r"`([\w./-]+)`", row) for row in re.findall(r"^\| `.*", PAGE, re.MULTILINE)]
"""Each file with those that hold its licence."""


def shipped():
    """Return the files of the tree that are neither text of the project nor made by a run."""
    files = (path for place in PLACES for path in (ROOT / place).rglob("*") if path.is_file())
    return {path for path in files if path.suffix not in WRITTEN and not re.search(r"__pycache__|/\.", str(path))}


def written_here():
    return {path for glob in re.findall(r"^- `(.+)`$", PAGE, re.MULTILINE) for path in ROOT.glob(glob)}


def first(pattern, text):
    return re.search(pattern, text)[1]


def test_every_asset_is_listed_or_written_here():
    listed = {ROOT / name for names in FROM_ELSEWHERE for name in names}
    own = {ROOT / "docs" / "deploy" / "Dockerfile", ROOT / "tests" / "packaging" / "public_api.txt"}
    assert sorted(shipped() - listed - written_here() - own) == []


def test_listed_files_and_their_licences_are_there():
    for file, *licences in FROM_ELSEWHERE:
        assert (ROOT / file).is_file(), file
        assert all((ROOT / licence).is_file() for licence in licences)
        assert ROOT / file not in written_here()


def test_the_page_names_the_versions_that_are_there():
    uplot = (ROOT / "wiserouter_litellm/operating/page/assets/vendor/uPlot.js").read_text(encoding="utf-8")
    axe = gzip.decompress((ROOT / "tests/support/axe-core/axe.min.js.gz").read_bytes()).decode()
    prices = (ROOT / "core/wiserouter/evaluation/conversations/list_prices.json").read_text(encoding="utf-8")
    assert f"uPlot {first(r'v([0-9.]+)', uplot)}" in PAGE
    assert f"axe-core {first(r'axe v([0-9.]+)', axe)}" in PAGE
    assert first(r"(LiteLLM [0-9.]+[0-9])", prices) in PAGE


def test_the_wheel_holds_what_the_page_says():
    packages = ("core/", "wiserouter_litellm/", "wiserouter_langchain/")
    rows = re.findall(r"^\| `([\w./-]+)`.*\| (yes|no) \|$", PAGE, re.MULTILINE)
    assert len(rows) == len(FROM_ELSEWHERE)
    assert {file: file.startswith(packages) for file, _ in rows} == {file: said == "yes" for file, said in rows}
