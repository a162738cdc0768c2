"""The bill of an answer that LiteLLM may never report: it is read with every answer, so that it must take no time."""

import litellm
import pytest
from litellm.types.utils import Choices, Message, ModelResponse, Usage

from support.groups import RICH, fitted, llms
from support.providers import TOKENS, cost_usd
from wiserouter_litellm import attach
from wiserouter_litellm.billing import bill as billing
from wiserouter_litellm.groups.attempts import OpenAttempt
from wiserouter_litellm.settlement import blocked_answers
from wiserouter_litellm.settlement.blocked_answers import bill_of_answer


def bill(router, **hidden):
    """Return the bill of an answer of the model `small`, as LiteLLM marks it."""
    group = attach(router, "wise", router=fitted(), budget=RICH).groups["wise"]
    row = next(one for one in router.get_model_list(model_name="wise") if one["model_info"]["id"] == "small")
    usage = Usage(prompt_tokens=TOKENS[0], completion_tokens=TOKENS[1], total_tokens=sum(TOKENS))
    answer = ModelResponse(usage=usage, choices=[Choices(message=Message(content="yes"))])
    answer._hidden_params = hidden
    request = {"model": row["litellm_params"]["model"], "model_info": row["model_info"]}
    return bill_of_answer(OpenAttempt(group, group.router.decide()), request, answer)


def test_the_provider_is_read_from_the_answer(monkeypatch):
    monkeypatch.setattr(blocked_answers, "provider_of", lambda params: pytest.fail("LiteLLM has looked it up already"))
    assert bill(llms(), custom_llm_provider="openai").cost_usd == pytest.approx(cost_usd("small"))


def test_an_answer_without_its_provider_has_that_of_the_call(monkeypatch):
    monkeypatch.setattr(litellm, "cost_margin_config", {"openai": 0.5})
    assert bill(llms()).cost_usd == pytest.approx(1.5 * cost_usd("small"))


def test_a_reported_cost_counts_alone_where_the_deployment_states_no_prices(monkeypatch):
    monkeypatch.setattr(billing, "_own_usd", lambda *_: pytest.fail("no price of the deployment can count"))
    monkeypatch.setattr(billing, "_has_own_prices", lambda *_: False)
    assert bill(llms(), custom_llm_provider="openai", response_cost=0.25).cost_usd == 0.25
