import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from support.batch_routers import COST, router, wiserouter
from support.batch_schemas import check_anthropic_file, check_gemini_line, check_openai_line
from support.batch_stub import PRICES, answered_file, price_of, requests_of
from wiserouter.cli import app
from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.folder import BatchFolder
from wiserouter.integration.batches.layouts import custom_ids

HALF = 0.5 * COST


def answer(folder, number, fault=lambda at, name: ""):
    """Write the results of a round; return their files and what they cost."""
    found, cost_usd = [], 0.0
    for one in json.loads((folder / f"round-{number}" / "files.json").read_text()):
        found.append(folder.parent / f"{number}-{one['file']}.results")
        path = folder / f"round-{number}" / one["file"]
        cost_usd += answered_file(path, one["provider"], one["model"], found[-1], fault)
    return found, cost_usd


def test_a_batch_is_routed_settled_sent_again_and_billed_to_the_last_cent(begun):
    folder, made = begun()
    assert made["expected_cost_usd"] <= 0.018
    assert sum(one["requests"] for one in made["files"]) == 60
    ids = []
    for one in made["files"]:
        path = folder / "round-1" / one["file"]
        ids += requests_of(path, one["provider"])
        if one["provider"] == "anthropic":
            check_anthropic_file(json.loads(path.read_text()))
        for line in path.read_text().splitlines() if one["provider"] != "anthropic" else ():
            (check_openai_line if one["provider"] == "openai" else check_gemini_line)(json.loads(line))
    sent = [json.loads(line) for line in (folder / "round-1.jsonl").read_text().splitlines()]
    assert sorted(ids) == sorted(line["custom_id"] for line in sent)
    assert [line["id"] for line in sent] == [f"q{at}" for at in range(60)]

    faults = ["errored", "expired", "canceled"]
    results, cost_usd = answer(folder, 1, lambda at, name: faults[at // 10 % 3] if at % 10 == 0 else "")
    counts = wiserouter("settle", folder, *results)
    assert counts["charged"] + counts["failed"] == 60
    assert counts["failed"] >= 3
    assert counts["cost_usd"] == pytest.approx(cost_usd, abs=1e-9)
    again = wiserouter("settle", folder, *results)
    assert (again["charged"], again["failed"], again["before"], again["cost_usd"]) == (0, 0, 60, 0.0)

    second = wiserouter("retry", folder)
    assert (second["number"], sum(one["requests"] for one in second["files"])) == (2, counts["failed"])
    assert second["expected_cost_usd"] <= 0.018 - cost_usd
    results, more_usd = answer(folder, 2)
    assert wiserouter("settle", folder, *results)["charged"] == counts["failed"]
    with pytest.raises(InvalidInput, match="no request"):
        wiserouter("retry", folder)

    found = wiserouter("report", folder)
    assert (found["requests"], found["answered"], found["rounds"], found["open_usd"]) == (60, 60, 2, 0.0)
    assert found["spent_usd"] == pytest.approx(cost_usd + more_usd, abs=1e-9)
    assert sum(one["cost_usd"] for one in found["models"].values()) == pytest.approx(found["spent_usd"], abs=1e-9)
    assert found["left_usd"] == pytest.approx(0.018 - found["spent_usd"], abs=1e-9)
    assert sum(found["errors"].values()) == counts["failed"]


def test_costs_are_learned_as_those_of_plain_calls(begun):
    folder, _ = begun(30, 1.0)
    results, _ = answer(folder, 1)
    wiserouter("settle", folder, *results)
    with BatchFolder(folder).opened() as (found, _):
        found.estimates  # noqa: B018 - reads what the store holds
        found.allocate(["one"], 1.0)
        calls, means = found.estimates.calls[0], found.estimates.means(shrink=False).cost_usd[0]
    assert calls.tolist() == [2, 32, 2]
    names = [line["custom_id"] for line in map(json.loads, (folder / "round-1.jsonl").read_text().splitlines())]
    plain = [2 * price_of("claude-haiku-4-5", name) for name in names]
    assert means[1] == pytest.approx((2 * COST[1] + sum(plain)) / 32)


def test_scores_are_taken_by_either_id_and_replaced(begun, tmp_path):
    folder, _ = begun(10, 1.0)
    results, _ = answer(folder, 1, lambda at, name: "expired" if at == 9 else "")
    wiserouter("settle", folder, *results)
    sent = [json.loads(line) for line in (folder / "round-1.jsonl").read_text().splitlines()]
    scores = [{"custom_id": sent[0]["custom_id"], "score": 1}, {"id": "q1", "reward": 0.5}]
    scores += [{"id": "q9", "score": 1.0}, {"id": "elsewhere", "score": 1.0}]
    path = tmp_path / "scores.jsonl"
    path.write_text("\n".join(map(json.dumps, scores)))
    for _ in range(2):
        assert wiserouter("feedback", folder, path) == {"taken": 2, "unknown": 2}
    bill = wiserouter("report", folder)["models"]["claude-haiku-4-5"]
    assert (bill["scores"], bill["reward"], bill["failed"]) == (2, 1.5, 1)
    path.write_text('{"id": "q1", "score": 7}')
    with pytest.raises(InvalidInput, match=r"line 1 must have .* score in \[0, 1\]"):
        wiserouter("feedback", folder, path)


def test_prices_providers_capacities_and_models_are_stated(begun):
    folder, made = begun(
        20,
        1.0,
        "--capacity",
        "claude-haiku-4-5=5",
        "--provider",
        "gemini-2.5-flash=openai",
        "--price-factor",
        0.5,
        batch=False,
    )
    files = {one["model"]: one for one in made["files"]}
    assert {name: one["requests"] for name, one in files.items()} == {"claude-haiku-4-5": 5, "gemini-2.5-flash": 15}
    assert files["gemini-2.5-flash"]["provider"] == "openai"
    terms = BatchFolder(folder).terms
    assert terms.prices["gemini-2.5-flash"].output == pytest.approx(PRICES["gemini-2.5-flash"][1])
    assert made["expected_cost_usd"] == pytest.approx(5 * HALF[1] + 15 * HALF[2])


def test_prices_of_other_models_are_not_left_out_in_silence(begun, tmp_path, shell):
    path, price = tmp_path / "prices.json", {"price": {"input": 1e-6, "output": 2e-6}}
    path.write_text(json.dumps({"claude-haiku-45": price}))
    with pytest.raises(InvalidInput, match=r"must name models of the artifact .*, got claude-haiku-45: name them as"):
        begun(20, 1.0, "--prices", path)
    path.write_text(json.dumps({"claude-haiku-45": price, "claude-haiku-4-5": price}))
    files = (tmp_path / "prompts.jsonl", "--artifact", tmp_path / "router.wise", "-o", tmp_path / "night")
    told = shell("batch", "route", *files, "--budget", 1.0, "--prices", path).stderr
    assert "prices of models that are not in the artifact are not used: claude-haiku-45" in " ".join(told.split())
    assert BatchFolder(tmp_path / "night").terms.prices["claude-haiku-4-5"].output == pytest.approx(1e-6)


def test_batches_that_cannot_be_are_refused_before_anything_is_reserved(begun, tmp_path):
    with pytest.raises(InvalidInput, match=r"60 requests at the cheapest models, 0\.0039"):
        begun(60, 0.001)
    folder, _ = begun(60, 0.018)  # the same folder, with more money
    with pytest.raises(InvalidInput, match="is routed"):
        begun(60, 0.018)
    for command in ("report", "retry"):
        with pytest.raises(InvalidInput, match="no folder of a batch"):
            wiserouter(command, tmp_path / "elsewhere")
    assert wiserouter("report", folder)["spent_usd"] == 0.0


def test_a_result_without_a_usage_counts_at_its_expected_cost(begun, tmp_path):
    folder, _ = begun(2, 1.0)
    sent = [json.loads(line) for line in (folder / "round-1.jsonl").read_text().splitlines()]
    message = {"type": "succeeded", "message": {"content": []}}
    lines = [{"custom_id": sent[0]["custom_id"], "result": message}, {"custom_id": "elsewhere", "result": message}, {}]
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    counts = wiserouter("settle", folder, tmp_path / "results.jsonl")
    assert (counts["unpriced"], counts["other"], counts["charged"]) == (1, 2, 0)
    assert wiserouter("report", folder)["spent_usd"] == pytest.approx(HALF[1], abs=1e-12)


def test_a_request_that_was_answered_without_a_usage_is_not_released_with_its_file(begun, tmp_path):
    folder, made = begun(2, 1.0)
    sent = [json.loads(line) for line in (folder / "round-1.jsonl").read_text().splitlines()]
    name = sent[0]["custom_id"]
    answered, refused = ({"custom_id": name, "result": {"type": kind}} for kind in ("succeeded", "errored"))
    answered["result"]["message"] = {"content": []}
    for file, line in (("answered", answered), ("refused", refused)):
        (tmp_path / file).write_text(json.dumps(line))
    wiserouter("settle", folder, tmp_path / "answered")
    files = [part for one in made["files"] for part in ("--failed", folder / "round-1" / one["file"])]
    counts = wiserouter("settle", folder, tmp_path / "refused", *files)
    assert (counts["failed"], counts["before"]) == (1, 2)
    found = wiserouter("report", folder)
    assert (found["answered"], found["errors"]) == (1, {"the file failed": 1})
    assert found["spent_usd"] == pytest.approx(HALF[1], abs=1e-12)


@pytest.mark.parametrize(
    "line",
    [
        {"response": {"status_code": 200, "body": {"usage": {"prompt_tokens": "many"}}}},
        {"response": {"status_code": 200, "body": {"usage": [1, 2]}}},
        {"response": "gone"},
        {"result": {"type": "succeeded"}},
    ],
)
def test_a_result_that_cannot_be_read_is_named_by_file_and_line(begun, tmp_path, line):
    folder, _ = begun(2, 1.0)
    path = tmp_path / "results.jsonl"
    path.write_text("\n" + json.dumps({"custom_id": "a", **line}))
    with pytest.raises(InvalidInput, match=r"results\.jsonl, line 2 must be a result"):
        wiserouter("settle", folder, path)


def test_a_file_that_is_not_text_is_named_by_its_line(begun, tmp_path):
    folder, _ = begun(2, 1.0)
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'\n{"custom_id": "\xe9"}\n')
    with pytest.raises(InvalidInput, match=r"results\.jsonl, line 2 must be JSON"):
        wiserouter("settle", folder, path)
    with pytest.raises(InvalidInput, match="must be a batch file of a round"):
        custom_ids(path)


def test_half_of_a_surrogate_pair_is_sent_as_it_came(tmp_path):
    router().save(tmp_path / "router.wise")
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "prompt": "cut \\ud83d"}\n{"id": "b", "prompt": "grüezi"}')
    folder = tmp_path / "night"
    options = ("--artifact", tmp_path / "router.wise", "--budget", 1, "-o", folder)
    made = wiserouter("route", tmp_path / "prompts.jsonl", *options)
    written = b"".join((folder / "round-1" / one["file"]).read_bytes() for one in made["files"])
    assert rb"cut \ud83d" in written
    assert "grüezi" in written.decode()
    assert not list(folder.glob("*.unfinished"))


