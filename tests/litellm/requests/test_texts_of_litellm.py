"""Texts that LiteLLM adds to a call on its way to the provider, at a provider that bills all that it receives."""

import contextlib

import litellm
import pytest

from support.billing_rules import MAX_OUTPUT_TOKENS
from support.billing_stub import billing_stub
from support.groups import HI, llms
from support.providers import INPUT_USD, OUTPUT_USD, deployment
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter_litellm import BudgetRefused, attach

PRICE = (INPUT_USD["small"], OUTPUT_USD["small"])
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}
OUTPUT_FORMAT = {"type": "json_schema", "schema": SCHEMA}
USERS = [{"role": "user", "content": "a"}] * 40
EMPTY = [*HI, *[{"role": role, "content": ""} for role in ("assistant", "user")] * 20]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = [*HI, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c", "content": "r"}]
ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
ITEMS = [*HI, ITEM, {"type": "function_call_output", "call_id": "c", "output": "r"}]
CASES = {
    "a format that is sent as a tool": ("anthropic", "claude-3-haiku-20240307", {"response_format": FORMAT}),
    "the name of a format": ("openai", "gpt-5", {"output_config": {"format": OUTPUT_FORMAT}}),
    "messages between those of one role": ("openai", "small", {"messages": USERS}),
    "texts in place of empty ones": ("anthropic", "small", {"messages": EMPTY}),
    "a tool where earlier ones are not given": ("anthropic", "small", {"messages": CALLED}),
    "a prompt of each message": ("text-completion-openai", "small", {"messages": USERS[:5]}),
    "an answer without the limit that LiteLLM drops": ("v0", "small", {}),
    "a tool where earlier ones of a response are not given": ("anthropic", "small", {"input": ITEMS}),
}
OWN = {
    "messages between those of one role": {"ensure_alternating_roles": True},
    "an answer without the limit that LiteLLM drops": {"drop_params": True},
}


async def bill_usd(name, amount_usd, settled):
    """Return the bill of one call under a hard budget; 0 where it was refused."""
    provider, model, params = CASES[name]
    router = WiseRouter([Model("small", Price(*PRICE))], seed=0)
    with billing_stub(prices={model: PRICE}) as stub:
        url = stub.root if provider == "anthropic" else stub.url
        own = {"info": {"max_output_tokens": MAX_OUTPUT_TOKENS}, **OWN.get(name, {})}
        llm = llms(deployment("small", url=url, model=f"{provider}/{model}", **own))
        attach(llm, "wise", router=router, budget=Budget(amount_usd, 100, limit="hard"), max_wait_s=0)
        call = llm.aanthropic_messages if "output_config" in params else llm.acompletion
        common = {"messages": HI, "max_tokens": 20}
        if "input" in params:
            call, common = llm.aresponses, {"max_output_tokens": 20}
        with contextlib.suppress(BudgetRefused):
            await call(model="wise", **{**common, **params})
        await settled(lambda: router.status().in_flight == 0)
        return stub.ledger_usd


@pytest.mark.parametrize("name", CASES)
async def test_a_hard_budget_below_the_bill_refuses_the_call(name, settled, monkeypatch):
    monkeypatch.setattr(litellm, "modify_params", True)
    billed_usd = await bill_usd(name, 10.0, settled)
    litellm.logging_callback_manager._reset_all_callbacks()
    assert billed_usd > 0
    assert await bill_usd(name, 0.999 * billed_usd, settled) == 0


@pytest.mark.parametrize("model", ["xai/grok-4.3", "groq/openai/gpt-oss-120b", "openai/gpt-oss-120b"])
async def test_the_text_that_a_model_has_in_every_prompt_counts_as_input(provider, model):
    prompt_usd = (663 if "grok" in model else 80) * PRICE[0]
    llm = llms(deployment("small", model=model))
    router = WiseRouter([Model("small", Price(*PRICE))], seed=0)
    attach(llm, "wise", router=router, budget=Budget(prompt_usd + 50 * PRICE[1], 100, limit="hard"), max_wait_s=0)
    with pytest.raises(BudgetRefused):
        await llm.acompletion(model="wise", messages=HI, max_tokens=50)
    assert not provider.calls


async def test_the_texts_that_a_deployment_passes_on_to_its_provider_count_as_input(provider):
    llm = llms(deployment("small", documents=[{"text": "word " * 2_000}]))
    router = WiseRouter([Model("small", Price(*PRICE))], seed=0)
    attach(llm, "wise", router=router, budget=Budget(2_000 * PRICE[0], 100, limit="hard"), max_wait_s=0)
    with pytest.raises(BudgetRefused):
        await llm.acompletion(model="wise", messages=HI, max_tokens=5)
    assert not provider.calls
