"""A thousand real requests through a real `litellm.Router`, whose mocked models cost what the public table says."""

import asyncio
import json

import httpx
import litellm
import numpy as np
import pytest
import respx

from support.providers import URL, chat, deployment
from support.tables import ROUTERBENCH, needs_tables, read
from wiserouter import Budget, Offline, WiseRouter
from wiserouter.evaluation.replay import prepare, run
from wiserouter_litellm import attach

pytestmark = pytest.mark.slow

N = 1_000
TOKEN_USD = 1e-9
"""Price of a token here: costs of the table are whole numbers of tokens to within half of it."""


def first(arena, n):
    return arena._replace(
        test=arena.test.rows(np.arange(n)), embeddings=arena.embeddings[:n], contexts=arena.contexts[:n]
    )


def table_llms(models):
    """Return a router with one deployment per model of the table, called m0, m1, ..."""
    rows = [
        deployment(
            f"m{k}",
            input_cost_per_token=TOKEN_USD,
            output_cost_per_token=TOKEN_USD,
            info={"wiserouter_model": name, "max_input_tokens": 10**9, "max_output_tokens": 10**9},
        )
        for k, name in enumerate(models)
    ]
    return litellm.Router(rows, num_retries=0)


@needs_tables
@pytest.mark.parametrize("rate_usd", [3.28e-4, 1.07e-3])
async def test_a_thousand_requests_keep_budget_and_quality(rate_usd, monkeypatch):
    arena = first(prepare(read(ROUTERBENCH), seed=0, policy=Offline()), N)
    table, budget = arena.test, Budget(rate_usd * N, N)
    core = run(arena, budget).outcome
    row_of = {prompt: i for i, prompt in enumerate(table.prompts)}
    fitted = arena.router
    router = WiseRouter(
        fitted.pool.models,
        fitted.contexts,
        encoder=fitted.encoder,
        policy=Offline(),
        estimates=fitted.estimates.copy(),
        seed=arena.seed,
    )

    def answer(request):
        body = json.loads(request.content)
        i, k = row_of[body["messages"][0]["content"]], int(body["model"][1:])
        return httpx.Response(200, json=chat(body["model"], tokens=(0, round(table.cost_usd[i, k] / TOKEN_USD))))

    rewards, billed = [], 0.0
    with respx.mock() as mock:
        mock.route(url__startswith=URL).mock(side_effect=answer)
        llms = table_llms(table.models)
        callback = attach(llms, "wise", router=router, budget=budget)
        for i, prompt in enumerate(table.prompts):
            response = await llms.acompletion(model="wise", messages=[{"role": "user", "content": prompt}])
            k = int(response._hidden_params["model_id"][1:])
            while router.status().charged <= i:
                await asyncio.sleep(0)
            rewards.append(table.reward[i, k])
            billed += table.cost_usd[i, k]
            callback.feedback(response, float(table.reward[i, k]))
    status, quality = router.status(), float(np.mean(rewards))
    noise = np.std(rewards) / np.sqrt(N)
    print(
        f"\nrate {rate_usd:g}: quality {quality:.4f} (core replay {core.quality:.4f}, noise {noise:.4f}), "
        f"spend/budget {status.spent_usd / budget.amount_usd:.4f} (core {core.spend_ratio:.4f})"
    )
    assert status.spent_usd == pytest.approx(billed, abs=N * TOKEN_USD)
    assert 0.99 <= status.spent_usd / budget.amount_usd <= 1.005
    assert abs(quality - core.quality) <= 2 * noise
