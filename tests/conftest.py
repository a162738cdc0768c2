"""Frameworks and SDKs leave event loops and sockets open: they are collected here, before another test is blamed."""

import gc
import logging
import os
import warnings

import pytest

os.environ.pop("COLUMNS", None)  # rich would keep to the width of the runner that set it, whatever a test sets later


def sweep():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):  # what one pass closes may free more
            gc.collect()
    gc.freeze()  # what is left, above all the modules of the frameworks, need not be searched again


@pytest.fixture(autouse=True, scope="module")
def swept(request):
    yield
    logging.getLogger("wiserouter").setLevel(logging.NOTSET)  # a command run in this process may have silenced it
    if request.path.parent.name in {"litellm", "langchain"}:
        sweep()


def pytest_sessionfinish():
    sweep()
