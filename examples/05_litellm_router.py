"""A budget for a `litellm.Router` in Python: attach, call as before, rate the answers, read the account."""

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # offline: no price map is downloaded
import logging

from wiserouter import Budget
from wiserouter_litellm import BudgetRefused, attach  # names the extra that is missing

# isort: split
import litellm

logging.getLogger("LiteLLM").setLevel(logging.ERROR)


def deployment(model: str, input_usd: float, output_usd: float) -> dict:
    """Return a mocked deployment of the group `wise`, with explicit prices."""
    return {
        "model_name": "wise",
        "litellm_params": {
            "model": f"openai/{model}",
            "api_key": "none",
            "mock_response": f"an answer of {model}",
            "input_cost_per_token": input_usd,
            "output_cost_per_token": output_usd,
        },
        "model_info": {"id": model, "max_input_tokens": 128_000, "max_output_tokens": 4_096},
    }


async def main() -> None:
    """Ask until the budget is used up."""
    llms = litellm.Router([deployment("small", 2e-7, 8e-7), deployment("large", 3e-6, 1.5e-5)], num_retries=0)
    budget = Budget(amount_usd=0.05, horizon=200, limit="hard")
    callback = attach(llms, "wise", budget=budget, cap_output_tokens=64)

    served: dict[str, int] = {}
    for i in range(300):
        try:
            answer = await llms.acompletion(model="wise", messages=[{"role": "user", "content": f"question {i}"}])
        except BudgetRefused as refused:
            print(f"request {i}: {refused.error}")
            break
        model = answer._hidden_params["model_id"]
        served[model] = served.get(model, 0) + 1
        callback.feedback(answer, 0.9 if model == "large" else 0.6)  # a user's rating
        await asyncio.sleep(0.005)  # LiteLLM reports costs in the background

    status = callback.groups["wise"].router.status()
    print(f"served {served}, spent {status.spent_usd:.5f} of {status.amount_usd} USD")
    assert status.spent_usd <= status.amount_usd


asyncio.run(main())
