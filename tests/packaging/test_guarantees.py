"""What docs/guarantees.md and SECURITY.md promise names the tests that hold it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/guarantees.md", "SECURITY.md")
NAMED_TEST = re.compile(r"`(tests/[\w/.]+)(?:::\w+)?`")
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page):
    named = set(NAMED_TEST.findall((ROOT / page).read_text()))
    assert named
    assert not sorted(name for name in named if not (ROOT / name).exists())


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_names_a_test(page):
    untested, held = [], False
    for line in (ROOT / page).read_text().splitlines():
        held = line.startswith("|") and (held or line.endswith("| tested in |"))
        untested += (
            [line] if held and "---" not in line and "tested in" not in line and not NAMED_TEST.search(line) else []
        )
    assert not untested


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    links = [link for link in LINK.findall(path.read_text()) if "://" not in link]
    assert not sorted(link for link in links if not (path.parent / link).exists())
