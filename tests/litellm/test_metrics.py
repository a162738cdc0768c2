"""The kinds of faults in the metrics are those that the adapter counts."""

import re
from pathlib import Path

import wiserouter_litellm
from wiserouter_litellm.metrics import FAULTS

SOURCES = Path(wiserouter_litellm.__file__).parent.glob("*.py")
KIND = re.compile(r"""\.(?:fault\(\s*|faults\[)"([a-z_]+)\"""")
CONDITIONAL = re.compile(r"""\.fault\("([a-z_]+)" if .+? else "([a-z_]+)\"""")


def test_every_kind_of_fault_is_shown_from_the_start():
    kinds = {"encoder"}  # counted by the lookup of contexts
    for path in SOURCES:
        text = path.read_text()
        kinds |= set(KIND.findall(text)) | {kind for pair in CONDITIONAL.findall(text) for kind in pair}
    assert kinds == set(FAULTS)
