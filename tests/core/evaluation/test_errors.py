"""The errors of the evaluation: one class each, importable from both places, loaded only where they are needed."""

import subprocess
import sys

import pytest

from wiserouter import errors
from wiserouter.evaluation import errors as evaluation_errors

NAMES = ("ThinOverlap", "DataError", "MissingTable", "HashMismatch", "ForbiddenPickle")


@pytest.mark.parametrize("name", NAMES)
def test_both_import_paths_give_the_same_class(name):
    assert getattr(errors, name) is getattr(evaluation_errors, name)
    assert issubclass(getattr(errors, name), errors.WiseRouterError)
    assert name in errors.__doc__


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'ThickOverlap'"):
        errors.ThickOverlap  # noqa: B018
    with pytest.raises(ImportError, match="ThickOverlap"):
        from wiserouter.errors import ThickOverlap  # noqa: F401


def test_the_evaluation_is_loaded_when_one_of_its_errors_is_first_asked_for():
    program = (
        "import sys, wiserouter.errors as errors\n"
        "assert 'wiserouter.evaluation.errors' not in sys.modules\n"
        "from wiserouter.errors import ThinOverlap\n"
        "assert ThinOverlap.__module__ == 'wiserouter.evaluation.errors'\n"
        "assert 'polars' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