def test_a_file_that_failed_as_a_whole_is_sent_again_with_more_money(begun):
    folder, made = begun(20, 0.006)
    files = [one["file"] for one in made["files"]]
    options = [part for name in files for part in ("--failed", folder / "round-1" / name)]
    counts = wiserouter("settle", folder, *options)
    assert (counts["failed"], counts["charged"], counts["cost_usd"]) == (20, 0, 0.0)
    assert wiserouter("report", folder)["errors"] == {"the file failed": 20}
    order = ["budget", "--store", f"sqlite:///{folder / 'ledger.db'}", "--add", "1", "--json"]
    assert CliRunner().invoke(app, order).exit_code == 0
    assert wiserouter("retry", folder)["expected_cost_usd"] > made["expected_cost_usd"]
    assert wiserouter("report", folder)["budget_usd"] == pytest.approx(1.006)
    with pytest.raises(InvalidInput, match="must be a batch file"):
        wiserouter("settle", folder, "--failed", folder / "requests.jsonl")
    with pytest.raises(InvalidInput, match="settle needs files"):
        wiserouter("settle", folder)


SLOW = """
import time
from wiserouter.cli import main
from wiserouter.stores.engines.sqlite import SQLiteEngine

exchange = SQLiteEngine.exchange

def slow(*arguments):
    time.sleep(0.1)
    return exchange(*arguments)

SQLiteEngine.exchange = slow
main()
"""


