"""What the tests of commands share."""

import subprocess
import sys
from functools import partial

import numpy as np
import polars as pl
import pytest

from support.batch_routers import begin_batch
from wiserouter.cli import main
from wiserouter.evaluation.datasets.synthetic import make_table

TABLE = make_table(300, np.random.default_rng(0))


@pytest.fixture
def begun(tmp_path):
    """Return a function that routes a batch."""
    return partial(begin_batch, tmp_path)


@pytest.fixture
def log(tmp_path):
    columns = {"prompt": TABLE.prompts}
    for k, name in enumerate(TABLE.models):
        columns |= {f"score|{name}": TABLE.reward[:, k], f"cost|{name}": TABLE.cost_usd[:, k]}
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


@pytest.fixture
def shell(capsys, monkeypatch):
    """Run a command as a process would, in this one."""

    def run(*arguments):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["wiserouter", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, ended.value.code or 0, printed.out, printed.err)

    return run
