"""Streams that report no usage: under a hard limit no count of tokens stands for the provider's bill."""

import litellm
import pytest
from litellm.proxy.common_request_processing import ProxyBaseLLMRequestProcessing

from support.billing_stub import Behaviour, billing_stub
from support.groups import fitted, llms
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import attach
from wiserouter_litellm.billing.bill import read_answer
from wiserouter_litellm.deployments.registry import DeploymentRegistry

QUESTION = [{"role": "user", "content": "hello there, tell me a long story"}]
BUDGETS = {"hard": Budget(10.0, 100, limit="hard"), "expected": Budget(10.0, 100)}


@pytest.fixture(scope="module")
def stub():
    with billing_stub() as stub:
        yield stub


async def read(litellm_router, **options):
    stream = await litellm_router.acompletion(model="wise", messages=QUESTION, max_tokens=60, stream=True, **options)
    assert [chunk async for chunk in stream]


@pytest.mark.parametrize("redacts", [False, True], ids=["logged", "redacted"])
@pytest.mark.parametrize("limit", BUDGETS)
@pytest.mark.parametrize("provider", ["openai", "anthropic", "hosted_vllm"])
@pytest.mark.parametrize("usage", ["true", "none"])
async def test_a_stream_without_usage_is_presumed_under_a_hard_limit(
    stub, settled, monkeypatch, provider, usage, limit, redacts
):
    """The stub counts more tokens of the prompt than LiteLLM does."""
    monkeypatch.setattr(litellm, "turn_off_message_logging", redacts)
    url = stub.root if provider == "anthropic" else stub.url
    rows = [deployment(name, url=url, model=f"{provider}/{name}") for name in ("small", "large")]
    router, litellm_router = fitted(), llms(*rows)
    attach(litellm_router, "wise", router=router, budget=BUDGETS[limit])
    stub.behaviour, before_usd = Behaviour(usage=usage), stub.ledger_usd
    await read(litellm_router, stream_options={"include_usage": True})
    await settled(lambda: router.status().charged + router.status().presumed == 1)
    billed_usd, status = stub.ledger_usd - before_usd, router.status()
    if usage == "true":
        assert (status.charged, status.spent_usd) == (1, pytest.approx(billed_usd))
    elif limit == "hard":
        assert status.presumed == 1
        assert status.spent_usd > billed_usd
    else:
        assert status.charged == 1
        assert status.spent_usd == pytest.approx(billed_usd, rel=0.05)


@pytest.mark.parametrize("redacts", [False, True], ids=["logged", "redacted"])
@pytest.mark.parametrize("limit", BUDGETS)
async def test_the_prompt_of_a_stream_of_messages_without_usage_is_no_gift(stub, settled, monkeypatch, limit, redacts):
    """LiteLLM counts the answer of such a stream, and no token of its prompt."""
    monkeypatch.setattr(litellm, "turn_off_message_logging", redacts)
    rows = [deployment(name, url=stub.root, model=f"anthropic/{name}") for name in ("small", "large")]
    router, litellm_router = fitted(), llms(*rows)
    callback = attach(litellm_router, "wise", router=router, budget=BUDGETS[limit])
    stub.behaviour, before_usd = Behaviour(usage="none"), stub.ledger_usd
    question = [{"role": "user", "content": "hello there, tell me a long story " * 40}]
    stream = await litellm_router.aanthropic_messages(model="wise", messages=question, max_tokens=10, stream=True)
    assert [piece async for piece in stream]
    await settled(lambda: router.status().charged + router.status().presumed == 1)
    billed_usd, status = stub.ledger_usd - before_usd, router.status()
    if limit == "hard":
        assert status.presumed == 1
        assert status.spent_usd > billed_usd
    else:
        assert status.charged == 1
        assert status.spent_usd == pytest.approx(billed_usd, rel=0.3)
    assert callback.groups["wise"].faults["estimated_costs"] == 1


@pytest.mark.parametrize("given", ["tools", "response_format"])
async def test_tools_and_formats_of_a_stream_without_usage_are_charged_by_their_texts(stub, settled, given):
    """LiteLLM counts the messages alone, and the tools of an agent are most of its prompt."""
    text = {"type": "string", "description": "where to look for it, and for how long " * 5}
    tool = {"name": "look", "parameters": {"type": "object", "properties": {f"at{i}": text for i in range(60)}}}
    values = {"tools": [{"type": "function", "function": tool}], "response_format": {"type": "json_object"}}
    router, llm = fitted(), llms(*(deployment(name, url=stub.url) for name in ("small", "large")))
    attach(llm, "wise", router=router, budget=BUDGETS["expected"])
    stub.behaviour, before_usd = Behaviour(usage="none"), stub.ledger_usd
    await read(llm, stream_options={"include_usage": True}, **{given: values[given]})  # so that LiteLLM counts itself
    await settled(lambda: router.status().charged == 1)
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd - before_usd, rel=0.3)


