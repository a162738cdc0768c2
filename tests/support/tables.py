"""The public routing tables, which lie next to the project where they are available."""

from functools import cache
from pathlib import Path

import pytest

from wiserouter import RoutingLog
from wiserouter.evaluation.replay import complete_queries, table_of
from wiserouter.evaluation.table import Table

FOLDER = Path(__file__).parents[3] / "shared" / "data"
ROUTERBENCH, PARETO, SWEBENCH = "routerbench_5shot_slice", "pareto_k4_half", "swebench_verified_mini_10"

needs_tables = pytest.mark.skipif(not FOLDER.is_dir(), reason="the public routing tables are not next to the project")


@cache
def read(name: str) -> Table:
    """Return the complete queries of a table."""
    return complete_queries(table_of(RoutingLog.read(FOLDER / f"{name}.parquet")))[0]
