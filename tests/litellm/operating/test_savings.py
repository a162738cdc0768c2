"""Savings through LiteLLM: what the provider billed, with cached tokens on both sides, against figures by hand."""

import httpx
import pytest

from support.groups import HI, RICH, fitted, llms
from support.providers import URL, chat, deployment
from wiserouter.integration import savings
from wiserouter_litellm import attach

PRICES = {
    "small": {"input_cost_per_token": 1e-6, "cache_read_input_token_cost": 1e-7, "output_cost_per_token": 2e-6},
    "large": {"input_cost_per_token": 1e-5, "cache_read_input_token_cost": 5e-6, "output_cost_per_token": 3e-5},
}
ANSWERS = [(1_000, 0, 100), (1_000, 600, 300)]
"""Prompt tokens, those of them that were read from the cache, and answer tokens of the calls, in turn."""


def bill(tokens: tuple[int, int, int]) -> httpx.Response:
    prompt, cached, completion = tokens
    body = chat("large", tokens=(prompt, completion))
    body["usage"]["prompt_tokens_details"] = {"cached_tokens": cached}
    return httpx.Response(200, json=body)


async def test_cached_tokens_count_on_both_sides(provider, flushed):
    provider.route(url__startswith=URL).mock(side_effect=[bill(tokens) for tokens in 2 * ANSWERS])
    litellm_router, router = llms(*[deployment(name, **prices) for name, prices in PRICES.items()]), fitted()
    attach(litellm_router, "wise", router=router, budget=RICH)
    for _ in range(4):
        await litellm_router.acompletion("wise", HI)
    await flushed()
    found = savings(router, "2d")
    # large: 1,000 x 1e-5 + 100 x 3e-5 = 0.013, and 400 x 1e-5 + 600 x 5e-6 + 300 x 3e-5 = 0.016; each twice
    assert found.actual.cost_usd == pytest.approx(2 * (0.013 + 0.016), abs=1e-12)
    # small, with answers as long as they were: 1,000 x 1e-6 + 100 x 2e-6, and 400 x 1e-6 + 600 x 1e-7 + 300 x 2e-6
    assert found.against["cheapest"].cost_usd == pytest.approx(2 * (0.0012 + 0.00106), abs=1e-12)
    assert found.against["cheapest"].length_calls == 0
    assert found.against["best"].saved_usd == 0.0
    assert found.actual.cached_share == pytest.approx(0.3)
