"""The bench: every method on the same splits of a table, under the same budgets."""

from wiserouter.evaluation.bench.budget_grid import Budgets, budgets_of
from wiserouter.evaluation.bench.results_cache import ResultsCache
from wiserouter.evaluation.bench.runner import Bench, run_bench

__all__ = ["Bench", "Budgets", "ResultsCache", "budgets_of", "run_bench"]
