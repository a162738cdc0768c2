"""Warnings of LangChain and of its dependencies are ignored; those of our own modules are errors."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/langchain" in item.path.as_posix():
            for rule in ("ignore", "error:::wiserouter"):
                item.add_marker(pytest.mark.filterwarnings(rule), append=False)
