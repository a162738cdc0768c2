"""Time and peak memory of the allocation of a batch of 1,000,000 queries over ten models."""

import subprocess
import sys

QUERIES = 1_000_000
MOST_S, MOST_MB = 10.0, 2_000

RUN = """
import sys
from time import perf_counter
import numpy as np
from wiserouter.planning.batch_allocation import BatchProgram
rng = np.random.default_rng(0)
shape = int(sys.argv[1]), 10
reward, cost = rng.random(shape), rng.random(shape) * np.geomspace(1.0, 50.0, 10)
began = perf_counter()
program = BatchProgram(reward, cost)
found = program.allocate(2.0 * program.floor_usd)
took = perf_counter() - began
assert found.expected_cost_usd <= 2.0 * program.floor_usd
print(took, open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def test_a_million_queries_are_allocated_in_seconds():
    done = subprocess.run([sys.executable, "-c", RUN, str(QUERIES)], check=True, capture_output=True, text=True)
    seconds, kilobytes = done.stdout.split()
    peak_mb = int(kilobytes) / 1_024
    print(f"\n{'batch allocation':<34} {QUERIES:>10,} queries {float(seconds):>6.1f} s {peak_mb:>8.0f} MB", end="")
    assert float(seconds) <= MOST_S
    assert peak_mb <= MOST_MB


CAPACITIES = """
import sys
from time import perf_counter
import numpy as np
from wiserouter.planning.batch_capacity import CapacityProgram
rng = np.random.default_rng(0)
n = int(sys.argv[1])
reward, cost = rng.random((n, 10)), rng.random((n, 10)) * np.geomspace(1.0, 50.0, 10)
began = perf_counter()
program = CapacityProgram(reward, cost, [int(0.3 * n)] * 10)
found = program.allocate(2.0 * cost.min(axis=1).sum())
assert found.bound - found.expected_reward < 3.0
print(perf_counter() - began)
"""


def test_a_hundred_thousand_different_queries_are_allocated_within_capacities_in_less_than_a_minute():
    done = subprocess.run([sys.executable, "-c", CAPACITIES, "100000"], check=True, capture_output=True, text=True)
    print(f"\n{'with capacities':<34} {100_000:>10,} queries {float(done.stdout):>6.1f} s", end="")
    assert float(done.stdout) <= 60.0
