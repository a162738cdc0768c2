"""Callbacks of others beside ours: those that change or stop a call after it was bounded, and blocked answers."""

import asyncio
import contextlib
import gc
import threading

import litellm
import pytest
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.utils import CallTypes

from support.billing_stub import Behaviour, billing_stub
from support.groups import HI, fitted, llms
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import BudgetRefused, attach, detach
from wiserouter_litellm.groups import attempts, last_look
from wiserouter_litellm.groups.last_look import LastLook

SURFACES = {
    "chat": lambda r, **kw: r.acompletion(model="wise", messages=HI, max_tokens=20, **kw),
    "text": lambda r, **kw: r.atext_completion(model="wise", prompt="hello there", max_tokens=20, **kw),
    "responses": lambda r, **kw: r.aresponses(model="wise", input="hello there", max_output_tokens=20, **kw),
    "messages": lambda r, **kw: r.aanthropic_messages(model="wise", messages=HI, max_tokens=20, **kw),
}
CHANGES = {
    "limit": lambda kwargs: {**kwargs, "max_tokens": 900},
    "answers": lambda kwargs: {**kwargs, "n": 20},
    "messages": lambda kwargs: {
        **kwargs,
        "messages": [*kwargs["messages"], {"role": "user", "content": "word " * 3_000}],
    },
}
ORDERS = pytest.mark.parametrize("order", ["before ours", "after ours"])
AMOUNT_USD = 0.003


class Hook(CustomLogger):
    """Changes every call after its deployment was selected, or raises an error."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    async def async_pre_call_deployment_hook(self, kwargs, call_type):
        return self.change(kwargs)


def stop(kwargs):
    raise ValueError("a callback does not let this pass")


@pytest.fixture
def stub():
    with billing_stub() as stub:
        yield stub


def attached(
    stub, change, order="after ours", limit="hard", amount_usd=10.0, settings=None, provider="openai", **params
):
    """Return a LiteLLM router with a callback that was added before or after ours, and the group's router."""
    url = stub.root if provider == "anthropic" else stub.url
    rows = [deployment(name, url=url, model=f"{provider}/{name}", **params) for name in ("small", "large")]
    llm, router = llms(*rows, **{"disable_cooldowns": True, **(settings or {})}), fitted()
    hook = change if isinstance(change, CustomLogger) else Hook(change)
    if order == "before ours":
        litellm.callbacks.append(hook)
    attach(llm, "wise", router=router, budget=Budget(amount_usd, 100, limit=limit))
    if order == "after ours":
        litellm.callbacks.append(hook)
    return llm, router


@pytest.mark.parametrize("change", CHANGES)
@ORDERS
async def test_a_hard_budget_bears_what_another_callback_makes_of_a_call(stub, settled, change, order):
    llm, router = attached(stub, CHANGES[change], order, amount_usd=AMOUNT_USD)
    for _ in range(8):
        with contextlib.suppress(BudgetRefused):
            await SURFACES["chat"](llm)
    await settled(lambda: router.status().in_flight == 0)
    assert stub.ledger_usd <= AMOUNT_USD
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)


def lengthened(kwargs):
    """Return the arguments of a call of any surface with a higher limit."""
    return {**kwargs, **dict.fromkeys(kwargs.keys() & {"max_tokens", "max_output_tokens"}, 900)}


class TranslatedHook(Hook):
    """Changes a call of `/v1/messages` once LiteLLM has translated it, and not before."""

    async def async_pre_call_deployment_hook(self, kwargs, call_type):
        return kwargs if call_type == CallTypes.anthropic_messages else self.change(kwargs)


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])  # responses, chat
@ORDERS
async def test_so_it_bears_what_is_made_of_a_call_that_litellm_has_translated(stub, settled, provider, order):
    hook = TranslatedHook(lengthened)
    llm, router = attached(stub, hook, order, amount_usd=AMOUNT_USD, provider=provider)
    for _ in range(3):
        with contextlib.suppress(BudgetRefused):
            await SURFACES["messages"](llm)
    await settled(lambda: router.status().in_flight == 0)
    assert stub.ledger_usd <= AMOUNT_USD
    assert (router.status().presumed, router.status().spent_usd) == (0, pytest.approx(stub.ledger_usd))


