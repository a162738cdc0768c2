"""RouterArena: published rows from their accuracy and cost, the files of a submission, and the guard."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from wiserouter import Model, Price, RoutingLog, WiseRouter
from wiserouter.cli import app
from wiserouter.errors import InvalidInput, LogError
from wiserouter.evaluation.arena.score import arena_score, robustness
from wiserouter.evaluation.arena.submission import read_queries, submit
from wiserouter.evaluation.datasets import routerarena, wide_table
from wiserouter.evaluation.datasets.open_table import open_table
from wiserouter.evaluation.datasets.summary import summary


@pytest.mark.parametrize(
    ("accuracy", "usd_per_1000", "published"),
    [
        (0.7814, 0.27, 76.28),  # KT-ModelRouter, July 2026
        (0.7976, 0.70, 76.21),  # Sqwish Router 2
        (0.7859, 0.48, 75.85),  # Divyam, August 2026
        (0.7640, 0.18, 75.27),  # Sqwish Router 1
        (0.7597, 0.11, 75.38),  # vLLM-SR
        (0.7472, 0.13, 74.13),  # AgentForge
        (0.7396, 10.02, 64.32),  # GPT-5 alone
        (0.7969, 0.27, 77.62),  # Paix2
        (0.4704, 0.27, 48.07),  # RouteLLM
    ],
)
def test_published_rows_follow_from_accuracy_and_cost(accuracy, usd_per_1000, published):
    assert 100 * arena_score(accuracy, usd_per_1000) == pytest.approx(published, abs=0.035)  # costs are of cents


def test_one_model_on_the_public_part_has_its_score():
    assert 100 * arena_score(0.6901, 0.0475) == pytest.approx(69.7, abs=0.05)  # gemini-2.0-flash-001 on 809 queries


def test_the_scale_of_costs_has_ends():
    assert arena_score(0.5, 0.0001) == arena_score(0.5, 0.0044) == pytest.approx(1.1 * 0.5 / 1.05)
    assert arena_score(0.5, 200.0) == arena_score(0.5, 5_000.0) == 0.0
    assert arena_score(0.0, 200.0) == 0.0
    assert arena_score(0.7, 0.2) > arena_score(0.7, 0.4) > arena_score(0.69, 0.4)


@pytest.mark.parametrize(("accuracy", "cost"), [(70.0, 0.1), (-0.1, 0.1), (math.nan, 0.1), (0.7, 0.0), (0.7, math.inf)])
def test_figures_that_are_none_are_refused(accuracy, cost):
    with pytest.raises(InvalidInput):
        arena_score(accuracy, cost)


def test_robustness_counts_equal_choices():
    assert robustness(["a", "b", "a", "a"], ["a", "a", "a", "b"]) == 0.5


@pytest.fixture
def artifact(tmp_path):
    rng = np.random.default_rng(0)
    prompts = [f"{'prove' if i % 2 else 'sort'} it {i}" for i in range(60)]
    reward = np.column_stack([np.arange(60) % 2 == 0, np.ones(60)]).astype(float)
    log = RoutingLog.from_arrays(prompts, reward, np.tile([1e-4, 1e-3], (60, 1)), ["small", "large"])
    models = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(1e-6, 4e-6))]
    WiseRouter.fit(log, n_contexts=2, models=models, seed=int(rng.integers(9))).save(tmp_path / "a.wise")
    return tmp_path / "a.wise"


def dataset(path, prompts):
    entries = [{"global index": f"Sort_{i}", "prompt_formatted": one} for i, one in enumerate(prompts)]
    path.write_text(json.dumps(entries))
    return path


def test_a_submission_has_the_layout_of_the_board(tmp_path, artifact):
    prompts = [f"{'prove' if i % 2 else 'sort'} it {i}" for i in range(40)]
    queries = dataset(tmp_path / "router_data.json", prompts)
    others = dataset(tmp_path / "router_robustness.json", [f"kindly {prompt}" for prompt in prompts[:10]])
    arguments = ["--queries", queries, "--paraphrases", others, "--name", "wise", "--cost", "0.5"]
    arguments += ["-o", tmp_path / "arena"]
    done = CliRunner().invoke(app, ["arena", "export", str(artifact), *map(str, arguments), "--json"])
    printed = json.loads(done.stdout)
    assert (printed["queries"], printed["paraphrases"]) == (40, 10)
    assert printed["expected_usd"] <= 0.5 / 1_000 * 40 * 1.05
    assert 0 <= printed["robustness"] <= 1
    place = tmp_path / "arena" / "router_inference"
    config = json.loads((place / "config" / "wise.json").read_text())
    assert config["pipeline_params"]["models"] == ["small", "large"]
    rows = json.loads((place / "predictions" / "wise.json").read_text())
    assert [row["global index"] for row in rows] == [f"Sort_{i}" for i in range(40)]
    assert all(row["prompt"] == query.prompt for row, query in zip(rows, read_queries(queries), strict=True))
    assert {row["prediction"] for row in rows} == {"small", "large"}
    assert all(row["generated_result"] is None and row["for_optimality"] is False for row in rows)
    assert len(json.loads((place / "predictions" / "wise-robustness.json").read_text())) == 10
    prices = json.loads((tmp_path / "arena" / "model_cost" / "wise.json").read_text())
    assert list(prices["small"].values()) == pytest.approx([0.1, 0.4])


def test_equal_prompts_are_stable_and_a_file_of_another_kind_is_refused(tmp_path, artifact):
    queries = read_queries(dataset(tmp_path / "q.json", ["prove it", "sort it"] * 5))
    made = submit("wise", lambda: WiseRouter.load(artifact, seed=0), queries, queries, 0.5, tmp_path / "arena")
    assert made.robustness == 1.0
    entry = {"global index": "a", "prompt": "b"}
    for text in ('[{"prompt": "no index"}]', "not json", json.dumps([entry, entry])):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"bad.json"):
            read_queries(tmp_path / "bad.json")


def answers(path, model, scores):
    lines = [
        {
            "global_index": f"AIME_{i}",
            "question": f"question {i}",
            "llm_selected": model,
            "evaluation_result": {"score": score, "inference_cost": 1e-4},
        }
        for i, score in enumerate(scores)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_published_answers_are_for_evaluation_only(tmp_path):
    files = [answers(tmp_path / f"{name}.jsonl", name, [1.0, 0.0, 0.5]) for name in ("one", "two")]
    wide_table.write(routerarena.read(files), tmp_path / "routerarena.parquet")
    assert summary(tmp_path / "routerarena.parquet").queries == 3
    with pytest.raises(LogError, match="RouterArena's data is for evaluation only"):
        WiseRouter.fit(tmp_path / "routerarena.parquet", n_contexts=1)
    with pytest.raises(LogError, match="RouterArena's data is for evaluation only"):
        open_table(tmp_path / "routerarena.parquet")
    raw = {"global_index": "AIME_1", "prompt": "hi", "model": "a", "reward": 1, "cost_usd": 0.1}
    (tmp_path / "raw.jsonl").write_text(json.dumps(raw))
    with pytest.raises(LogError, match="global_index"):
        WiseRouter.fit(tmp_path / "raw.jsonl", n_contexts=1)
    (tmp_path / "other.jsonl").write_text('{"prompt": "hi"}')
    with pytest.raises(LogError, match="a line must be one answer"):
        routerarena.read([tmp_path / "other.jsonl"])
