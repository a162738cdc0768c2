"""Frameworks and SDKs leave event loops and sockets open: they are collected here, before another test is blamed."""

import gc
import os
import warnings

import pytest

os.environ.pop("COLUMNS", None)  # rich would keep to the width of the runner that set it, whatever a test sets later


def sweep():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):  # what one pass closes may free more
            gc.collect()


@pytest.fixture(autouse=True, scope="module")
def swept(request):
    yield
    if request.path.parent.name in {"litellm", "langchain"}:
        sweep()


def pytest_collection_modifyitems(items):
    """Put files of few and long tests first: one that starts last keeps a single worker busy at the end."""
    items.sort(key=lambda item: item.path.parent.name not in {"scenarios", "litellm"})


def pytest_sessionfinish():
    sweep()
