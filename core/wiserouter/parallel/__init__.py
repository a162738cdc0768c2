"""Tasks over processes and machines, by joblib and the engines that it knows."""

from wiserouter.parallel.backends import BACKENDS, CLUSTERS, parallel_backend
from wiserouter.parallel.shared import Shared
from wiserouter.parallel.tasks import run_each, run_in_order

__all__ = ["BACKENDS", "CLUSTERS", "Shared", "parallel_backend", "run_each", "run_in_order"]
