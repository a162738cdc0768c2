"""The keys of a call, and the callers that find it by them."""

import json
from hashlib import blake2b

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.groups import HI, RICH, fitted, llms
from support.providers import deployment
from wiserouter.stores.memory import MemoryStore
from wiserouter_litellm import attach
from wiserouter_litellm.conversations.feedback_keys import (
    feedback_key,
    id_of_call,
    keys_of_decision,
    keys_to_store,
    keys_to_try,
)
from wiserouter_litellm.errors import UnknownCall
from wiserouter_litellm.requests.origin import origin_of

IDS = st.text(max_size=40)
CALLERS = st.none() | st.text(max_size=40)


@given(IDS, CALLERS, IDS, CALLERS)
def test_two_callers_or_two_ids_never_share_a_key(id_, caller, other_id, other):
    assert (feedback_key(id_, caller) == feedback_key(other_id, other)) == ((id_, caller) == (other_id, other))


@given(IDS, CALLERS, st.booleans(), st.booleans())
def test_a_caller_finds_its_own_call(id_, caller, chosen, admin):
    assert set(keys_to_store(id_, caller, chosen=chosen)) & set(keys_to_try(id_, caller, any_caller=admin))


@given(IDS, CALLERS, st.text(max_size=40), st.booleans())
def test_another_key_finds_nothing(id_, caller, other, chosen):
    if other != caller:
        assert not set(keys_to_store(id_, caller, chosen=chosen)) & set(keys_to_try(id_, other, any_caller=False))


@given(IDS, st.text(max_size=40), st.booleans())
def test_an_administrator_finds_every_call_but_by_an_id_that_the_client_chose(id_, caller, chosen):
    found = set(keys_to_store(id_, caller, chosen=chosen)) & set(keys_to_try(id_, "an administrator", any_caller=True))
    assert bool(found) == (not chosen or caller == "an administrator")


def test_a_key_reveals_neither_id_nor_caller():
    assert "secret" not in "".join(
        [*keys_to_store("secret-id", "secret-key", chosen=False), feedback_key("secret", None)]
    )


@given(IDS, IDS, CALLERS, st.booleans())
def test_a_decision_has_the_keys_of_its_call_and_one_of_its_own_id(id_, call_id, caller, chosen):
    keys = keys_of_decision(id_, call_id, caller, chosen=chosen)
    assert keys == [*keys_to_store(call_id, caller, chosen=chosen), feedback_key(id_, caller)]


def test_a_client_may_choose_the_id():
    assert origin_of({"proxy_server_request": {"headers": {"X-LiteLLM-Call-Id": "mine"}}}).chose_id
    assert not origin_of({"proxy_server_request": {"headers": {"x-other": "mine"}}}).chose_id
    assert not origin_of({"proxy_server_request": None}).chose_id
    assert not origin_of({}).chose_id


def test_the_origin_of_a_request():
    metadata = {"user_api_key": "a-hash", "previous_models": [{"deployment_id": "small"}, "no attempt"]}
    kwargs = {"metadata": {"of": "the provider"}, "litellm_metadata": metadata}
    origin = origin_of(kwargs)
    assert (origin.metadata, origin.caller, origin.failed_ids) == (metadata, "a-hash", {"small"})
    assert origin.call_id == kwargs["litellm_call_id"] == origin_of(kwargs).call_id


@given(IDS, CALLERS)
def test_a_key_is_the_digest_of_caller_and_id_as_a_json_list_as_stores_have_kept_it(id_, caller):
    digest = blake2b(json.dumps([caller, id_]).encode(), digest_size=16).hexdigest()
    assert feedback_key(id_, caller) == f"call {digest}"


@pytest.mark.parametrize("unit", [{}, {"unit": "run"}])
async def test_each_decision_that_a_full_store_keeps_is_found_by_its_call(unit, provider, settled):
    router = fitted(store=MemoryStore(max_decisions=5))
    callback = attach(llms(), "wise", router=router, budget=RICH, **unit)
    ids = []
    for n in range(8):
        asked = [{"role": "user", "content": f"question {n}"}]
        answer = await callback._router.acompletion(model="wise", messages=asked, metadata={"user_api_key": "a"})
        await settled(lambda n=n: router.status().charged == n + 1)
        ids.append(id_of_call(answer))
    assert [callback.feedback(id_, 1.0, any_caller=True) for id_ in ids[-5:]] == [False] * 5


STREAM_WITHOUT_ID = (
    {"type": "message_start", "message": {"role": "assistant", "usage": {"input_tokens": 5, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)


async def test_an_answer_without_an_id_gives_administrators_no_id_that_its_client_chose(provider, settled):
    text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in STREAM_WITHOUT_ID)
    provider.post("http://claude.test/v1/messages").mock(return_value=httpx.Response(200, text=text))
    router, llm = fitted(), llms(deployment("small", url="http://claude.test", model="anthropic/small"))
    callback = attach(llm, "wise", router=router, budget=RICH)
    chosen = {"litellm_call_id": "mine", "proxy_server_request": {"headers": {"x-litellm-call-id": "mine"}}}
    told = {"max_tokens": 20, "stream": True, "litellm_metadata": {"user_api_key": "a"}}
    async for _ in await llm.aanthropic_messages(model="wise", messages=HI, **told, **chosen):
        pass
    await settled(lambda: router.status().charged == 1)
    with pytest.raises(UnknownCall):
        callback.feedback("mine", 1.0, any_caller=True)
    assert callback.feedback("mine", 1.0, caller="a") is False
