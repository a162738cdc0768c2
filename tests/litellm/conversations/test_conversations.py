"""Calls of conversations and runs through a `litellm.Router`: one model, one account, and feedback by session."""

import asyncio
import json
import random

import httpx
import litellm
import pytest

from support.groups import RICH, asked, fitted, llms
from support.providers import chat, deployment, failing
from wiserouter import Budget, Conversations
from wiserouter.errors import InvalidInput, RunBudgetExhausted
from wiserouter_litellm import BudgetRefused, UnknownCall, attach, detach
from wiserouter_litellm.conversations.feedback_keys import feedback_key
from wiserouter_litellm.conversations.request_conversation import conversation_of_request, session_key

RUN = {"unit": "run"}
TASK = {"role": "user", "content": "fix the failing test in the parser"}


def attached(*deployments, settings=RUN, budget=RICH, router=None, max_wait_s=10.0, **options):
    router = router or fitted()
    llm = llms(*deployments, **options)
    return llm, router, attach(llm, "wise", router=router, budget=budget, max_wait_s=max_wait_s, **settings)


def turned(router, prefer):
    """Let every further decision choose another model, as if all had been learned again."""
    for _ in range(2_000):
        router.estimates.add_reward(0, 0, 1.0 if prefer == "small" else 0.0)
        router.estimates.add_reward(0, 1, 0.0 if prefer == "small" else 1.0)


def agent_turns(n):
    """Return the messages of each call of an agent that calls one tool after the other."""
    messages = [TASK]
    for i in range(n):
        yield list(messages)
        call = {"id": f"call_{i}", "type": "function", "function": {"name": "ls", "arguments": json.dumps({"at": i})}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{i}", "content": f"file {i}"},
        ]


def calling_tools(request):
    """Answer with the tool call that comes next in `agent_turns`."""
    body = json.loads(request.content)
    i = sum(message["role"] == "tool" for message in body["messages"])
    call = {"id": f"call_{i}", "type": "function", "function": {"name": "ls", "arguments": json.dumps({"at": i})}}
    return httpx.Response(200, json=chat(body["model"], None, tool_calls=[call]))


def presumed_usd(router):
    return router.status().presumed_usd


def answer_with(provider, respond):
    provider.routes[0].side_effect = respond


async def test_a_run_with_a_session_id_is_one_decision(provider, settled):
    llm, router, _ = attached()
    for i in range(4):
        await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
        await settled(lambda i=i: router.status().charged == i + 1)
        turned(router, "small")
    assert asked(provider) == ["large"] * 4
    assert router.status().decided == 1
    await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-2"})
    assert asked(provider)[-1] == "small"


async def test_a_run_without_an_id_is_found_by_its_messages(provider, settled):
    llm, router, _ = attached()
    answer_with(provider, calling_tools)
    for i, messages in enumerate(agent_turns(5)):
        await llm.acompletion(model="wise", messages=messages)
        await settled(lambda i=i: router.status().charged == i + 1)
        turned(router, "small")
    assert asked(provider) == ["large"] * 5
    assert (router.status().decided, router.status().conversations.stays) == (1, 4)
    await llm.acompletion(model="wise", messages=[{"role": "user", "content": "another task"}])
    assert asked(provider)[-1] == "small"


@pytest.mark.parametrize("redacts", [False, True])
async def test_two_chats_that_begin_alike_part_at_their_answers(provider, settled, monkeypatch, redacts):
    monkeypatch.setattr(litellm, "turn_off_message_logging", redacts)
    llm, router, _ = attached(settings={"unit": "conversation"})
    answers = iter(["hello, how are you?", "hi there", "fine", "well"])
    answer_with(provider, lambda request: httpx.Response(200, json=chat("large", next(answers))))
    begun = [await llm.acompletion(model="wise", messages=[TASK]) for _ in range(2)]
    await settled(lambda: router.status().charged == 2)
    later = []
    for first in begun:
        said = {"role": "assistant", "content": first.choices[0].message.content}
        messages = [TASK, said, {"role": "user", "content": "and now?"}]
        later.append(await llm.acompletion(model="wise", messages=messages))
    await settled(lambda: router.status().charged == 4)
    keys = [router.decision(feedback_key(answer.id, None)).conversation for answer in (*begun, *later)]
    assert keys[:2] == keys[2:]
    assert keys[0] != keys[1]


async def test_each_call_is_decided_alone_by_default(provider, settled):
    llm, router, callback = attached(settings={})
    for i in range(2):
        await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
        await settled(lambda i=i: router.status().charged == i + 1)
        turned(router, "small")
    assert asked(provider) == ["large", "small"]
    assert router.status().conversations is None
    with pytest.raises(UnknownCall):
        callback.feedback("run-1", 1.0)


