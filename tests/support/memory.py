"""The peak memory of a program in a process of its own."""

import subprocess
import sys

_PEAK = """
with open("/proc/self/status") as status:
    print(next(line for line in status if line.startswith("VmHWM:")).split()[1])
"""


def output_and_peak_mb(code: str, *arguments: str) -> tuple[str, int]:
    """Return the output of a program and its peak memory in MB; not `ru_maxrss`, which includes that of the parent."""
    command = [sys.executable, "-c", code + _PEAK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    output, _, peak_kb = done.stdout.strip().rpartition("\n")
    return output, int(peak_kb) // 1024
