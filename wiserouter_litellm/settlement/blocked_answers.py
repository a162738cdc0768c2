"""Answers that LiteLLM may never report: a guardrail blocks them, or the request asks for no log.

LiteLLM shows every whole answer to the callbacks as soon as it is there. So its bill is read then, and charged where
the call ends without a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wiserouter.integration import Bill
from wiserouter_litellm.billing.bill import read_answer
from wiserouter_litellm.billing.cached_answers import is_replay
from wiserouter_litellm.groups.attempts import OpenAttempt
from wiserouter_litellm.requests.json_objects import fields_of
from wiserouter_litellm.requests.surcharges import provider_of
from wiserouter_litellm.settlement.events import info_of


def note_answer(attempt: OpenAttempt, request_data: Mapping[str, Any], response: object) -> None:
    """Note an answer that has just come, with its bill; parameters as in `bill_of_answer`."""
    attempt.answered, attempt.answer = True, response
    attempt.bill = bill_of_answer(attempt, request_data, response)


def bill_of_answer(attempt: OpenAttempt, request_data: Mapping[str, Any], response: object) -> Bill | None:
    """Return the bill of an answer that has just come; None where it has none that can be read.

    A stream has none yet, and that of Anthropic's messages is in no block that callbacks see. For a call that LiteLLM
    has followed up, it shows the answer of the further call.

    Parameters
    ----------
    attempt : OpenAttempt
        The attempt that is answered.
    request_data : mapping
        The arguments of the call, those of its deployment included.
    response : object
        The answer.
    """
    info = None if attempt.followed else info_of(attempt.group, request_data["model_info"])
    if info is None or getattr(response, "usage", None) is None or is_replay(request_data):
        return None
    hidden = fields_of(getattr(response, "_hidden_params", None))
    provider = hidden.get("custom_llm_provider") or provider_of(request_data)
    event = {**request_data, "custom_llm_provider": provider, "response_cost": hidden.get("response_cost")}
    try:
        bill, _ = read_answer(event, response, info, hard=True)
    except ValueError:
        return None
    return None if bill is None or bill.estimated else bill
