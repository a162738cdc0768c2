"""Compactions in Python: LiteLLM selects a deployment as for a response, but no limit bounds what they write."""

import litellm
import pytest
import respx

from support.groups import llms
from support.providers import URL, deployment
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter_litellm import attach

USAGE = {"input_tokens": 20, "output_tokens": 500, "total_tokens": 520}
BODY = {"id": "resp_1", "object": "response.compaction", "created_at": 1, "output": [], "usage": USAGE}


@pytest.fixture
def provider():
    with respx.mock(assert_all_called=False) as mock:
        mock.post(f"{URL}/responses/compact").respond(200, json=BODY)
        yield mock


def attached(budget):
    router, litellm_router = WiseRouter([Model("small", Price(1e-6, 2e-6))], seed=0), llms(deployment("small"))
    attach(litellm_router, "wise", router=router, budget=budget)
    return router, litellm_router


async def test_a_hard_budget_refuses_a_compaction_before_it_is_sent(provider, settled):
    router, litellm_router = attached(Budget(10.0, 100, limit="hard"))
    with pytest.raises(litellm.BadRequestError, match="compactions to a group without a hard budget"):
        await litellm_router.acompact_responses(model="wise", input="hello there")
    await settled(lambda: router.status().in_flight == 0)
    assert (len(provider.calls), router.status().spent_usd, router.status().presumed) == (0, 0.0, 0)


async def test_an_expected_budget_is_charged_for_it(provider, settled):
    router, litellm_router = attached(Budget(10.0, 100))
    await litellm_router.acompact_responses(model="wise", input="hello there")
    await settled(lambda: router.status().in_flight == 0)
    assert router.status().spent_usd == pytest.approx(20e-6 + 500 * 2e-6)
