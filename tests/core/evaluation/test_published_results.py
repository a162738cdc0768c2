"""LLMRouterBench and TwinRouterBench: small files in their published formats become tables."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from wiserouter import WiseRouter
from wiserouter.cli import app
from wiserouter.errors import LogError
from wiserouter.evaluation.datasets import llmrouterbench, open_table, routerarena, twinrouterbench, wide_table


def results(folder, dataset, model, scores, *, time="20251001_120000", **changed):
    """Write a file as LLMRouterBench documents it, and return it."""
    records = [
        {
            "index": i + 1,
            "origin_query": f"What is {i}+{i}?",
            "prompt": f"Question: What is {i}+{i}?\nAnswer:",
            "prediction": str(2 * i),
            "ground_truth": str(2 * i),
            "score": score,
            "prompt_tokens": 15,
            "completion_tokens": 5,
            "cost": 1e-4 * (i + 1),
            "raw_output": f"It is {2 * i}.",
        }
        for i, score in enumerate(scores)
    ]
    content = {
        "performance": float(np.mean(scores)),
        "time_taken": 120.5,
        "prompt_tokens": 45,
        "completion_tokens": 15,
        "cost": 6e-4,
        "counts": len(scores),
        "model_name": model,
        "dataset_name": dataset,
        "split": "test",
        "demo": False,
        "records": records,
        **changed,
    }
    file = folder / dataset / "test" / model / f"{dataset}-test-{model}-{time}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    return file


def test_results_of_several_models_are_one_table(tmp_path):
    for model, scores in (("gpt-5", [1.0, 0.0, 1.0]), ("qwen3-8b", [1.0, 0.0, 0.0])):
        results(tmp_path, "aime", model, scores)
        results(tmp_path, "gpqa", model, scores[:2])
    results(tmp_path, "aime", "gpt-5", [0.0, 0.0, 0.0], time="20250901_120000")  # older
    results(tmp_path, "aime", "gpt-5", [0.0, 0.0, 0.0], time="20251101_120000", demo=True)
    wide_table.write(llmrouterbench.read([tmp_path]), tmp_path / "table.parquet")
    loaded = open_table(tmp_path / "table.parquet")
    assert list(loaded.ids) == ["aime/test/1", "aime/test/2", "aime/test/3", "gpqa/test/1", "gpqa/test/2"]
    assert loaded.table.models == ("gpt-5", "qwen3-8b")
    assert loaded.table.reward[:, 0].tolist() == [1.0, 0.0, 1.0, 1.0, 0.0]
    assert loaded.table.cost_usd[:3, 1] == pytest.approx([1e-4, 2e-4, 3e-4])
    frame = llmrouterbench.read([tmp_path], datasets=["aime"], models=["qwen3-8b"]).frame
    assert frame["prompt"].to_list() == ["What is 0+0?", "What is 1+1?", "What is 2+2?"]
    assert frame.columns[2:] == ["dataset", "split", "score|qwen3-8b", "cost|qwen3-8b"]


def test_queries_that_a_model_did_not_answer_are_refused_or_left_out(tmp_path):
    results(tmp_path, "aime", "gpt-5", [1.0, 0.0])
    results(tmp_path, "aime", "qwen3-8b", [1.0])
    with pytest.raises(LogError, match="the score or cost of 'aime/test/2' is missing"):
        llmrouterbench.read([tmp_path])
    assert llmrouterbench.read([tmp_path], drop_faulty=True).incomplete == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "one model's results"),
        ("[]", "one model's results"),
        ('{"dataset_name": "aime"}', "one model's results"),
        (
            '{"dataset_name": "aime", "split": "test", "model_name": "a", "records": [{"index": 1}]}',
            "a record must have",
        ),
        ('{"dataset_name": "aime", "split": "test", "model_name": "a", "records": [3]}', "a record must have"),
    ],
)
def test_a_file_of_another_structure_is_refused(tmp_path, text, says):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(LogError, match=says):
        llmrouterbench.read([tmp_path])


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(LogError, match="no results were found"):
        llmrouterbench.read([tmp_path])


def bank(file, targets, **changed):
    """Write a question bank of TwinRouterBench and return it."""
    tiers = list(twinrouterbench.OUTPUT_USD_PER_MTOK)
    steps = [
        {
            "id": f"django__django-11133_step{i}",
            "benchmark": "swebench",
            "instance_id": "django__django-11133",
            "step_index": i + 1,
            "total_steps": len(targets),
            "messages": [
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": f"Please solve the issue number {i} of this repository."},
            ],
            "target_tier": tiers[target] if target in range(4) else "",
            "target_tier_id": target,
            **changed,
        }
        for i, target in enumerate(targets)
    ]
    file.write_text("\n".join(map(json.dumps, steps)))
    return file


def test_steps_of_agents_have_tiers_as_models(tmp_path):
    wide_table.write(twinrouterbench.read([bank(tmp_path / "bank.jsonl", [0, 2, 3])]), tmp_path / "table.parquet")
    table = open_table(tmp_path / "table.parquet").table
    assert table.models == ("low", "mid", "mid_high", "high")
    assert table.reward.tolist() == [[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert table.cost_usd[1] == pytest.approx([0.00025, 0.001, 0.0025, 0.0125])
    frame = twinrouterbench.read([tmp_path / "bank.jsonl"]).frame
    assert frame["prompt"][0] == "Please solve the issue number 0 of this repository."
    assert frame["instance_id"].n_unique() == 1
    assert frame["step_index"].to_list() == ["1", "2", "3"]


@pytest.mark.parametrize(
    "changed", [{"target_tier_id": 4}, {"target_tier_id": None}, {"messages": 3}, {"messages": []}]
)
def test_a_line_of_another_structure_is_refused(tmp_path, changed):
    with pytest.raises(LogError, match="one step of TwinRouterBench"):
        twinrouterbench.read([bank(tmp_path / "bank.jsonl", [0], **changed)])


@pytest.mark.parametrize("read", [twinrouterbench.read, routerarena.read])
def test_a_file_that_is_not_text_is_refused(tmp_path, read):
    path = tmp_path / "bank.jsonl"
    path.write_bytes(b'{"id": "\xe9"}\n')
    with pytest.raises(LogError, match=r"line 1 has a byte that is no UTF-8"):
        read([path])


def test_the_commands_write_tables_that_fit_reads(tmp_path):
    for model in ("small", "large"):
        results(tmp_path / "bench", "aime", model, [1.0, 0.0, 1.0])
    for arguments in (
        ["llmrouterbench", str(tmp_path / "bench"), "--datasets", "aime"],
        ["twinrouterbench", str(bank(tmp_path / "bank.jsonl", [0, 1, 2]))],
    ):
        output = tmp_path / f"{arguments[0]}.parquet"
        done = CliRunner().invoke(app, ["data", *arguments, "-o", str(output), "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.output)["queries"] == 3
        assert WiseRouter.fit(output, n_contexts=1).plan.ceiling_usd > 0
