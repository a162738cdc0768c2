"""A judge of LiteLLM: the texts that it gets, what it costs, and that no request waits for it or fails with it."""

import json
from unittest.mock import Mock

import httpx
import litellm
import pytest

from support.groups import HI, RICH, fitted
from support.providers import URL, answer, chat, deployment
from wiserouter import Budget
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter.fitting.imports import litellm as imports
from wiserouter.integration import UnbilledFailure
from wiserouter_litellm import attach
from wiserouter_litellm.billing.redacted_texts import REDACTED
from wiserouter_litellm.deployments.price_map import rate_card_of
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.settings.budget_settings import JudgeBlock
from wiserouter_litellm.settings.proxy_settings import settings_of
from wiserouter_litellm.settlement.judge import JUDGEMENT, LiteLLMJudge, start_judge
from wiserouter_litellm.settlement.judged_texts import answer_text, instructions_of, question_text

TOOL_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
JUDGE_USD = 20e-6 + 50 * 2e-6
SURFACES = {
    "chat": lambda r: r.acompletion(model="wise", messages=HI),
    "stream": lambda r: read(r.acompletion(model="wise", messages=HI, stream=True)),
    "text": lambda r: r.atext_completion(model="wise", prompt="hello there"),
    "responses": lambda r: r.aresponses(model="wise", input="hello there"),
    "messages": lambda r: r.aanthropic_messages(model="wise", messages=HI, max_tokens=40),
}


async def read(stream):
    return [chunk async for chunk in await stream]


def judged_router(provider, reply="0.75", fallbacks=None, default_fallbacks=None, **settings):
    """Return LiteLLM's router with a judge beside the group, and our router, which it judges."""
    models = [deployment("small"), deployment("large"), deployment("referee", "referee"), deployment("dear", "dear")]
    router = litellm.Router(models, num_retries=0, fallbacks=fallbacks or [], default_fallbacks=default_fallbacks)
    ours = fitted()
    attach(router, "wise", router=ours, budget=RICH)

    def replies(request):
        if json.loads(request.content)["model"] != "referee":
            return answer(request)
        return reply(request) if callable(reply) else httpx.Response(200, json=chat("referee", reply))

    provider.routes.clear()
    provider.route(url__startswith=URL).mock(side_effect=replies)
    block = JudgeBlock(
        **{"model": "referee", "share": 1.0, "budget_usd": 1.0, "attempts": 1, "first_scores": 0, **settings}
    )
    start_judge(ours, block, [deployment("referee", "referee")], lambda: router)
    return router, ours


def prompts_of(provider):
    bodies = [json.loads(call.request.content) for call in provider.calls]
    return [body["messages"][0]["content"] for body in bodies if body["model"] == "referee"]


@pytest.mark.parametrize("surface", SURFACES)
async def test_every_surface_is_judged_by_its_texts(provider, settled, surface):
    router, ours = judged_router(provider)
    await SURFACES[surface](router)
    await settled(lambda: ours.status().judge.judged == 1, 20.0)
    (prompt,) = prompts_of(provider)
    assert "hello there" in prompt
    assert ("word word" if surface == "stream" else "an answer") in prompt
    assert ours.status("judge:referee").spent_usd == pytest.approx(JUDGE_USD)
    assert ours.estimates.labels.sum() == pytest.approx(101.0)
    ours.stop_judging()


async def test_its_budget_is_kept_and_its_calls_are_not_judged(provider, settled):
    card = rate_card_of(deployment("referee"))
    bound_usd = LiteLLMJudge("referee", lambda: None, [card], 1_000).most_usd("x" * 1_000)
    router, ours = judged_router(provider, budget_usd=bound_usd + 3 * JUDGE_USD, concurrency=1)
    for i in range(20):
        await router.acompletion(model="wise", messages=HI)
        await settled(lambda i=i: ours.status().charged == i + 1)
    await settled(lambda: not ours.judge.waits())
    figures = ours.status().judge
    assert figures.offered == 20
    assert figures.judged >= 3
    assert figures.judged + figures.unpaid == 20
    assert figures.judged == len(prompts_of(provider))
    assert ours.status("judge:referee").spent_usd == pytest.approx(figures.judged * JUDGE_USD)
    ours.stop_judging()


