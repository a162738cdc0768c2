"""docs/constants.md lists every numeric constant of the decision and the learning."""

import re
from collections import Counter

from support.constants import KINDS, PAGE, in_sources, on_page
from wiserouter.evaluation.bench.tuned_constants import TUNED


def test_the_page_lists_every_constant_with_its_value():
    listed, there = set(on_page()), set(in_sources())
    missing, old = sorted(there - listed), sorted(listed - there)
    rule = "each number of the decision and the learning is on docs/constants.md, with its value, kind and reason"
    lines = [rule, "add:", *map(str, missing), "remove:", *map(str, old)]
    assert listed == there, "\n".join(lines)


def test_every_constant_has_a_kind_and_a_reason():
    for constant, (kind, reason) in on_page().items():
        assert kind in KINDS, constant
        assert len(reason) >= 5, constant


def test_the_page_counts_its_kinds():
    counted = Counter(kind for kind, _ in on_page().values())
    stated = dict(re.findall(r"^\| (\w+) \| [^|]+ \| (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {kind: int(count) for kind, count in stated.items()} == counted


def test_the_tuned_constants_are_choices_of_the_page():
    names = {
        f"{constant.file.removesuffix('.py').replace('/', '.')}.{name.strip()}"
        for constant, (kind, _) in on_page().items()
        if kind in {"choice", "refresh"}
        for name in constant.name.strip("()").split(",")
    }
    assert set(TUNED) <= names, sorted(set(TUNED) - names)
