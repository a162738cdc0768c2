"""A fit now and before it read many texts at once, in one run: `uv run poe bench`; needs the repository's history."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.long_logs import write_long_log

FORMER = "bef4005d90"
ROWS, ROUNDS = 200_000, 2
LEAST_RATIO = 2.0

FIT = """
import sys
from time import process_time
from wiserouter import WiseRouter
WiseRouter.fit(sys.argv[1])
print(process_time())
"""


@pytest.fixture
def former(tmp_path):
    """Return the sources of the core at the former commit."""
    root, folder = Path(__file__).parents[2], tmp_path / "former"
    added = subprocess.run(["git", "worktree", "add", "-q", "--detach", folder, FORMER], cwd=root, check=False)
    if added.returncode:
        pytest.skip(f"the commit {FORMER} is not in this repository")
    yield folder / "core"
    subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=root, check=True)


def seconds(log, core):
    """Return the processor time of a process that fits a log."""
    environment = {**os.environ, "PYTHONPATH": str(core)}
    program = [sys.executable, "-c", FIT, log]
    done = subprocess.run(program, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def test_a_fit_takes_less_time_than_before(tmp_path, former):
    write_long_log(tmp_path / "calls.parquet", ROWS)
    places = (former, Path(__file__).parents[2] / "core")
    rounds = [[seconds(tmp_path / "calls.parquet", place) for place in places] for _ in range(ROUNDS)]
    before, now = zip(*rounds, strict=True)
    ratio = min(before) / min(now)
    print(
        f"\nfit of {ROWS:,} calls: {min(now):.1f} s of processor time, before {min(before):.1f}: {ratio:.1f}x", end=""
    )
    assert ratio >= LEAST_RATIO
