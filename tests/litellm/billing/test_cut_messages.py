"""Streams of Anthropic's messages that end early: LiteLLM reports what had come, which bounds no bill."""

import pytest
import respx

from support.billing_answers import Reply, events_of
from support.billing_rules import Tokens
from support.groups import HI, llms
from support.providers import INPUT_USD, OUTPUT_USD, deployment
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter_litellm import attach

BUDGETS = {"hard": Budget(10.0, 100, limit="hard"), "expected": Budget(10.0, 100)}
REPLY = Reply("msg_1", "small", Tokens(11, 50, 1, 1.0, 0.0), "true", 5, False, True)


@pytest.fixture
def cut_after():
    """Return a function that lets the provider end its stream after some pieces; None where it sends all of them."""
    with respx.mock(assert_all_called=False) as mock:

        def serve(pieces):
            body = "".join(list(events_of("messages", REPLY))[:pieces])
            headers = {"content-type": "text/event-stream"}
            mock.post(url__regex=r".*/v1/messages").respond(200, content=body.encode(), headers=headers)

        yield serve


@pytest.mark.parametrize("limit", BUDGETS)
@pytest.mark.parametrize("pieces", [2, None], ids=["cut", "whole"])
async def test_a_stream_that_was_cut_is_presumed_under_a_hard_limit(cut_after, settled, limit, pieces):
    cut_after(pieces)
    row = deployment("small", url="http://provider.test")
    row["litellm_params"]["model"] = "anthropic/small"
    router, litellm_router = WiseRouter([Model("small", Price(1e-6, 2e-6))], seed=0), llms(row)
    attach(litellm_router, "wise", router=router, budget=BUDGETS[limit])
    stream = await litellm_router.aanthropic_messages(model="wise", messages=HI, max_tokens=60, stream=True)
    assert [piece async for piece in stream]
    await settled(lambda: router.status().in_flight == 0)
    status, whole_usd = router.status(), 11 * INPUT_USD["small"] + 50 * OUTPUT_USD["small"]
    is_presumed = pieces is not None and limit == "hard"
    assert (status.presumed, status.charged) == ((1, 0) if is_presumed else (0, 1))
    if pieces is None:
        assert status.spent_usd == pytest.approx(whole_usd)
    else:
        assert (status.spent_usd >= whole_usd) is (limit == "hard")
