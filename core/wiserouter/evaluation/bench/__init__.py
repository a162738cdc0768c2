"""The bench: every method on the same halves of a table, under the same budgets."""

from wiserouter.evaluation.bench.budget_grid import Budgets, budgets_of
from wiserouter.evaluation.bench.results_cache import CellStore
from wiserouter.evaluation.bench.runner import Bench, run_bench

__all__ = ["Bench", "Budgets", "CellStore", "budgets_of", "run_bench"]
