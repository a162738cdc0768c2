"""Time and peak memory of `wiserouter fit` on a log of five million calls: `uv run poe fit-memory`.

Each call has a query of its own, the worst case: every prompt is encoded, and no id comes twice. Memory is the peak of
a process that does nothing else, as /proc has it: `ru_maxrss` would start from the peak of the process that began it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.long_logs import write_long_log
from wiserouter.fitting.fit import SAMPLE_QUERIES

ROWS = int(os.environ.get("FIT_ROWS", "5_000_000"))
MOST_MB = 600

RUN = """
import sys
from wiserouter.cli import app
app(sys.argv[1:], standalone_mode=False)
from time import process_time
print(process_time(), open("/proc/self/status").read().split("VmHWM:")[1].split()[0], file=sys.stderr)
"""


def run(*arguments: object) -> tuple[dict, float, float]:
    """Return the JSON of a command, the processor time and the peak memory in MB of its process."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments), "--json"], check=True, capture_output=True, text=True
    )
    seconds, kilobytes = done.stderr.split()[-2:]
    return json.loads(done.stdout), float(seconds), int(kilobytes) / 1_024


def report(name: str, rows: int, seconds: float, peak_mb: float, note: str = "") -> None:
    print(f"\n{name:<34} {rows:>10,} rows {seconds:>8.1f} s {peak_mb:>8.0f} MB  {note}", end="")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak memory is read from /proc")
def test_memory_is_bounded_and_parts_add_up(tmp_path):
    log, parts = tmp_path / "calls.parquet", [tmp_path / f"part{i}.parquet" for i in range(2)]
    write_long_log(log, ROWS)
    for i, part in enumerate(parts):
        write_long_log(part, ROWS // 10, seed=i + 1)
    _, few_s, few_mb = run("fit", parts[0], "-o", tmp_path / "few.wise")
    report("fit", ROWS // 10, few_s, few_mb)
    _, many_s, many_mb = run("fit", log, "-o", tmp_path / "many.wise")
    report("fit", ROWS, many_s, many_mb, f"target <= {MOST_MB} MB; {many_mb / few_mb:.2f}x for 10x the rows")
    artifacts = [tmp_path / "many.wise"]
    for part in parts:
        artifacts.append(part.with_suffix(".wise"))
        _, part_s, part_mb = run("fit", part, "--contexts-of", tmp_path / "many.wise", "-o", artifacts[-1])
        report("fit --contexts-of", ROWS // 10, part_s, part_mb)
    told, merge_s, merge_mb = run("merge", *artifacts, "-o", tmp_path / "all.wise")
    report("merge of these", told["queries"], merge_s, merge_mb)
    size = sum(path.stat().st_size for path in artifacts) / len(artifacts) / 1e6
    print(f"\nlog {log.stat().st_size / 1e6:.0f} MB, an artifact {size:.1f} MB")
    assert told["queries"] == told["costs"] == ROWS + 2 * (ROWS // 10)
    assert many_mb <= MOST_MB
    assert many_mb <= 1.25 * few_mb or ROWS < 10 * SAMPLE_QUERIES  # below that the sample is still growing
