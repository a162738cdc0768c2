"""Backends of joblib by name: its own processes and threads, and clusters of Dask, Ray and Spark."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from wiserouter.errors import InvalidInput, MissingExtra

_LOCAL = ("loky", "threading")


@contextmanager
def _dask(address: str | None) -> Iterator[None]:
    import joblib
    from distributed import Client

    with Client(address), joblib.parallel_config(backend="dask"):  # type: ignore[no-untyped-call]
        yield


@contextmanager
def _ray(address: str | None) -> Iterator[None]:
    if address is None:  # begun by `uv run`, Ray would make this environment again for each of its workers
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    import joblib
    import ray
    from ray.util.joblib import register_ray

    started = not ray.is_initialized()
    if started:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    register_ray()  # type: ignore[no-untyped-call]
    try:
        with joblib.parallel_config(backend="ray"):
            yield
    finally:
        if started:
            ray.shutdown()


_LOCAL_SPARK = "local[*,4]"
"""All cores of this machine; a task is tried four times, as on a cluster, since each of its workers may be lost."""


@contextmanager
def _spark(address: str | None) -> Iterator[None]:
    master = address or _LOCAL_SPARK
    if master.startswith("local"):  # else the first `python3` of the path would run the tasks
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    import joblib
    from joblibspark import register_spark
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    session = running or SparkSession.builder.appName("wiserouter").master(master).getOrCreate()
    register_spark()
    try:
        with joblib.parallel_config(backend="spark"):
            yield
    finally:
        if running is None:
            session.stop()


_CLUSTERS: dict[str, tuple[Callable[[str | None], AbstractContextManager[None]], str]] = {
    "dask": (_dask, "distributed"),
    "ray": (_ray, "Ray"),
    "spark": (_spark, "PySpark and joblibspark"),
}

CLUSTERS = tuple(_CLUSTERS)
"""Names of the backends that have an address."""

BACKENDS = (*_LOCAL, *CLUSTERS)
"""Names that `parallel_backend` opens; a program may set any other one by `joblib.parallel_config`."""


@contextmanager
def parallel_backend(name: str | None, address: str | None = None) -> Iterator[None]:
    """Open a block in which `n_jobs` counts the workers of a backend.

    Parameters
    ----------
    name : {"loky", "threading", "dask", "ray", "spark"} or None
        None leaves the backend as it is.
    address : str, optional
        The scheduler of Dask, the head of Ray, or the master of Spark; by default a local one is started.

    Raises
    ------
    InvalidInput
        If there is no such backend, or it has no address.
    MissingExtra
        If its package is not installed.
    """
    with _opened(name, address):
        yield


def _opened(name: str | None, address: str | None) -> AbstractContextManager[Any]:
    if name is not None and name not in BACKENDS:
        raise InvalidInput(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}", value=name)
    if name not in _CLUSTERS and address is not None:
        clusters = ", ".join(_CLUSTERS)
        raise InvalidInput(f"address must name a cluster ({clusters}), got {address!r} for {name}", value=address)
    if name is None:
        return nullcontext()
    if name in _LOCAL:
        import joblib

        return joblib.parallel_config(backend=name)  # type: ignore[no-any-return]  # joblib has no types
    return _of_cluster(name, address)


@contextmanager
def _of_cluster(name: str, address: str | None) -> Iterator[None]:
    open_cluster, package = _CLUSTERS[name]
    with ExitStack() as stack:
        try:
            stack.enter_context(open_cluster(address))
        except ImportError as error:
            raise MissingExtra(f"the backend {name}", package, name) from error
        yield
