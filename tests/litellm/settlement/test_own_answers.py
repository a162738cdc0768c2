"""The bill of a call that shares LiteLLM's log with an earlier one: a retry, a fallback, a call after a tool."""

import pytest
from litellm.types.utils import Choices, Message, ModelResponse, Usage

from support.groups import RICH, fitted, llms
from support.providers import TOKENS
from wiserouter.integration import Bill
from wiserouter_litellm import attach
from wiserouter_litellm.groups.attempts import OpenAttempt
from wiserouter_litellm.settlement.events import info_of
from wiserouter_litellm.settlement.own_answers import read_event

FEE_USD = 0.025


def answer(id_):
    usage = Usage(prompt_tokens=TOKENS[0], completion_tokens=TOKENS[1], total_tokens=sum(TOKENS))
    return ModelResponse(id=id_, usage=usage, choices=[Choices(message=Message(content="yes"))])


@pytest.mark.parametrize(
    ("shown", "error", "cost_usd"), [("second", 1, FEE_USD), ("first", 1, 0.001), ("second", None, 0.001)]
)
def test_fees_count_where_an_event_shows_the_answer_of_its_own_call_after_an_error(shown, error, cost_usd):
    group = attach(llms(), "wise", router=fitted(), budget=RICH).groups["wise"]
    attempt = OpenAttempt(group, group.router.decide(), started="when the first call was sent", answered=True)
    attempt.earlier, attempt.answer, attempt.bill = error, answer("second"), Bill(0.001, model="small")
    event = {"response_cost": FEE_USD, "litellm_params": {"model_info": {"id": "small"}}}
    bill, _, _ = read_event(attempt, event, answer(shown), info_of(group, {"id": "small"}), hard=False)
    assert bill.cost_usd == cost_usd
