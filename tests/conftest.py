"""The order of the test files; and what frameworks and SDKs leave open after each, before another test is blamed."""

import gc
import logging
import os
import signal
import warnings
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# a machine that is busy with other tests fails none of these; each run draws other examples
BUSY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "max_examples": 60}
settings.register_profile("busy machines", **BUSY)
settings.load_profile("busy machines")

os.environ.pop("COLUMNS", None)  # rich would keep to the width of the runner that set it, whatever a test sets later


def pytest_configure(config):
    """Give each of several test processes one thread for linear algebra: more of them wait for each other."""
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of what a shell runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the programs that tests interrupt inherit it


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Search for no garbage while modules are imported, above all those of the frameworks, nor in them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def sweep():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):  # what one pass closes may free more
            gc.collect()
    gc.freeze()  # what is left need not be searched again


@pytest.fixture(autouse=True, scope="module")
def swept(request):
    yield
    logging.getLogger("wiserouter").setLevel(logging.NOTSET)  # a command run in this process may have silenced it
    if {"litellm", "langchain"} & {*request.path.parts}:
        sweep()


def pytest_sessionfinish():
    sweep()


def pytest_xdist_auto_num_workers(config):
    """Return one worker more than there are cores: some tests wait for a clock or for a process."""
    return (os.cpu_count() or 1) + 1


LONGEST = (
    "tests/scenarios/test_shadow.py",
    "tests/scenarios/test_conversations.py",
    "tests/hostile/test_store_faults_redis.py",
    "tests/scenarios/test_judge_on_tables.py",
    "tests/scenarios/test_learning_on_tables.py",
    "tests/hostile/test_calls_counted_redis.py",
    "tests/scenarios/test_batch_margins.py",
    "tests/hostile/test_store_faults_sqlite.py",
    "tests/hostile/test_killed_proxy.py",
    "tests/litellm/operating/test_operated_workers.py",
    "tests/scenarios/test_batches_on_tables.py",
    "tests/packaging/test_docs_site.py",
    "tests/litellm/settlement/test_judge_process.py",
    "tests/litellm/test_proxy_workers.py",
    "tests/litellm/operating/test_page_browser.py",
    "tests/hostile/test_outcomes_proxy.py",
    "tests/packaging/test_examples.py",
    "tests/litellm/conversations/test_run_proxy.py",
    "tests/core/routing/test_label_budget.py",
    "tests/core/fitting/test_parallel_fit.py",
    "tests/hostile/test_killed_workers.py",
    "tests/hostile/test_bodies_hard.py",
    "tests/hostile/test_bodies_expected.py",
    "tests/litellm/operating/test_proxy_routes.py",
    "tests/core/stores/test_killed_workers.py",
    "tests/litellm/test_proxy_process.py",
    "tests/litellm/groups/test_shared_budgets_process.py",
    "tests/core/stores/test_store_processes.py",
    "tests/core/cli/test_cli.py",
    "tests/litellm/groups/test_outcomes.py",
    "tests/litellm/groups/test_utilisation.py",
    "tests/core/stores/test_engines.py",
    "tests/langchain/billing/test_provider_ledger.py",
)
"""Files that take long, those that compute and those that wait in turn: they begin first, so that no worker is left
alone with them."""


def pytest_ignore_collect(collection_path, config):
    """Leave out files without a slow test where only these are run: to import all takes each process ten seconds."""
    if config.option.markexpr != "slow" or not collection_path.match("test_*.py"):
        return None
    return True if "slow" not in collection_path.read_text(encoding="utf-8") else None


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    """Refuse a slow test in a file that does not say so, which `-m slow` would leave out."""
    if item.get_closest_marker("slow") and "slow" not in item.path.read_text(encoding="utf-8"):
        raise pytest.UsageError(f"{item.path} must contain the word slow: one of its tests is marked so, {item.name}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Sort the files: those that take long first, then by their number of tests."""
    sizes = Counter(item.nodeid.partition("::")[0] for item in items)
    first = {path: place for place, path in enumerate(LONGEST)}

    def rank(item):
        path = item.nodeid.partition("::")[0]
        return first.get(path, len(LONGEST)), -sizes[path], path

    items.sort(key=rank)