@pytest.mark.parametrize(
    ("info", "most"),
    [
        ({"base_model": "gpt-5-mini", "max_output_tokens": 128_000}, 4_000),
        ({"supports_reasoning": True, "max_output_tokens": None}, 4_000),
        ({"base_model": "gpt-5-mini", "max_output_tokens": 2_000}, 2_000),
        ({"max_output_tokens": None}, 1_000),
    ],
)
def test_a_judge_that_reasons_may_do_so_before_its_number(info, most):
    router = Mock()
    start_judge(router, JudgeBlock(model="referee", budget_usd=1.0), [deployment("referee", info=info)], lambda: None)
    (ask,) = router.judge_with.call_args.args
    per_token = deployment("referee")["litellm_params"]["output_cost_per_token"]
    input_usd = ask.bound_usd("a", "b") - most * per_token
    stated = JudgeBlock(model="referee", budget_usd=1.0, max_output_tokens=16)
    start_judge(router, stated, [deployment("referee", info=info)], lambda: None)
    (ask,) = router.judge_with.call_args.args
    assert ask.bound_usd("a", "b") - 16 * per_token == pytest.approx(input_usd)


def slow_failure(request):
    raise httpx.ConnectError("refused")


@pytest.mark.parametrize("reply", ["good", "", slow_failure, lambda request: httpx.Response(500, text="broken")])
async def test_a_judge_that_fails_changes_nothing(provider, settled, reply):
    router, ours = judged_router(provider, reply)
    before = ours.estimates.labels.sum()
    for _ in range(3):
        assert (await router.acompletion(model="wise", messages=HI)).choices[0].message.content == "an answer"
    await settled(lambda: ours.status().judge.failed == 3)
    assert (ours.status().charged, ours.estimates.labels.sum()) == (3, before)
    ours.stop_judging()


async def test_a_refused_connection_costs_nothing_and_an_unknown_end_its_bound(provider, settled):
    router, ours = judged_router(provider, slow_failure)
    await router.acompletion(model="wise", messages=HI)
    await settled(lambda: ours.status().judge.failed == 1)
    ours.stop_judging()
    assert ours.status("judge:referee").spent_usd == 0.0
    router, ours = judged_router(provider, lambda request: httpx.Response(500, text="broken"))
    await router.acompletion(model="wise", messages=HI)
    await settled(lambda: ours.status().judge.failed == 1)
    assert ours.status("judge:referee").spent_usd > JUDGE_USD
    ours.stop_judging()


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("fallbacks", [{"default_fallbacks": ["wise"]}, {"fallbacks": [{"referee": ["dear"]}]}])
async def test_no_fallback_answers_for_a_judge(provider, settled, fallbacks, status):
    router, ours = judged_router(provider, lambda request: httpx.Response(status, text="broken"), **fallbacks)
    await router.acompletion(model="wise", messages=HI)
    await settled(lambda: ours.status().judge.failed == 1)
    assert (ours.status().decided, ours.status().judge.failed, len(provider.calls)) == (1, 1, 2)
    ours.stop_judging()


async def test_a_judges_call_that_reaches_the_group_all_the_same_is_not_judged(provider, settled):
    router, ours = judged_router(provider)
    await router.acompletion(model="wise", messages=HI, metadata=dict(JUDGEMENT))
    await settled(lambda: ours.status().charged == 1)
    assert ours.status().judge.offered == 0
    ours.stop_judging()


async def test_cached_and_redacted_answers_are_not_judged(provider, settled):
    router, ours = judged_router(provider)
    litellm.cache = litellm.Cache(type="local")
    try:
        for _ in range(2):
            await router.acompletion(model="wise", messages=HI, caching=True)
            await settled(lambda: ours.status().in_flight == 0)
    finally:
        litellm.cache = None
    assert ours.status().judge.offered == 1
    with pytest.raises(InvalidInput, match="redacted"):
        from wiserouter_litellm.settlement.judge import _readable

        _readable(question_text, "redacted-by-litellm")
    ours.stop_judging()


async def test_nothing_is_asked_before_the_proxy_has_a_router():
    judge = LiteLLMJudge("referee", lambda: None, [rate_card_of(deployment("referee"))], 16)
    with pytest.raises(UnbilledFailure):
        await judge.reply("prompt")


