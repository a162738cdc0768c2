"""The changelog: it names the version of the package, and no public name has two entries."""

import re
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_version_of_the_package_has_a_section():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert re.search(rf"^## \[{re.escape(version)}\]", TEXT, re.MULTILINE)


def test_no_name_has_two_entries_that_introduce_it():
    introduced = Counter(re.findall(r"^- (`[^`]+`):", TEXT, re.MULTILINE))
    assert [name for name, times in introduced.items() if times > 1] == []