def killed(*arguments, when):
    """Run a command on a slow ledger in a process, and kill it as soon as a condition holds."""
    command = [sys.executable, "-c", SLOW, "batch", *map(str, arguments), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60.0
    try:
        while process.poll() is None and not when() and time.monotonic() < deadline:
            time.sleep(0.002)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        code = process.wait(10.0)
    return code == -signal.SIGKILL


@pytest.mark.slow
def test_routing_and_settling_go_on_after_a_kill_without_charging_twice(begun, tmp_path):
    router().save(tmp_path / "router.wise")
    n = 400
    lines = [{"id": f"q{at}", "prompt": f"question {at}"} for at in range(n)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    folder = tmp_path / "night"
    arguments = ("route", tmp_path / "prompts.jsonl", "--artifact", tmp_path / "router.wise", "--budget", 0.25)
    arguments = (*arguments, "-o", folder)
    assert killed(*arguments, when=lambda: (folder / "round-1.jsonl").exists() and decided(folder) > 20)
    assert not BatchFolder(folder).is_complete(1)
    made = wiserouter(*arguments)
    assert sum(one["requests"] for one in made["files"]) == n
    found = wiserouter("report", folder)
    assert found["open_usd"] == pytest.approx(made["expected_cost_usd"], abs=1e-9)

    results, cost_usd = answer(folder, 1, lambda at, name: "expired" if at % 7 == 0 else "")
    errors = folder / "errors.jsonl"
    assert killed("settle", folder, *results, when=errors.exists)
    time.sleep(0.1)
    partly = wiserouter("report", folder)
    assert partly["answered"] < n
    counts = wiserouter("settle", folder, *results)
    found = wiserouter("report", folder)
    assert found["spent_usd"] == pytest.approx(cost_usd, abs=1e-9)
    assert counts["before"] + counts["charged"] + counts["failed"] == n
    assert found["open_usd"] == pytest.approx(0.0, abs=1e-12)


def decided(folder):
    """Return the number of decisions that the ledger of a batch holds."""
    import sqlite3

    try:
        with sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=ro", uri=True) as ledger:
            return ledger.execute("SELECT count(*) FROM decisions").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


@pytest.mark.parametrize("seed", range(2))
def test_results_in_any_order_and_any_number_of_times_are_charged_once(begun, tmp_path, seed):
    rng = np.random.default_rng(seed)
    folder, _ = begun(40)
    files, cost_usd = answer(folder, 1, lambda at, name: "errored" if int(name[-1], 16) < 4 else "")
    lines = [line for path in files for line in path.read_text().splitlines()]
    again = rng.permutation([*lines, *rng.choice(lines, 20)]).tolist()
    parts = np.array_split(np.array(again, dtype=object), 3)
    for at, part in enumerate(parts):
        path = tmp_path / f"part-{at}.jsonl"
        path.write_text("\n".join(part) + "\n")
        wiserouter("settle", folder, path)
    found = wiserouter("report", folder)
    assert found["spent_usd"] == pytest.approx(cost_usd, abs=1e-9)
    assert (found["requests"], found["open_usd"]) == (40, pytest.approx(0.0, abs=1e-12))
    assert sum(one["charged"] + one["failed"] for one in found["models"].values()) == 40


def greedy(line, model):
    """Return the result of a provider that bills a token per byte of the messages, and the output to its limit."""
    body = line["body"]
    given = sum(len(str(one["content"]).encode()) + 8 for one in body["messages"]) + 8
    returned = body["max_completion_tokens"] * body.get("n", 1)
    usage = {"prompt_tokens": given, "completion_tokens": returned, "total_tokens": given + returned}
    response = {"status_code": 200, "body": {"model": model, "usage": usage}}
    return {"id": "r", "custom_id": line["custom_id"], "response": response, "error": None}


def hard_batch(path, budget, *options, n=40):
    """Route requests of many lengths to models that all take OpenAI's files, under a hard budget."""
    router().save(path / "router.wise")
    rng = np.random.default_rng(0)
    lines = [{"id": f"q{at}", "prompt": "é€😀a"[at % 4] * int(rng.integers(1, 400))} for at in range(n)]
    lines[0] |= {"n": 3, "temperature": 0.1}
    (path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    providers = [part for name in COSTS_MORE for part in ("--provider", f"{name}=openai")]
    arguments = (path / "prompts.jsonl", "--artifact", path / "router.wise", "--budget", budget, "--hard", *providers)
    return path / "night", wiserouter("route", *arguments, "-o", path / "night", *options)


COSTS_MORE = ("claude-haiku-4-5", "gemini-2.5-flash")


@pytest.mark.parametrize("budget", [0.0045, 0.01, 0.05])
def test_a_hard_budget_holds_where_each_request_costs_the_most_that_it_can(tmp_path, budget):
    folder, made = hard_batch(tmp_path, budget, "--max-tokens", 200)
    for number in (1, 2):
        report = wiserouter("report", folder)
        assert report["spent_usd"] + report["open_usd"] <= budget
        results = tmp_path / f"results-{number}.jsonl"
        with results.open("w") as found:
            for one in made["files"]:
                for at, text in enumerate((folder / f"round-{number}" / one["file"]).read_text().splitlines()):
                    line = json.loads(text)
                    assert line["body"]["max_completion_tokens"] == 200
                    error = {"code": "batch_expired", "message": "late"}
                    failed = {"custom_id": line["custom_id"], "response": None, "error": error}
                    late = number == 1 and at % 3 == 0
                    found.write(json.dumps(failed if late else greedy(line, one["model"])) + "\n")
        counts = wiserouter("settle", folder, results)
        made = wiserouter("retry", folder) if counts["failed"] else made
    report = wiserouter("report", folder)
    assert report["answered"] == 40
    assert 0.0 < report["spent_usd"] <= budget


def test_a_hard_budget_is_used_to_the_last_worst_case(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(InvalidInput, match=r"if all of them cost the most that they can") as refused:
        hard_batch(tmp_path / "a", 1e-4, "--max-tokens", 200)
    least = float(str(refused.value).split(" USD")[0].rsplit(" ", 1)[1])
    folder, made = hard_batch(tmp_path / "a", least * 1.001, "--max-tokens", 200)
    assert [one["model"] for one in made["files"]] == ["gpt-4o-mini"]
    sent = BatchFolder(folder).sent()
    assert sum(one.decision.reserved_usd for one in sent) == pytest.approx(least, rel=1e-5)
    assert made["expected_cost_usd"] < least


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"prompt": "x", "web_search_options": {}}, "the parameter 'web_search_options'"),
        ({"prompt": "x", "tools": [{"type": "web_search"}]}, "a tool of type 'web_search'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part of type 'image_url'"),
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "'audio' of a message"),
        ({"prompt": "x", "max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"prompt": "x", "n": 0, "max_tokens": 5}, "n must be a whole number"),
        ({"prompt": "x", "service_tier": "priority"}, "the parameter 'service_tier'"),
    ],
)
def test_what_nothing_bounds_is_refused_under_a_hard_budget(tmp_path, line, what):
    router().save(tmp_path / "router.wise")
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"id": "odd", **line}))
    arguments = ("route", tmp_path / "prompts.jsonl", "--artifact", tmp_path / "router.wise", "--budget", 1.0, "--hard")
    with pytest.raises(InvalidInput, match=rf"request 'odd': .*{what}"):
        wiserouter(*arguments, "-o", tmp_path / "night")
    with pytest.raises(InvalidInput, match="--hard is certain"):
        wiserouter(*arguments, "-o", tmp_path / "night", "--confidence", 0.9)
