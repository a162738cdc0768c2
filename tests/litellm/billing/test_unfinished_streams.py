"""Chat streams that end before their provider gives a reason: the tokens that they report bound no bill."""

import time

import litellm
import pytest
import respx

from support.billing_answers import Reply, events_of
from support.billing_rules import Tokens
from support.groups import HI, llms
from support.providers import INPUT_USD, OUTPUT_USD, deployment, sse
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter_litellm import attach

BUDGETS = {"hard": Budget(10.0, 100, limit="hard"), "expected": Budget(10.0, 100)}
INPUT, OUTPUT = 11, 50
WHOLE_USD = INPUT * INPUT_USD["small"] + OUTPUT * OUTPUT_USD["small"]
PIECES = 5


def anthropic_events():
    """Return events of a provider that counts the prompt at the start, and the answer at the end."""
    return list(events_of("messages", Reply("msg_1", "small", Tokens(INPUT, OUTPUT, 1, 1.0, 0.0), pieces=PIECES)))


def counting_events():
    """Return events of a provider that counts in each piece what it has written so far."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "small"}
    details = {"prompt_tokens_details": {"cached_tokens": 0}}

    def piece(tokens, text, reason=None):
        counts = {"prompt_tokens": INPUT, "completion_tokens": tokens, "total_tokens": INPUT + tokens}
        choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": reason}
        return sse({**head, "choices": [choice], "usage": {**counts, **details}})

    return [piece(k, " word") for k in range(1, PIECES + 1)] + [piece(OUTPUT, "", "stop"), "data: [DONE]\n\n"]


PROVIDERS = {"anthropic": anthropic_events, "openai": counting_events}


@pytest.fixture
def attached():
    """Return a function that gives a router of one deployment whose provider ends its streams after some pieces."""
    with respx.mock(assert_all_called=False) as mock:

        def attach_to(provider, pieces, limit):
            body = "".join(PROVIDERS[provider]()[:pieces])
            mock.route().respond(200, content=body.encode(), headers={"content-type": "text/event-stream"})
            row = deployment("small", url="http://provider.test")
            row["litellm_params"]["model"] = f"{provider}/small"
            router, litellm_router = WiseRouter([Model("small", Price(1e-6, 2e-6))], seed=0), llms(row)
            attach(litellm_router, "wise", router=router, budget=BUDGETS[limit])
            return router, litellm_router

        yield attach_to


@pytest.mark.parametrize("limit", BUDGETS)
@pytest.mark.parametrize("pieces", [3, None], ids=["cut", "whole"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_chat_stream_that_was_cut_is_presumed_under_a_hard_limit(attached, settled, provider, pieces, limit):
    router, litellm_router = attached(provider, pieces, limit)
    stream = await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60, stream=True)
    is_raised = await read(stream)
    await settled(lambda: router.status().in_flight == 0)
    check(router.status(), is_cut=pieces is not None, is_hard=limit == "hard", is_raised=is_raised)


async def test_so_is_a_stream_of_responses_that_is_made_of_one(attached, settled):
    router, litellm_router = attached("anthropic", 3, "hard")
    stream = await litellm_router.aresponses(model="wise", input="hello there", max_output_tokens=60, stream=True)
    is_raised = await read(stream)
    await settled(lambda: router.status().in_flight == 0)
    check(router.status(), is_cut=True, is_hard=True, is_raised=is_raised)


def test_so_is_a_synchronous_one(attached):
    router, litellm_router = attached("anthropic", 3, "hard")
    is_raised = False
    try:
        assert list(litellm_router.completion(model="wise", messages=HI, max_tokens=60, stream=True))
    except litellm.APIConnectionError:
        is_raised = True
    deadline = time.monotonic() + 30
    while router.status().in_flight and time.monotonic() < deadline:
        time.sleep(0.01)
    check(router.status(), is_cut=True, is_hard=True, is_raised=is_raised)


async def read(stream):
    """Return True if LiteLLM raised where the stream was cut, as it does from 1.109 on; earlier ones end it."""
    pieces = 0
    try:
        async for _ in stream:
            pieces += 1
    except litellm.APIConnectionError:
        return True
    assert pieces
    return False


def check(status, *, is_cut, is_hard, is_raised):
    assert not is_raised or is_cut
    assert (status.presumed, status.charged) == ((1, 0) if is_raised or (is_cut and is_hard) else (0, 1))
    if is_raised and not is_hard:
        assert status.spent_usd > 0
    elif is_cut:
        assert (status.spent_usd >= WHOLE_USD) is is_hard
    else:
        assert status.spent_usd == pytest.approx(WHOLE_USD)
