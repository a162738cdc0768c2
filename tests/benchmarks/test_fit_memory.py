"""Time and peak memory of `wiserouter fit` on a log of five million calls: `uv run poe fit-memory`.

Each call has a query of its own, the worst case: every prompt is encoded, and no id comes twice. Memory is the peak of
a process that does nothing else, as /proc has it: `ru_maxrss` would start from the peak of the process that began it.
Of several processes it is that of the largest one. Processor time is that of all processes of a command; time by the
clock needs a machine that does nothing else.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from support.long_logs import write_long_log
from wiserouter.fitting.fit import SAMPLE_QUERIES

ROWS = int(os.environ.get("FIT_ROWS", "5_000_000"))
MOST_MB, MOST_S = 600, 120.0
"""Targets of a fit on five million rows; that of the time is of processor time, divided by the number of processes."""

RUN = """
import resource, sys
from wiserouter.cli import app
app(sys.argv[1:], standalone_mode=False)
if "--jobs" in sys.argv:
    from joblib.externals.loky import get_reusable_executor
    get_reusable_executor().shutdown(wait=True)
from time import process_time
workers = resource.getrusage(resource.RUSAGE_CHILDREN)
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
print(process_time() + workers.ru_utime + workers.ru_stime, max(peak, workers.ru_maxrss), file=sys.stderr)
"""


class Run(NamedTuple):
    """The JSON of a command, its processor time, its time by the clock, and its peak memory."""

    told: dict
    processor_s: float
    clock_s: float
    peak_mb: float


def run(*arguments: object) -> Run:
    """Run a command in a process of its own."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments), "--json"], check=True, capture_output=True, text=True
    )
    clock_s = time.perf_counter() - began
    processor_s, kilobytes = done.stderr.split()[-2:]
    return Run(json.loads(done.stdout), float(processor_s), clock_s, int(kilobytes) / 1_024)


def report(name: str, rows: int, done: Run, note: str = "") -> None:
    times = f"{done.processor_s:>8.1f} s, {done.clock_s:>6.1f} s by the clock"
    print(f"\n{name:<24} {rows:>10,} rows {times} {done.peak_mb:>6.0f} MB  {note}", end="")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak memory is read from /proc")
def test_memory_is_bounded_and_parts_add_up(tmp_path):
    log, parts = tmp_path / "calls.parquet", [tmp_path / f"part{i}.parquet" for i in range(2)]
    write_long_log(log, ROWS)
    for i, part in enumerate(parts):
        write_long_log(part, ROWS // 10, seed=i + 1)
    few = run("fit", parts[0], "-o", tmp_path / "few.wise")
    report("fit", ROWS // 10, few)
    many = run("fit", log, "-o", tmp_path / "many.wise")
    targets = f"targets <= {MOST_S:.0f} s on two cores, <= {MOST_MB} MB"
    report("fit", ROWS, many, f"{many.peak_mb / few.peak_mb:.2f}x for 10x the rows; {targets}")
    together = run("fit", log, "--jobs", 2, "-o", tmp_path / "together.wise")
    report("fit --jobs 2", ROWS, together)
    artifacts = [tmp_path / "many.wise"]
    for part in parts:
        artifacts.append(part.with_suffix(".wise"))
        report("fit --contexts-of", ROWS // 10, run("fit", part, "--contexts-of", artifacts[0], "-o", artifacts[-1]))
    merged = run("merge", *artifacts, "-o", tmp_path / "all.wise")
    told = merged.told
    report("merge of these", told["queries"], merged)
    size = sum(path.stat().st_size for path in artifacts) / len(artifacts) / 1e6
    print(f"\nlog {log.stat().st_size / 1e6:.0f} MB, an artifact {size:.1f} MB")
    assert told["queries"] == told["costs"] == ROWS + 2 * (ROWS // 10)
    assert together.told["sha256"] == many.told["sha256"]
    assert together.processor_s / 2 <= MOST_S
    assert max(many.peak_mb, together.peak_mb) <= MOST_MB
    assert many.peak_mb <= 1.25 * few.peak_mb or ROWS < 10 * SAMPLE_QUERIES  # below that the sample is still growing
