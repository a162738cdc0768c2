"""Streams of LiteLLM's cache: free, also where the client of the proxy leaves before the end."""

import litellm
import pytest
from litellm.proxy.common_request_processing import ProxyBaseLLMRequestProcessing

from support.groups import HI, fitted, llms
from support.providers import cost_usd
from wiserouter import Budget
from wiserouter_litellm import attach

STREAM = {"model": "wise", "messages": HI, "stream": True, "max_tokens": 100, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("limit", ["expected", "hard"])
@pytest.mark.parametrize("leaves", [False, True], ids=["whole", "left"])
async def test_a_stream_of_the_cache_costs_nothing(provider, settled, limit, leaves):
    litellm.cache = litellm.Cache(type="local")
    router = fitted()
    callback = attach(llms(cache_responses=True), "wise", router=router, budget=Budget(1.0, 100, limit=limit))
    assert [piece async for piece in await callback._router.acompletion(**STREAM)]
    await settled(lambda: router.status().charged == 1)
    metadata = {}
    stream = await callback._router.acompletion(**STREAM, metadata=metadata)
    data = {"metadata": metadata, "litellm_logging_obj": stream.logging_obj}
    pieces = callback.async_post_call_streaming_iterator_hook(None, stream, data)
    if leaves:
        await anext(pieces)
        await ProxyBaseLLMRequestProcessing.finalize_streaming_generator_cleanup(
            None, data, stream, client_disconnected=True
        )
        await pieces.aclose()
    else:
        assert [piece async for piece in pieces]
    await settled(lambda: router.status().in_flight == 0)
    assert len(provider.calls) == 1
    assert router.status().spent_usd == pytest.approx(cost_usd("large"))
    assert router.status().presumed == 0
    assert router.estimates.calls.sum() == 101
