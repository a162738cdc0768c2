"""Streams whose client leaves: no fault of the operator, whatever surface LiteLLM serves them by."""

from datetime import UTC, datetime

import pytest
from litellm.proxy.common_request_processing import ProxyBaseLLMRequestProcessing
from litellm.utils import Rules, function_setup

from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, fitted, llms
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import attach

BUDGETS = {"hard": Budget(10.0, 100, limit="hard"), "expected": Budget(10.0, 100)}
TERMS = {"model": "wise", "stream": True}
STREAMS = {
    "chat": ("acompletion", lambda llm, asked: llm.acompletion(messages=HI, max_tokens=60, **TERMS, **asked)),
    "messages": (
        "anthropic_messages",
        lambda llm, asked: llm.aanthropic_messages(messages=HI, max_tokens=60, **TERMS, **asked),
    ),
    "responses": ("aresponses", lambda llm, asked: llm.aresponses(input=HI, max_output_tokens=60, **TERMS, **asked)),
}


@pytest.mark.parametrize("limit", BUDGETS)
@pytest.mark.parametrize("surface", STREAMS)
@pytest.mark.parametrize("provider", ["openai", "anthropic", "hosted_vllm"])
async def test_a_client_that_leaves_is_no_fault(settled, surface, limit, provider):
    with billing_stub(behaviour=Behaviour(piece_delay_s=0.1)) as stub:
        url = stub.root if provider == "anthropic" else stub.url
        rows = [deployment(name, url=url, model=f"{provider}/{name}") for name in ("small", "large")]
        router, llm = fitted(), llms(*rows)
        callback = attach(llm, "wise", router=router, budget=BUDGETS[limit])
        asked = {"metadata": {}, "litellm_metadata": {}, "litellm_call_id": "a call"}
        kind, call = STREAMS[surface]
        log, _ = function_setup(kind, Rules(), datetime.now(UTC), model="wise", messages=HI, stream=True, **asked)
        asked["litellm_logging_obj"] = log
        stream = await call(llm, asked)
        await anext(stream)
        await anext(stream)
        await ProxyBaseLLMRequestProcessing.finalize_streaming_generator_cleanup(
            None, asked, stream, client_disconnected=True
        )
        del stream
        await settled(lambda: router.status().in_flight == 0)
        stub.finish()
        status = router.status()
        assert (status.presumed, status.charged) == ((1, 0) if limit == "hard" else (0, 1))
        assert (status.spent_usd >= stub.ledger_usd) or limit == "expected"
        assert not callback.groups["wise"].faults