class RequestHook(CustomLogger):
    """Changes a call of `/v1/messages` in a hook that LiteLLM asks after those of the deployment."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    async def async_pre_request_hook(self, model, messages, kwargs):
        return self.change(messages, kwargs)


REQUEST_CHANGES = {
    "system": lambda _, kwargs: {**kwargs, "system": "word " * 3_000},
    "messages": lambda messages, _: messages.append({"role": "user", "content": "word " * 3_000}),
    "search": lambda _, kwargs: {**kwargs, "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
}


@pytest.mark.parametrize("change", REQUEST_CHANGES)
@pytest.mark.parametrize("provider", ["anthropic", "openai", "hosted_vllm"])
async def test_so_it_bears_what_a_callback_makes_of_a_request_of_messages(stub, settled, provider, change):
    hook = RequestHook(REQUEST_CHANGES[change])
    llm, router = attached(stub, hook, amount_usd=AMOUNT_USD, provider=provider)
    for _ in range(2):
        with pytest.raises((BudgetRefused, litellm.BadRequestError)):
            await llm.aanthropic_messages(model="wise", messages=list(HI), max_tokens=20)
    await settled(lambda: router.status().in_flight == 0)
    assert (stub.calls, router.status().spent_usd) == ([], 0.0)


async def test_a_request_hook_that_changes_nothing_changes_no_bound(stub, settled):
    hook = RequestHook(lambda _, kwargs: kwargs)
    llm, router = attached(stub, hook, amount_usd=0.001, provider="anthropic")
    await SURFACES["messages"](llm, system="Be brief.")
    await settled(lambda: router.status().charged == 1)
    assert router.status().released == 0


@pytest.mark.parametrize("info", [{}, None, {"id": "small"}], ids=str)
@pytest.mark.parametrize("surface", SURFACES)
@ORDERS
async def test_so_it_bears_a_change_where_a_callback_takes_its_mark_out(stub, settled, surface, info, order):
    llm, router = attached(
        stub, lambda kwargs: {**lengthened(kwargs), "model_info": info}, order, amount_usd=AMOUNT_USD
    )
    for _ in range(3):
        with contextlib.suppress(BudgetRefused):
            await SURFACES[surface](llm)
    await settled(lambda: router.status().in_flight == 0)
    assert stub.ledger_usd <= AMOUNT_USD
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)


async def test_a_call_that_a_callback_makes_meanwhile_is_not_taken_for_that_one(stub, settled):
    asked = []

    class Judge(CustomLogger):
        async def async_pre_call_deployment_hook(self, kwargs, call_type):
            if not asked:
                asked.append(True)
                same = {"metadata": kwargs["metadata"], "api_base": stub.url, "api_key": "sk-provider"}
                await litellm.acompletion(model="openai/large", messages=HI, max_tokens=900, **same)

    llm, router = attached(stub, Judge())
    await SURFACES["chat"](llm)
    await settled(lambda: router.status().in_flight == 0)
    assert (len(stub.calls), router.status().released) == (2, 0)


def test_so_it_bears_a_change_of_a_synchronous_response(stub):
    llm, _ = attached(stub, lengthened, amount_usd=AMOUNT_USD)
    for _ in range(3):
        with contextlib.suppress(BudgetRefused):
            llm.responses(model="wise", input="hello there", max_output_tokens=20)
    assert stub.ledger_usd <= AMOUNT_USD


@ORDERS
async def test_so_it_bears_a_change_of_a_call_to_one_deployment(stub, settled, order):
    llm, router = attached(stub, CHANGES["limit"], order, amount_usd=AMOUNT_USD)
    for _ in range(4):
        with contextlib.suppress(BudgetRefused):
            await llm.acompletion(model=llm.model_list[1]["model_info"]["id"], messages=HI, max_tokens=20)
    await settled(lambda: router.status().in_flight == 0)
    assert stub.ledger_usd <= AMOUNT_USD


async def test_a_change_that_the_budget_bears_is_sent_and_charged(stub, settled):
    llm, router = attached(stub, CHANGES["limit"])
    await SURFACES["chat"](llm)
    await settled(lambda: router.status().charged == 1)
    assert [call.body["max_tokens"] for call in stub.calls] == [900]
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)


@ORDERS
async def test_another_model_is_refused_after_the_budget_has_chosen_one(stub, settled, order):
    llm, router = attached(stub, lambda kwargs: {**kwargs, "model": "openai/other"}, order)
    with pytest.raises(litellm.BadRequestError, match=r"a callback replaced the model .* in async_pre_call_hook"):
        await SURFACES["chat"](llm)
    await settled(lambda: router.status().released == 1)
    assert (stub.calls, router.status().spent_usd) == ([], 0.0)


@pytest.mark.parametrize("route", ["openai", "openai/responses", "azure/responses", "azure_ai"])
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_model_that_litellm_names_otherwise_in_a_translated_call_is_still_that_one(
    stub, settled, surface, route
):
    llm, router = attached(stub, lambda kwargs: kwargs, provider=route, api_version="2024-10-21")
    await SURFACES[surface](llm)
    await settled(lambda: router.status().charged == 1)
    assert len(stub.calls) == 1


@pytest.mark.parametrize("route", ["openai", "openai/responses", "azure/responses", "azure_ai"])
def test_so_it_is_in_a_synchronous_response(stub, route):
    llm, _ = attached(stub, lambda kwargs: kwargs, provider=route, api_version="2024-10-21")
    llm.responses(model="wise", input="hello there", max_output_tokens=20)
    assert len(stub.calls) == 1


async def test_a_refusal_keeps_no_deployment_from_other_callers(stub, settled):
    changes = iter([CHANGES["limit"], CHANGES["limit"]])

    def change(kwargs):
        return next(changes, dict)(kwargs)

    llm, router = attached(stub, change, amount_usd=0.001, settings={"disable_cooldowns": False, "allowed_fails": 0})
    for _ in range(2):
        with pytest.raises(BudgetRefused):
            await SURFACES["chat"](llm)
        await asyncio.sleep(0.2)  # LiteLLM notes failures in a task of its own
    await SURFACES["chat"](llm)
    await settled(lambda: router.status().charged == 1)
    assert (router.status().released, len(stub.calls)) == (2, 1)


ADDED = {"tools": [{"type": "web_search"}], "web_search_options": {}, "extra_body": {"plugins": ["web"]}}


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("surface", SURFACES)
@ORDERS
async def test_a_parameter_with_a_fee_is_refused_after_the_call_was_bounded(stub, settled, name, surface, order):
    llm, router = attached(stub, lambda kwargs: {**kwargs, name: ADDED[name]}, order)
    with pytest.raises(litellm.BadRequestError, match=rf"a callback added {name}"):
        await SURFACES[surface](llm)
    await settled(lambda: router.status().released == 1)
    assert (stub.calls, router.status().spent_usd) == ([], 0.0)


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("limit", ["hard", "expected"])
async def test_a_call_that_another_callback_stops_is_released(stub, settled, surface, limit):
    llm, router = attached(stub, stop, limit=limit)
    with pytest.raises(Exception, match="does not let this pass"):
        await SURFACES[surface](llm)
    await settled(lambda: router.status().in_flight == 0)
    assert (stub.calls, router.status().spent_usd) == ([], 0.0)


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("params", [{}, {"n": 3}, {"max_tokens": 30}], ids=str)
async def test_what_is_left_as_it_is_keeps_its_reservation(stub, settled, surface, params):
    llm, router = attached(stub, lambda kwargs: kwargs, **params)
    await SURFACES[surface](llm)
    await settled(lambda: router.status().charged == 1)
    assert len(stub.calls) == 1
    assert router.status().released == (surface == "messages")  # a translated call is bounded as it is then


@pytest.mark.parametrize("surface", SURFACES)
async def test_so_does_a_call_with_fallbacks_of_its_own(stub, settled, surface):
    llm, router = attached(stub, lambda kwargs: kwargs)
    await SURFACES[surface](llm, fallbacks=["wise"])
    await settled(lambda: router.status().charged == 1)
    assert len(stub.calls) == 1


async def test_the_tokens_of_a_long_call_are_counted_again_off_the_event_loop(stub, settled, monkeypatch):
    threads, bounds_of = [], last_look.bounds_of
    monkeypatch.setattr(
        last_look, "bounds_of", lambda *args, **kw: threads.append(threading.current_thread()) or bounds_of(*args, **kw)
    )
    llm, router = attached(stub, lambda kwargs: kwargs)
    for text in ("hello there", "word " * 2_000):  # the bytes of the long one exceed the context window
        await llm.acompletion(model="wise", messages=[{"role": "user", "content": text}], max_tokens=20)
    await settled(lambda: router.status().charged == 2)
    assert [one is threading.main_thread() for one in threads] == [True, False]


async def test_a_caller_who_leaves_while_a_long_call_is_counted_again_leaves_nothing_reserved(
    stub, settled, monkeypatch
):
    counting, left, decide = threading.Event(), threading.Event(), last_look._decided_on_change

    def decided_late(*args):
        counting.set()
        left.wait(10)
        return decide(*args)

    monkeypatch.setattr(last_look, "_decided_on_change", decided_late)
    llm, router = attached(stub, CHANGES["messages"])
    call = asyncio.ensure_future(SURFACES["chat"](llm))
    await settled(counting.is_set)
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    left.set()
    gc.collect()
    await settled(lambda: router.status().in_flight == 0 and router.status().released == 2)
    assert (stub.calls, router.status().presumed) == ([], 0)


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("limit", ["hard", "expected"])
async def test_a_call_that_was_sent_is_presumed_where_a_callback_takes_its_mark_out(stub, settled, surface, limit):
    stub.behaviour = Behaviour(drops=True)
    llm, router = attached(stub, lambda kwargs: {**kwargs, "model_info": None}, limit=limit)
    with pytest.raises(litellm.InternalServerError):
        await SURFACES[surface](llm)
    await settled(lambda: router.status().in_flight == 0)
    assert stub.calls  # LiteLLM 1.106 sends one again over a new connection
    assert router.status().presumed == 1
    assert router.status().released == (limit == "hard" and surface == "messages")  # decided again as translated


@pytest.mark.parametrize("stream", [False, True])
async def test_so_it_is_where_a_callback_leaves_the_list_meanwhile(stub, settled, stream):
    class Slow(CustomLogger):
        async def async_pre_call_deployment_hook(self, kwargs, call_type):
            litellm.logging_callback_manager.remove_callback_from_all_lists(leaving)  # another request may do that

    stub.behaviour = Behaviour(drops=True)
    leaving = Hook(lambda kwargs: kwargs)
    litellm.callbacks.append(leaving)
    llm, router = attached(stub, lambda kwargs: kwargs)
    litellm.callbacks[-1] = Slow()
    with pytest.raises(litellm.InternalServerError):
        await SURFACES["chat"](llm, stream=stream)
    await settled(lambda: router.status().in_flight == 0)
    assert (len(stub.calls), router.status().released, router.status().presumed) == (1, 0, 1)


async def test_detach_takes_the_last_look_out(stub):
    llm, _ = attached(stub, lambda kwargs: kwargs)
    await SURFACES["chat"](llm)
    assert isinstance(litellm.callbacks[-1], LastLook)
    detach(llm)
    assert not [one for one in litellm.callbacks if isinstance(one, LastLook)]


async def test_the_last_look_stays_one_object_behind_callbacks_that_are_added(stub):
    llm, _ = attached(stub, lambda kwargs: kwargs)
    for n in range(3):
        litellm.callbacks.append(hook := Hook(lambda kwargs: kwargs))
        hook.number = n  # LiteLLM takes one of several equals for its lists of events
        await SURFACES["chat"](llm)
    assert isinstance(litellm.callbacks[-1], LastLook)
    assert [one for one in litellm.input_callback if isinstance(one, LastLook)] == [litellm.callbacks[-1]]
    detach(llm)
    events = (litellm.success_callback, litellm._async_success_callback, litellm._async_failure_callback)
    assert not [one for each in events for one in each if isinstance(one, LastLook)]


@pytest.mark.parametrize("surface", ["chat", "text", "responses"])
@pytest.mark.parametrize("limit", ["hard", "expected"])
async def test_an_answer_that_litellm_does_not_report_is_charged(stub, settled, monkeypatch, surface, limit):
    monkeypatch.setattr(attempts, "GRACE_S", 0.05)
    llm, router = attached(stub, lambda kwargs: kwargs, limit=limit)
    await SURFACES[surface](llm, **{"no-log": True})
    gc.collect()
    await settled(lambda: router.status().in_flight == 0)
    assert (router.status().charged, router.status().presumed) == (1, 0)
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)


@pytest.mark.parametrize("setting", ["cost_margin_config", "cost_discount_config"])
async def test_so_it_is_with_the_margin_and_the_discount_of_litellm(stub, settled, monkeypatch, setting):
    monkeypatch.setattr(attempts, "GRACE_S", 0.05)
    monkeypatch.setattr(litellm, setting, {"openai": 0.25})
    llm, router = attached(stub, lambda kwargs: kwargs)
    reported_usd = (await SURFACES["chat"](llm, **{"no-log": True}))._hidden_params["response_cost"]
    gc.collect()
    await settled(lambda: router.status().in_flight == 0)
    assert router.status().spent_usd == pytest.approx(reported_usd)
    assert reported_usd != pytest.approx(stub.ledger_usd)


class OneMoreTurn(CustomLogger):
    """Sends a call once more after its answer, as LiteLLM does with the results of tools that it has run."""

    def __init__(self):
        super().__init__()
        self.has_begun = False

    async def async_post_call_success_deployment_hook(self, request_data, response, call_type):
        if not self.has_begun:
            self.has_begun = True
            same = {name: value for name, value in request_data.items() if not name.startswith("litellm_")}
            await litellm.acompletion(**same)


@pytest.mark.parametrize("limit", ["hard", "expected"])
async def test_a_further_call_that_litellm_makes_itself_is_reserved_and_charged(stub, settled, limit):
    llm, router = attached(stub, lambda kwargs: kwargs, limit=limit)
    litellm.callbacks.append(OneMoreTurn())
    await SURFACES["chat"](llm)
    await settled(lambda: router.status().charged == 2)
    assert (len(stub.calls), router.status().in_flight) == (2, 0)
    assert router.status().spent_usd == pytest.approx(stub.ledger_usd)


async def test_a_hard_budget_bears_the_further_calls(stub, settled):
    llm, router = attached(stub, lambda kwargs: kwargs, amount_usd=0.0001)
    litellm.callbacks.append(OneMoreTurn())
    with contextlib.suppress(BudgetRefused):
        await SURFACES["chat"](llm)
    await settled(lambda: router.status().charged == 1)
    assert (len(stub.calls), router.status().in_flight) == (1, 0)


@ORDERS
async def test_a_system_prompt_that_a_callback_adds_is_bounded(stub, settled, order):
    llm, router = attached(
        stub, lambda kwargs: {**kwargs, "litellm_system_prompt": "word " * 3_000}, order, amount_usd=AMOUNT_USD
    )
    for _ in range(3):
        with contextlib.suppress(BudgetRefused):
            await SURFACES["chat"](llm)
    await settled(lambda: router.status().in_flight == 0)
    assert stub.ledger_usd <= AMOUNT_USD
