"""The files that RouterArena asks of a submission: a configuration, a choice per query, and one per paraphrase.

Answers are not among them: RouterArena's own `llm_inference/run.py` makes the calls and adds the answers, and its
evaluation scores them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wiserouter.budgets.budget import Budget
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.arena.score import robustness
from wiserouter.pricing.pool import Model
from wiserouter.router import WiseRouter

N_QUERIES, N_PARAPHRASES = 8_400, 420
"""Number of queries of the full set, and of paraphrases."""

_INDEX = ("global index", "global_index")
_PROMPT = ("prompt_formatted", "prompt")


class ArenaQuery(NamedTuple):
    """A query of the set: its index, and its prompt as it is sent."""

    global_index: str
    prompt: str


class Submission(NamedTuple):
    """The choices of a router.

    Attributes
    ----------
    choices, paraphrased : mapping of str to str
        The model of each query, and of each paraphrase, by index.
    expected_usd : float
        Expected cost of all answers.
    robustness : float or None
        Share of the paraphrases that go to the model of their query.
    files : tuple of Path
        The files written.
    """

    choices: Mapping[str, str]
    paraphrased: Mapping[str, str]
    expected_usd: float
    robustness: float | None
    files: tuple[Path, ...]


def read_queries(path: Path) -> list[ArenaQuery]:
    """Return the queries of `router_data.json`, `router_data_10.json` or `router_robustness.json`.

    Raises
    ------
    InvalidInput
        If the file is no list of objects with an index and a prompt, or an index comes twice.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        queries = [ArenaQuery(str(_first(entry, _INDEX)), str(_first(entry, _PROMPT))) for entry in entries]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise InvalidInput(
            f"{path}: a list of objects with {_INDEX[0]!r} and {_PROMPT[1]!r} is wanted, as RouterArena's "
            f"prep_datasets.py writes it: {error!r}"
        ) from error
    if len({query.global_index for query in queries}) < len(queries):
        raise InvalidInput(f"{path}: every index must come once: write the file again by prep_datasets.py")
    return queries


def submit(
    name: str,
    open_router: Callable[[], WiseRouter],
    queries: Sequence[ArenaQuery],
    paraphrases: Sequence[ArenaQuery],
    usd_per_1000: float,
    folder: Path,
) -> Submission:
    """Choose a model for every query and paraphrase, and write the files of a submission.

    Parameters
    ----------
    name : str
        Name of the router: of its files.
    open_router : callable
        Returns the router as it was fitted; it is opened once for the queries and once for the paraphrases.
    queries, paraphrases : sequence of ArenaQuery
        The two sets.
    usd_per_1000 : float
        The budget: each set is served under it, at the costs that the router expects.
    folder : Path
        The clone of RouterArena to write into.
    """
    router = open_router()
    choices, expected_usd = _chosen(router, queries, usd_per_1000)
    paraphrased, _ = _chosen(open_router(), paraphrases, usd_per_1000)
    both = [index for index in paraphrased if index in choices]
    stable = robustness([choices[one] for one in both], [paraphrased[one] for one in both]) if both else None
    models = [model.name for model in router.pool.models]
    terms = {"router_name": name, "router_cls_name": "WiseRouter", "models": models}
    place = folder / "router_inference"
    contents = {
        place / "config" / f"{name}.json": {"pipeline_params": terms},
        place / "predictions" / f"{name}.json": _rows(queries, choices),
        place / "predictions" / f"{name}-robustness.json": _rows(paraphrases, paraphrased),
        folder / "model_cost" / f"{name}.json": _prices(router.pool.models),
    }
    for file, content in contents.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")
    return Submission(choices, paraphrased, expected_usd, stable, tuple(contents))


def _chosen(router: WiseRouter, queries: Sequence[ArenaQuery], usd_per_1000: float) -> tuple[dict[str, str], float]:
    """Return the model of each query under a budget, and what they are expected to cost together."""
    if not queries:
        return {}, 0.0
    router.start(Budget(amount_usd=usd_per_1000 / 1_000 * len(queries), horizon=len(queries)))
    choices, expected_usd = {}, 0.0
    for query in queries:
        decision = router.decide(query.prompt)
        router.charge(decision, cost_usd=decision.expected_cost_usd)
        choices[query.global_index] = decision.model
        expected_usd += decision.expected_cost_usd
    return choices, expected_usd


def _rows(queries: Sequence[ArenaQuery], choices: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "global index": query.global_index,
            "prompt": query.prompt,
            "prediction": choices[query.global_index],
            "generated_result": None,
            "cost": None,
            "accuracy": None,
            "for_optimality": False,
        }
        for query in queries
    ]


def _prices(models: Sequence[Model]) -> dict[str, dict[str, float]]:
    """Return the prices of models per million tokens, to be copied into `model_cost.json`."""
    return {
        model.name: {
            "input_token_price_per_million": model.price.input * 1e6,
            "output_token_price_per_million": model.price.output * 1e6,
        }
        for model in models
        if model.price is not None
    }


def _first(entry: Mapping[str, Any], names: Sequence[str]) -> Any:
    found = [entry[name] for name in names if entry.get(name)]
    if not found:
        raise KeyError(names[0])
    return found[0]