def test_the_texts_of_odd_answers():
    assert (
        answer_text({"choices": [{"message": {"content": None, "tool_calls": [TOOL_CALL]}}]}) == 'calls f with {"a": 1}'
    )
    custom = {"type": "custom", "custom": {"name": "g", "input": "a: 1"}}
    assert answer_text({"choices": [{"message": {"tool_calls": [custom]}}]}) == "calls g with a: 1"
    assert answer_text({"content": [{"type": "text", "text": "hi"}, {"type": "image"}]}) == "hi\n[image]"
    assert answer_text(None) == answer_text({}) == question_text(None) == ""
    assert question_text("hi") == "hi"
    assert question_text([1, 2, 3]) == ""
    assert question_text([{"type": "reasoning", "summary": []}, {"role": "user", "content": "hi"}]) == "user: hi"


LOOKED_UP = "system: Be brief.\n\nuser: the weather?\n\nassistant: I look.\ncalls look_up with %s\n\n%s: rain at noon"
ARGUMENTS = {"city": "Oslo"}


@pytest.mark.parametrize(
    ("kwargs", "role"),
    [
        (
            {
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "the weather?"},
                    {
                        "role": "assistant",
                        "content": "I look.",
                        "tool_calls": [{"function": {"name": "look_up", "arguments": json.dumps(ARGUMENTS)}}],
                    },
                    {"role": "tool", "tool_call_id": "t1", "content": "rain at noon"},
                ]
            },
            "tool",
        ),
        (
            {
                "optional_params": {"instructions": "Be brief."},
                "messages": [
                    {"role": "user", "content": [{"type": "input_text", "text": "the weather?"}]},
                    {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                    {"type": "function_call", "name": "look_up", "arguments": json.dumps(ARGUMENTS)},
                    {"type": "function_call_output", "call_id": "t1", "output": "rain at noon"},
                ],
            },
            "tool",
        ),
        (
            {
                "system": [{"type": "text", "text": "Be brief."}],
                "messages": [
                    {"role": "user", "content": "the weather?"},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "text", "text": "I look."},
                            {"type": "tool_use", "id": "t1", "name": "look_up", "input": ARGUMENTS},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "t1",
                                "content": [{"type": "text", "text": "rain at noon"}],
                            }
                        ],
                    },
                ],
            },
            "user",
        ),
    ],
    ids=["chat", "responses", "messages"],
)
def test_a_judge_reads_the_instructions_the_calls_of_tools_and_their_results(kwargs, role):
    text = question_text(kwargs["messages"], instructions_of(kwargs))
    assert text.replace("\n\nassistant: calls", "\ncalls") == LOOKED_UP % (json.dumps(ARGUMENTS), role)


def test_a_judge_reads_the_instructions_of_a_response_that_litellm_makes_of_a_chat():
    request = {"proxy_server_request": {"body": {"instructions": "Be brief.", "input": "hi"}}}
    assert instructions_of({"optional_params": {}, "litellm_params": request}) == "Be brief."
    assert instructions_of({"litellm_params": {"proxy_server_request": None}}) is None


def test_a_call_of_a_tool_in_the_format_of_responses_is_an_answer():
    item = {"type": "function_call", "name": "look_up", "arguments": json.dumps(ARGUMENTS)}
    response = {"object": "response", "output": [{"type": "reasoning", "summary": []}, item]}
    assert answer_text(response) == f"calls look_up with {json.dumps(ARGUMENTS)}"


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"model": "wise", "budget_usd": 1}, "must be no group that is routed"),
        ({"model": "referee"}, "judge.budget_usd: is required|judge.budget_usd is required"),
        ({"model": "referee", "budget_usd": 1, "share": 2}, "judge.share"),
        ({"model": "referee", "budget_usd": 1, "shares": 0.1}, "did you mean share"),
    ],
)
def test_settings_are_checked(block, says):
    with pytest.raises(SettingsError, match=says):
        settings_of({"groups": {"wise": {"budget_usd": 1.0, "requests": 10, "judge": block}}})


def test_a_judge_needs_a_model_with_a_price():
    router = fitted()
    router.start(Budget(1.0, 10))
    block = JudgeBlock(model="referee", budget_usd=1.0)
    with pytest.raises(InvalidInput, match=r"judge\.model must be"):
        start_judge(router, block, [], lambda: None)
    with pytest.raises(UnknownPrice):
        start_judge(router, block, [{"litellm_params": {"model": "openai/unheard-of"}}], lambda: None)


def test_the_judge_and_the_import_know_the_same_mark_of_redacted_texts():
    assert REDACTED == imports.REDACTED
