"""A real proxy with three models and a judge, no person's score: it learns which model is right for which question."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from support.providers import TOKENS, chat, deployment
from support.proxies import running_proxy, write
from support.stub import serving
from wiserouter import Contexts, Model, Optimistic, WiseRouter, open_encoder
from wiserouter.judging.sampling import share_at

pytestmark = pytest.mark.slow

USD = {"small": (1e-6, 2e-6), "medium": (1.5e-6, 3e-6), "large": (2e-6, 4e-6), "referee": (1e-7, 2e-7)}
QUESTIONS = {
    "small": "translate the sentence into french words please number",
    "medium": "write python code function sorting list program number",
    "large": "solve the equation integral algebra proof theorem number",
}
"""The question that each model is right about."""

REQUESTS, HORIZON, BUDGET_USD, JUDGE_USD = 1_000, 2_000, 10.0, 0.02
JUDGE_S = 8.0  # a busy machine answers the judge later than in a second or two; what came too late would be presumed


class JudgedProvider:
    """Answers rightly if the model fits the question; the referee says whether an answer is right, unless it is off."""

    def __init__(self):
        self.mode, self.billed_usd, self.judged, self.kept_waiting = "works", Counter(), 0, 0
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        model, prompt = body["model"], json.dumps(body["messages"])
        content = "the right answer" if QUESTIONS.get(model, "-") in prompt else "a wrong answer"
        if model == "referee":
            if self.mode == "down":
                return JSONResponse({"error": {"message": "out of order"}}, 500)
            if self.mode == "slow":
                self.kept_waiting += 1
                await asyncio.sleep(20.0)
            self.judged += 1
            content = "as you like" if self.mode == "nonsense" else "1" if "the right answer" in prompt else "0"
        self.billed_usd[model] += TOKENS[0] * USD[model][0] + TOKENS[1] * USD[model][1]
        return JSONResponse(chat(model, content))


def config_with_judge(url: str) -> dict:
    def priced(name, group):
        costs = dict(zip(("input_cost_per_token", "output_cost_per_token"), USD[name], strict=True))
        return deployment(name, group, url=url, **costs)

    judge = {"model": "referee", "share": 0.2, "budget_usd": JUDGE_USD, "attempts": 2, "timeout_s": JUDGE_S}
    wise = {"budget_usd": BUDGET_USD, "requests": HORIZON, "artifact": "./kinds.wise", "seed": 0, "judge": judge}
    return {
        "model_list": [*[priced(name, "wise") for name in QUESTIONS], priced("referee", "referee")],
        "router_settings": {"num_retries": 0, "allowed_fails": 1_000},
        "litellm_settings": {"callbacks": ["wiserouter_litellm.callback"]},
        "callback_settings": {"wiserouter": {"groups": {"wise": wise}}},
        "general_settings": {"master_key": "os.environ/LITELLM_MASTER_KEY"},
    }


def save_kinds(path) -> None:
    """Save a router that tells the kinds of questions apart, and knows nothing of the models."""
    prompts = [f"{question} {i}" for question in QUESTIONS.values() for i in range(30)]
    encoder = open_encoder("tfidf").fit(prompts)
    contexts = Contexts.fit(encoder.encode_many(prompts), 3, seed=0)
    WiseRouter([Model(name) for name in QUESTIONS], contexts, encoder=encoder, policy=Optimistic()).save(path)


class Client:
    """Asks the proxy."""

    def __init__(self, base: str, key: str):
        self.http = httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=30)

    def ask(self, i: int) -> tuple[str, str]:
        """Return the model that is right about the i-th question, and the one that answered."""
        right = [*QUESTIONS][i % 3]
        messages = [{"role": "user", "content": f"{QUESTIONS[right]} {i}"}]
        response = self.http.post(
            "/v1/chat/completions", json={"model": "wise", "messages": messages, "max_tokens": 60}
        )
        assert response.status_code == 200, response.text
        return right, response.headers["x-wiserouter-model"]

    def ask_many(self, numbers) -> list[tuple[str, str]]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(self.ask, numbers))

    def status(self) -> dict:
        return self.http.get("/wiserouter/status").json()["groups"]["wise"]

    def wait(self, condition, timeout_s=30.0) -> dict:
        deadline = time.monotonic() + timeout_s
        while not condition(status := self.status()):
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        return status


def test_a_judge_alone_teaches_which_model_is_right(tmp_path):
    save_kinds(tmp_path / "kinds.wise")
    provider = JudgedProvider()
    with (
        serving(provider) as url,
        running_proxy(write(config_with_judge(url), tmp_path), tmp_path / "log") as (base, key, _),
    ):
        client = Client(base, key)
        answers = client.ask_many(range(REQUESTS))
        status = client.wait(lambda one: one["charged"] == REQUESTS and not one["judge"]["waiting"])
        judge, account = status["judge"], status["scopes"]["judge:referee"]
        of_kind = {kind: [chosen == kind for right, chosen in answers[-300:] if right == kind] for kind in QUESTIONS}
        shares = {kind: sum(hits) / len(hits) for kind, hits in of_kind.items()}
        print(f"right in the last 300: {shares}; judge: {judge}; paid: {dict(provider.billed_usd)}")
        assert min(shares.values()) >= 0.85
        # both budgets agree with what the provider has billed
        paid_usd = sum(provider.billed_usd[name] for name in QUESTIONS)
        assert status["spent_usd"] == pytest.approx(paid_usd, abs=1e-9)
        assert paid_usd < BUDGET_USD
        assert account["spent_usd"] == pytest.approx(provider.billed_usd["referee"], abs=1e-9)
        assert account["spent_usd"] <= JUDGE_USD
        assert (judge["judged"], judge["failed"], judge["dropped"]) == (provider.judged, 0, 0)
        expected = sum(share_at(0.2, i / HORIZON) for i in range(REQUESTS))  # a fifth of the whole horizon
        # each of nine cells (kind and model) may be one ahead, and four calls are in flight
        assert abs(judge["judged"] + judge["unpaid"] - expected) <= 9 + 4
        labels = sum(model["labels"] for model in status["models"].values())
        for mode, asked in (("nonsense", 60), ("down", 60), ("slow", 20)):
            provider.mode = mode
            failed, offered = judge["failed"], judge["offered"]
            client.ask_many(range(asked))
            if mode == "slow":  # a request that waited for its judge would be answered after the judge has given up
                assert client.status()["judge"]["failed"] == failed
                client.wait(lambda _: provider.kept_waiting > 0)
            status = client.wait(lambda one, most=offered + asked: one["judge"]["offered"] == most)
            status = client.wait(lambda one: not one["judge"]["waiting"])
            judge = status["judge"]
            assert judge["failed"] > failed
        assert sum(model["labels"] for model in status["models"].values()) <= labels  # drift may fade them
        assert status["charged"] == REQUESTS + 140
        assert status["scopes"]["judge:referee"]["spent_usd"] <= JUDGE_USD
