"""What the tests of commands share."""

from functools import partial

import pytest

from support.batch_routers import begin_batch


@pytest.fixture
def begun(tmp_path):
    """Return a function that routes a batch."""
    return partial(begin_batch, tmp_path)
