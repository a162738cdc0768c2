"""A batch under one budget: files for three providers, results with failures, a second round, and the bill."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from wiserouter import Model, Price, RoutingLog, WiseRouter
from wiserouter.cli import app

PRICES = {"gpt-5-mini": (2.5e-7, 2e-6), "gemini-2.5-flash": (3e-7, 2.5e-6), "claude-sonnet-4-5": (3e-6, 1.5e-5)}
REWARD = {"solve": [0.35, 0.60, 0.85], "tell": [0.70, 0.78, 0.82]}
TOKENS = 200, 400


def fitted() -> WiseRouter:
    """Return a router that was fitted on a log of two kinds of questions."""
    rng = np.random.default_rng(0)
    kinds = rng.choice(list(REWARD), 400)
    rewards = np.array([rng.random(3) < REWARD[kind] for kind in kinds], dtype=float)
    costs = [[given * TOKENS[0] + returned * TOKENS[1] for given, returned in PRICES.values()]] * len(kinds)
    log = RoutingLog.from_arrays([f"{kind} number {i}" for i, kind in enumerate(kinds)], rewards, costs, list(PRICES))
    models = [Model(name, Price(*price)) for name, price in PRICES.items()]
    return WiseRouter.fit(log, n_contexts=2, models=models, seed=0)


def result(provider: str, custom_id: str, fails: bool) -> dict[str, object]:
    """Return the line with which a provider answers a request."""
    given, returned = TOKENS
    if provider == "openai":
        body = {"usage": {"prompt_tokens": given, "completion_tokens": returned}}
        response = None if fails else {"status_code": 200, "body": body}
        return {"custom_id": custom_id, "response": response, "error": {"code": "batch_expired"} if fails else None}
    if provider == "anthropic":
        message = {"usage": {"input_tokens": given, "output_tokens": returned}}
        answer = {"type": "expired"} if fails else {"type": "succeeded", "message": message}
        return {"custom_id": custom_id, "result": answer}
    usage = {"usageMetadata": {"promptTokenCount": given, "candidatesTokenCount": returned}}
    return {"key": custom_id, "error": {"message": "internal"}} if fails else {"key": custom_id, "response": usage}


def answer(folder: Path, number: int, share_failing: float) -> Path:
    """Play the providers: write the results of a round, of which a share fails."""
    rng, results = np.random.default_rng(number), folder / f"answers-{number}.jsonl"
    lines = []
    for file in json.loads((folder / f"round-{number}" / "files.json").read_text()):
        content = (folder / f"round-{number}" / file["file"]).read_text()
        whole = file["provider"] == "anthropic"
        requests = json.loads(content)["requests"] if whole else [json.loads(line) for line in content.splitlines()]
        names = [request.get("custom_id") or request["key"] for request in requests]
        lines += [json.dumps(result(file["provider"], name, rng.random() < share_failing)) for name in names]
    results.write_text("\n".join(lines))
    return results


def batch(*arguments: object) -> None:
    """Run `wiserouter batch` with these arguments."""
    print("\n$ wiserouter batch", *(one.name if isinstance(one, Path) else one for one in arguments))
    app(["batch", *map(str, arguments)], standalone_mode=False)


with tempfile.TemporaryDirectory() as path:
    prompts, artifact, night = (Path(path) / name for name in ("prompts.jsonl", "support.wise", "night"))
    fitted().save(artifact)
    lines = [{"id": f"q{i}", "prompt": f"{('solve', 'tell')[i % 2]} number {i}", "max_tokens": 400} for i in range(200)]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    batch("route", prompts, "--artifact", artifact, "--budget", 0.3, "-o", night)
    batch("settle", night, answer(night, 1, 0.1))
    batch("retry", night)
    batch("settle", night, answer(night, 2, 0.0))
    batch("report", night)
