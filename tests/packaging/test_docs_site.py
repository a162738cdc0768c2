"""The site of the documentation: built without a warning, with every page in its place, and legible to all."""

import ast
import json
import re
import tomllib

import pytest
import yaml

from support.browser import CHROMIUM
from support.docs_site import links
from support.docs_site.build import LOOK, SiteError, build, entries_of, first_sentence, refuse
from support.docs_site.pages import ROOT, place, rewritten
from support.docs_site.visit import faults

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SAMPLE = ("index.html", "results/index.html", "reference/settings/index.html", "reference/commands/index.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("docs"))


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_with_twins_of_every_page(site):
    assert (site / "index.html").is_file()
    assert json.loads((site.parent / "versions.json").read_text())[0]["version"] == site.name
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 100
    assert {page.relative_to(site) for page in pages} == {
        twin.relative_to(site).with_suffix(".html")
        if twin.name == "index.md"
        else twin.relative_to(site).with_suffix("") / "index.html"
        for twin in site.rglob("*.md")
    }
    assert [line for line in (site / "llms.txt").read_text().splitlines() if line.startswith("## ")] == [
        f"## {name}" for name in ("Start", "Guides", "Concepts", "Reference", "Evidence", "Decisions")
    ]


@pytest.mark.slow
def test_the_reference_has_every_public_name_every_command_and_every_setting(site):
    import wiserouter
    import wiserouter_langchain
    import wiserouter_litellm

    for package in (wiserouter, wiserouter_langchain, wiserouter_litellm):
        text = (site / "reference" / f"{package.__name__}.md").read_text()
        assert {name for name in package.__all__ if not name.startswith("__")} <= set(
            re.findall(r"^## `(\w+)`", text, re.M)
        )
    assert "#### " not in (site / "reference" / "errors.md").read_text()
    assert "`wiserouter data routerbench`" in (site / "reference" / "commands.md").read_text()
    assert "| `budget_usd` | number above 0 | required | The amount" in (site / "reference" / "settings.md").read_text()
    assert "| `wiserouter_decisions_total` | counter |" in (site / "reference" / "metrics.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_pages_have_no_error_on_the_console_and_no_serious_finding_of_axe_core(site, tmp_path):
    assert list(faults(site, [site / name for name in SAMPLE], tmp_path)) == []


def test_a_page_is_described_by_its_first_sentence_and_not_by_code(tmp_path):
    page = tmp_path / "page.md"
    code = "# Budgets\n\n```python\nimport a\n\na.run()\n```\n"
    for text, said in ((code, ""), (f"{code}\n## Use\n\n`a` runs. Or not.\n", ": `a` runs.")):
        page.write_text(text, encoding="utf-8")
        assert first_sentence(page) == said


def test_each_guide_is_in_the_navigation():
    project = tomllib.loads((LOOK / "zensical.toml").read_text(encoding="utf-8"))["project"]
    listed = {page for part in project["nav"] for entries in part.values() for _, page in entries_of(entries)}
    guides = {place(page.relative_to(ROOT).as_posix()) for page in PAGES if page.parent.name != "adr"}
    assert guides <= listed


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here">1</a><a href="b.html#gone">2</a><a href="c.html">3</a>')
    (tmp_path / "b.html").write_text('<p id="here">text</p><img src="none.png"><a href="https://example.com">4</a>')
    assert links.broken(tmp_path) == ["a.html: b.html#gone", "a.html: c.html", "b.html: none.png"]
    (tmp_path / "c.html").write_text(
        '<script src="https://example.com/x.js"></script><a href="https://example.com">5</a>'
    )
    assert list(links.other_hosts(tmp_path)) == ["c.html: https://example.com/x.js"]
    with pytest.raises(SiteError, match="gone"):
        refuse(links.broken(tmp_path))


def test_links_move_with_their_pages():
    linked = set()
    block = "\n```\n[no](link.md)\n```\n"
    text = f"[`code`](../examples/11_judge.py){block}[start](first-day.md#nothing) [top](../README.md)"
    assert rewritten(text, "docs/judge.md", linked) == (
        f"[`code`](examples/11_judge.py.md){block}[start](first-day.md#nothing) [top](index.md)"
    )
    assert linked == {"examples/11_judge.py", "docs/first-day.md", "README.md"}
    with pytest.raises(FileNotFoundError, match=r"gone\.md"):
        rewritten("[gone](gone.md)", "docs/judge.md", linked)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_of_code_are_of_their_language(page):
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "json":
            json.loads(text)
        elif language == "yaml":
            list(yaml.safe_load_all(text))
        elif language == "toml":
            tomllib.loads(text)
        elif language == "python" and ">>> " not in text:
            ast.parse(text)
