"""Routers and folders of batches for the tests of `wiserouter batch`."""

import json

import numpy as np
from typer.testing import CliRunner

from support.batch_stub import PRICES
from wiserouter import Estimates, Model, Price, WiseRouter
from wiserouter.cli import app

MODELS = list(PRICES)
REWARD, COST = np.array([0.5, 0.9, 0.8]), np.array([1.3e-4, 1.0e-3, 4.8e-4])
"""Costs of plain calls."""


def wiserouter(*arguments):
    """Run a command, and return its JSON."""
    result = CliRunner().invoke(app, ["batch", *map(str, arguments), "--json"])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def router(models=MODELS, batch=True):
    """Return a router of one context whose plain prices are twice those of the batch."""
    models = [
        Model(
            name, Price(2 * PRICES[name][0], 2 * PRICES[name][1]), batch_price=Price(*PRICES[name]) if batch else None
        )
        for name in models
    ]
    estimates = Estimates(1, len(models))
    for noise in (-0.1, 0.1):
        estimates.add_table(np.array([0]), REWARD[None, : len(models)], COST[None, : len(models)] * (1 + noise))
    return WiseRouter(models, estimates=estimates)


def begin_batch(path, n=60, budget=0.018, *options, models=MODELS, batch=True):
    """Route a batch in a folder, and return that of the batch and what the command has printed."""
    router(models, batch).save(path / "router.wise")
    lines = [{"id": f"q{at}", "prompt": f"question {at}"} for at in range(n)]
    (path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    arguments = (path / "prompts.jsonl", "--artifact", path / "router.wise", "--budget", budget)
    return path / "night", wiserouter("route", *arguments, "-o", path / "night", *options)
