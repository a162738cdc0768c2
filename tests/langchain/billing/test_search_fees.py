"""Web searches that a provider runs: models that make them are refused, or the fee of each search is charged."""

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

from support.chat_stub import StubChat
from wiserouter import Budget, Price
from wiserouter.errors import UnknownPrice
from wiserouter.integration import RateCard, rates_of
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.billing.price_catalogue import rate_card_of
from wiserouter_langchain.billing.search_fees import always_searches, n_searches
from wiserouter_langchain.billing.settlement import bill_of_run
from wiserouter_langchain.billing.usage_observer import ModelRun
from wiserouter_langchain.pool.pool_member import pool_member
from wiserouter_langchain.requests.request import request_of

PRICE = Price(1e-6, 2e-6)
USAGE = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
SEARCH_CALL = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


@pytest.mark.parametrize("name", ["gpt-4o-search-preview", "gpt-5-search-api", "sonar-pro", "openai/gpt-4o:online"])
def test_a_hard_budget_refuses_a_model_that_searches_with_each_call_whoever_states_its_price(name):
    models = {"search": ChatOpenAI(model=name, api_key="x", max_tokens=50)}
    for limit in ("hard", "expected"):
        budget = Budget(1.0, 100, limit=limit)
        if limit == "expected":
            RunnableWiseRouter(models=models, prices={"search": PRICE}, budget=budget)
            continue
        with pytest.raises(UnknownPrice, match="searches the web with each call"):
            RunnableWiseRouter(models=models, prices={"search": PRICE}, budget=budget)


def test_other_models_are_taken():
    names = ("gpt-4o", "o3", "claude-sonnet-4-5", "relace/relace-search", "research-1", "sonoma")
    deployments = ("research-api", "research-preview", "gpt-4o-online", "sonarr")  # Azure's, which users name
    assert not any(map(always_searches, (*names, *deployments)))


def test_the_models_of_the_catalogue_that_search_are_known():
    perplexitys = ("sonar-pro", "perplexity/sonar", "llama-3.1-sonar-large-128k-online", "preset/pro-search")
    assert all(map(always_searches, (*perplexitys, "o3-deep-research", "openai/gpt-4o-mini-search-preview")))


class ImageModel(GenericFakeChatModel):
    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": "google_genai", "ls_model_name": "gemini-2.5-flash-image"}


def test_a_hard_budget_refuses_a_model_that_answers_with_media_at_another_price():
    assert "image tokens" in pool_member("image", ImageModel(messages=iter(())), None).unbounded
    assert pool_member("image", ImageModel(messages=iter(())), PRICE).unbounded is None


@pytest.mark.parametrize(
    ("message", "n"),
    [
        (AIMessage("hi"), 0),
        (AIMessage([SEARCH_CALL, {"type": "text", "text": "hi"}, SEARCH_CALL]), 2),
        (AIMessage([{**SEARCH_CALL, "action": {"type": kind}} for kind in ("search", "open_page")]), 1),
        (AIMessage("hi", additional_kwargs={"tool_outputs": [SEARCH_CALL]}), 1),
        (AIMessage([{"type": "server_tool_use", "name": "web_search"}]), 1),
        (AIMessage([{"type": "server_tool_use", "name": "code_execution"}]), 0),
        (AIMessage([{"type": "server_tool_call", "name": "web_search", "args": {}}]), 1),
        (AIMessage("hi", response_metadata={"usage": {"server_tool_use": {"web_search_requests": 3}}}), 3),
        (AIMessage("hi", response_metadata={"usage": {"server_tool_use": None}}), 0),
    ],
)
def test_searches_are_counted(message, n):
    assert n_searches(message) == n
    run = ModelRun(message.model_copy(update={"usage_metadata": USAGE}))
    card = RateCard(PRICE, tuple(rates_of(PRICE)), "user", search_usd=0.01)
    bill = bill_of_run(run, card, request_of([], {}), hard=False).bill
    assert bill.cost_usd == pytest.approx(100e-6 + 20e-6 + n * 0.01)


class Named(StubChat):
    """A model of a provider, which takes its tools as they are."""

    provider: str

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": self.provider, "ls_model_name": self.model}

    def _calls(self, messages, tools, choice):
        return []


@pytest.mark.parametrize(
    ("provider", "model", "tool", "is_told"),
    [
        ("perplexity", "sonar", None, True),
        ("perplexity", "sonar-deep-research", None, True),  # the catalogue has its fee, but no answer shows how often
        ("openai", "o3-deep-research", None, False),
        ("anthropic", "claude-sonnet-4-5", None, False),
        ("anthropic", "claude-sonnet-4-5", "web_search_20250305", False),
        ("anthropic", "claude-sonnet-4-5", "code_execution_20250825", True),
    ],
)
def test_under_an_expected_limit_the_log_says_which_fees_are_not_known(provider, model, tool, is_told, caplog):
    llm = RunnableWiseRouter(models={"a": Named(provider=provider, model=model)}, budget=Budget(1.0, 100))
    llm.invoke("hello", **({"tools": [{"type": tool, "name": tool}]} if tool else {}))
    assert ("fee is beside the tokens" in caplog.text) == is_told


def test_the_catalogue_has_the_fee_of_a_search():
    for model in (ChatOpenAI(model="gpt-4.1", api_key="x"), ChatAnthropic(model="claude-sonnet-4-5", api_key="x")):
        assert rate_card_of("a", model, None).search_usd == pytest.approx(0.01)
        assert rate_card_of("a", model, PRICE).search_usd == 0.0