@pytest.mark.parametrize("ids", [{"metadata": {"session_id": "run-1"}}, {}], ids=["session", "messages"])
async def test_a_failed_model_is_left_for_good_within_one_request(provider, settled, ids):
    llm, router, _ = attached(num_retries=2)
    answer_with(provider, failing("large"))
    await llm.acompletion(model="wise", messages=[TASK], **ids)
    await settled(lambda: router.status().in_flight == 0)
    assert asked(provider)[-1] == "small"
    n_calls = len(asked(provider))
    said = {"role": "assistant", "content": "an answer"}
    messages = [TASK, said, {"role": "user", "content": "go on"}]
    await llm.acompletion(model="wise", messages=messages, **ids)
    await settled(lambda: router.status().in_flight == 0)
    assert asked(provider)[n_calls:] == ["small"]
    assert router.status().decided == 1


async def test_one_of_several_deployments_that_fails_moves_no_run(provider, settled):
    rows = [deployment("large"), deployment("large", info={"id": "large-2"}), deployment("small")]
    llm, router, _ = attached(*rows, num_retries=2)
    await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
    await settled(lambda: router.status().charged == 1)
    replies = iter([httpx.Response(429, json={"error": {"message": "slow down"}})])
    answer_with(provider, lambda request: next(replies, None) or httpx.Response(200, json=chat("large")))
    await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
    await settled(lambda: router.status().in_flight == 0)
    assert asked(provider) == ["large"] * 3


async def test_a_run_goes_on_after_a_request_that_was_refused(provider, settled):
    llm, router, _ = attached()
    await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
    answer_with(provider, failing("large", status=400))
    with pytest.raises(Exception, match="out of order"):
        await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
    answer_with(provider, failing())
    await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
    assert asked(provider) == ["large"] * 3
    await settled(lambda: router.status().in_flight == 0)


async def test_a_run_budget_ends_in_an_error_with_its_figures(provider, settled):
    llm, router, _ = attached(settings={"unit": "run", "run_budget_usd": 0.004})
    served = 0
    with pytest.raises(BudgetRefused) as refused:
        for served in range(10):
            await llm.acompletion(model="wise", messages=[TASK], max_tokens=50, metadata={"session_id": "run-1"})
            await settled(lambda served=served: router.status().charged == served + 1)
    assert 0 < served < 10
    assert isinstance(refused.value.error, RunBudgetExhausted)
    assert refused.value.status_code == 429
    assert "the run budget of 0.004 USD does not pay for this call" in str(refused.value)
    assert "end the run" in str(refused.value)
    assert router.conversation("run-1").spent_usd <= 0.004
    await llm.acompletion(model="wise", messages=[TASK], max_tokens=50, metadata={"session_id": "run-2"})


async def test_parts_of_a_run_share_its_budget(provider, settled):
    llm, router, _ = attached(settings={"unit": "run", "run_budget_usd": 0.004})
    metadata = [{"session_id": "main"}, {"session_id": "part", "wiserouter_parent": "main"}]
    with pytest.raises(BudgetRefused):
        for i in range(10):
            await llm.acompletion(model="wise", messages=[TASK], max_tokens=50, metadata=metadata[i % 2].copy())
            await settled(lambda i=i: router.status().charged == i + 1)
    spent = [router.conversation(name).spent_usd for name in ("main", "part")]
    assert 0 < sum(spent) <= 0.004
    assert spent[1] > 0


async def test_concurrent_calls_of_a_run_cannot_both_take_the_rest(provider, settled):
    llm, router, _ = attached(settings={"unit": "run", "run_budget_usd": 0.004})
    calls = [
        llm.acompletion(model="wise", messages=[TASK], max_tokens=50, metadata={"session_id": "run-1"})
        for _ in range(8)
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in answers} <= {type(answers[0]), BudgetRefused}
    await settled(lambda: router.status().in_flight == 0)
    assert router.conversation("run-1").spent_usd <= 0.004


async def test_feedback_by_the_id_of_a_session_rates_the_run(provider, settled):
    llm, router, callback = attached()
    for i in range(2):
        await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
        await settled(lambda i=i: router.status().charged == i + 1)
    labels = router.estimates.labels.sum()
    assert callback.feedback("run-1", 0.5) is False
    assert callback.feedback("run-1", 0.75) is True
    assert router.estimates.labels.sum() == labels + 1
    for foreign in ("run-2", session_key("run-1", "")):
        with pytest.raises(UnknownCall):
            callback.feedback(foreign, 0.5)
    with pytest.raises(UnknownCall):
        callback.feedback("run-1", 0.5, tenant="another key")


async def test_a_run_that_is_ended_gives_back_what_it_commits_and_can_still_be_rated(provider, settled):
    llm, router, callback = attached()
    await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
    await settled(lambda: router.status().charged == 1)
    with pytest.raises(UnknownCall):
        callback.end("run-1", tenant="another key")
    callback.end("run-1")
    assert router.conversation("run-1") is None
    assert router.status().conversations.ended == 1
    assert callback.feedback("run-1", 1.0) is False