@pytest.mark.parametrize("redacts", [False, True], ids=["logged", "redacted"])
@pytest.mark.parametrize("surface", ["chat", "responses"])
async def test_a_stream_whose_client_leaves_is_charged_for_its_tools_and_instructions(
    settled, monkeypatch, surface, redacts
):
    """LiteLLM counts the messages alone, and the tools of an agent are most of its prompt."""
    monkeypatch.setattr(litellm, "turn_off_message_logging", redacts)
    text = {"type": "string", "description": "where to look for it, and for how long " * 5}
    look = {"name": "look", "parameters": {"type": "object", "properties": {f"at{i}": text for i in range(60)}}}
    metadata = {}
    with billing_stub(behaviour=Behaviour(piece_delay_s=0.1)) as stub:
        router, llm = fitted(), llms(*(deployment(name, url=stub.url) for name in ("small", "large")))
        callback = attach(llm, "wise", router=router, budget=BUDGETS["expected"])
        if surface == "chat":
            tools = [{"type": "function", "function": look}]
            stream = await llm.acompletion(
                model="wise", messages=QUESTION, stream=True, tools=tools, metadata=metadata, max_tokens=60
            )
        else:
            tools = [{"type": "function", **look}]
            stream = await llm.aresponses(
                model="wise", input=QUESTION, stream=True, tools=tools, litellm_metadata=metadata, max_output_tokens=60
            )
        await anext(stream)
        await anext(stream)
        log = getattr(stream, "logging_obj", None) or stream.litellm_logging_obj
        await ProxyBaseLLMRequestProcessing.finalize_streaming_generator_cleanup(
            None, {"metadata": metadata, "litellm_logging_obj": log}, stream, client_disconnected=True
        )
        await settled(lambda: router.status().charged == 1)
        stub.finish()
        assert router.status().spent_usd == pytest.approx(stub.ledger_usd, rel=0.3)
        assert "understated_costs" not in callback.groups["wise"].faults


def test_a_part_adds_to_the_count_of_litellm_what_that_leaves_out():
    info = DeploymentRegistry("wise").register([deployment("small", input_cost_per_token=1e-6)])[0]
    turns = [{"role": role, "content": "ok"} for _ in range(50) for role in ("user", "assistant")]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    seen = [{"role": "user", "content": [{"type": "text", "text": "look"}, picture]}]
    tools = [{"type": "function", "function": {"name": "look", "description": "where to look for it " * 30}}]
    left = {"litellm_params": {"metadata": {"client_disconnected": True}}, "model": "gpt-4o-mini", "stream": True}
    for messages in (turns, seen):
        counted = litellm.token_counter(model="gpt-4o-mini", messages=messages)
        answer = litellm.ModelResponse(
            model="gpt-4o-mini", usage=litellm.Usage(prompt_tokens=counted, completion_tokens=2)
        )
        for given in ({}, {"tools": tools}):
            bill, is_part = read_answer({**left, "messages": messages, **given}, answer, info, hard=False)
            assert is_part
            added = bill.usage.input_tokens - counted
            assert (100 < added < 400) if given else (added == 0)  # not the most that a provider may add for tools


def test_a_whole_stream_whose_provider_counts_the_answer_is_charged_by_its_report():
    info = DeploymentRegistry("wise").register([deployment("small", input_cost_per_token=1e-6)])[0]
    tools = [{"type": "function", "function": {"name": "look", "description": "where to look for it " * 30}}]
    event = {"model": "gpt-4o-mini", "stream": True, "messages": QUESTION, "tools": tools}
    counted = litellm.token_counter(model="gpt-4o-mini", messages=QUESTION)
    usage = litellm.Usage(prompt_tokens=counted, completion_tokens=7)  # of no text: thoughts that are not shown
    bill, is_part = read_answer(event, litellm.ModelResponse(model="gpt-4o-mini", usage=usage), info, hard=False)
    assert (bill.usage.input_tokens, is_part) == (counted, False)


async def test_tools_and_reasoning_are_recognised_as_well(stub):
    from wiserouter_litellm.billing.counted_streams import is_counted

    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "small"}
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    deltas = [{"role": "assistant", "reasoning_content": "let me see"}, {"tool_calls": [call]}, {"content": None}]
    chunks = [
        litellm.ModelResponseStream(**head, choices=[{"index": 0, "delta": delta, "finish_reason": end}])
        for delta, end in zip(deltas, (None, None, "tool_calls"), strict=True)
    ]
    response = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    event = {"stream": True, "model": "small", "messages": QUESTION}
    assert is_counted(event, response)
    response.usage.completion_tokens += 1
    assert not is_counted(event, response)
    assert not is_counted({**event, "stream": False}, response)
