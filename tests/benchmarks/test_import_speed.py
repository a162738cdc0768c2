"""Time and memory of an import of a million rows of LiteLLM's spend log from a real Postgres.

`uv run poe import-speed`; the memory is that of a process that only imports.
"""

import json
import subprocess
import sys
import time

import pytest

from support.postgres import psycopg
from support.spend_rows import START, fill, row, spend_database

ROWS = 1_000_000

IMPORT = """
import json, resource, sys
from wiserouter.cli import main
sys.argv = ["wiserouter", *json.loads(sys.argv[1])]
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


@pytest.mark.enable_socket
def test_a_million_rows_of_the_spend_log(tmp_path):
    with spend_database() as url:
        fill(url, [row(n) for n in range(10_000)])
        names = list(row(0))
        shifted = ", ".join("request_id || '-' || k" if name == "request_id" else f'"{name}"' for name in names)
        columns = ", ".join(f'"{name}"' for name in names)
        with psycopg.connect(url) as connection:
            connection.execute(
                f'INSERT INTO "LiteLLM_SpendLogs" ({columns}, updated_at) SELECT {shifted}, %s '
                f'FROM "LiteLLM_SpendLogs", generate_series(1, {ROWS // 10_000 - 1}) AS k',
                (START.replace(tzinfo=None),),
            )
        arguments = ["log", "import", "litellm", url, "-o", str(tmp_path / "calls.parquet"), "--json"]
        began_s = time.perf_counter()
        command = [sys.executable, "-c", IMPORT, json.dumps(arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        took_s = time.perf_counter() - began_s
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["calls"] == ROWS
    print(f"{ROWS:,} rows in {took_s:.1f} s, peak memory {int(done.stderr.split()[-1]) / 1024:.0f} MB")