async def test_a_run_that_falls_back_to_another_group_comes_back(provider, settled):
    rows = [deployment("small"), deployment("large"), deployment("rescue", "rescue")]
    llm, router, _ = attached(*rows, fallbacks=[{"wise": ["rescue"]}], allowed_fails=1_000)
    for broken in ((), ("small", "large"), ()):
        answer_with(provider, failing(*broken))
        await llm.acompletion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
        await settled(lambda: router.status().in_flight == 0)
    answered = [asked(provider)[0], *asked(provider)[-2:]]
    assert answered == ["large", "rescue", "large"]
    assert router.status().decided == 1
    state = router.conversation("run-1")
    assert (state.model, state.spent_usd) == ("large", pytest.approx(router.status().spent_usd - presumed_usd(router)))


@pytest.mark.parametrize("api", ["openai", "deepseek"], ids=["responses", "chats"])
async def test_a_response_is_continued_in_its_conversation_and_rated(provider, settled, api):
    llm, router, callback = attached(*(deployment(name, model=f"{api}/{name}") for name in ("small", "large")))
    first = await llm.aresponses(model="wise", input="fix the test", max_output_tokens=60)
    await settled(lambda: router.status().charged == 1)
    turned(router, "small")
    await llm.aresponses(model="wise", input="go on", previous_response_id=first.id, max_output_tokens=60)
    await settled(lambda: router.status().charged == 2)
    assert (router.status().decided, router.status().conversations.stays) == (1, 1)
    assert asked(provider) == ["large"] * 2
    assert callback.feedback(first.id, 1.0) is False


async def test_requests_that_run_beside_others_belong_to_no_conversation():
    assert conversation_of_request([TASK], {}, {"is_silent_experiment": True}, None, "default", None) is None


@pytest.mark.parametrize("input_", ["fix the test", ["fix the test"], None, 5])
async def test_any_input_of_a_response_has_a_conversation(input_):
    router = fitted()
    router.start(RICH)
    router.keep_conversations(Conversations("run"))
    found = conversation_of_request(None, {"input": input_}, {}, None, "default", None)
    terms = found.terms(router)
    assert terms == found.terms(router)
    decision = router.decide(context=0, **terms)
    assert found.note(router, decision).headers["x-wiserouter-visit"] == "first"


async def test_the_spend_of_a_run_equals_the_bills(provider, settled):
    llm, router, _ = attached()
    for i, messages in enumerate(agent_turns(3)):
        await llm.acompletion(model="wise", messages=messages, metadata={"session_id": "run-1"})
        await settled(lambda i=i: router.status().charged == i + 1)
    assert router.conversation("run-1").spent_usd == pytest.approx(router.status().spent_usd)


def test_synchronous_calls_are_calls_of_their_run_too(provider):
    llm, router, _ = attached()
    for _ in range(2):
        llm.completion(model="wise", messages=[TASK], metadata={"session_id": "run-1"})
        turned(router, "small")
    assert asked(provider) == ["large"] * 2
    detach(llm)


def test_the_settings_of_a_router_are_those_of_its_groups():
    router = fitted()
    router.keep_conversations(Conversations("conversation"))
    with pytest.raises(InvalidInput, match="under one setting"):
        attached(router=router)


def test_a_hard_run_budget_needs_bounds():
    rows = [deployment(name, info={"max_output_tokens": None, "max_input_tokens": None}) for name in ("small", "large")]
    with pytest.raises(Exception, match="bound on the cost of a call"):
        attached(*rows, settings={"unit": "run", "run_budget_usd": 1.0}, budget=Budget(10.0, 100))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
async def test_no_run_exceeds_its_hard_budget_whatever_fails_and_whoever_leaves(provider, settled, seed):
    draws = random.Random(seed)
    settings = {"unit": "run", "run_budget_usd": 0.005}
    llm, router, callback = attached(settings=settings, num_retries=1, allowed_fails=1_000, max_wait_s=0.5)

    def respond(request):
        broken = ("small", "large") if draws.random() < 0.2 else ()
        return failing(*broken, status=draws.choice([429, 500, 503]))(request)

    answer_with(provider, respond)

    async def call(i):
        run = f"run-{draws.randrange(4)}"
        metadata = {"session_id": f"{run}-part" if i % 3 == 0 else run}
        metadata |= {"wiserouter_parent": run} if i % 3 == 0 else {}
        task = asyncio.ensure_future(llm.acompletion(model="wise", messages=[TASK], max_tokens=50, metadata=metadata))
        if draws.random() < 0.1:
            await asyncio.sleep(draws.random() / 100)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for _ in range(6):
        await asyncio.gather(*map(call, range(8)))
    await settled(lambda: router.status().in_flight == 0)
    states = {name: router.conversation(name) for i in range(4) for name in (f"run-{i}", f"run-{i}-part")}
    for i in range(4):
        parts = [states[name] for name in (f"run-{i}", f"run-{i}-part") if states[name] is not None]
        assert sum(state.spent_usd for state in parts) <= 0.005 + 1e-12
    charged_usd = router.status().spent_usd - router.status().presumed_usd
    assert sum(state.spent_usd for state in states.values() if state is not None) == pytest.approx(charged_usd)
    assert router.status().reserved_usd == pytest.approx(0.0, abs=1e-12)
    assert callback.groups["wise"].queue.n_waiting == 0
