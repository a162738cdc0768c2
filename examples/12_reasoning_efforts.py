"""One model with three reasoning efforts: each is an arm with its own costs and scores, under one budget. Offline."""

from typing import Any

from wiserouter import Budget, Growing, Model, Price, WiseRouter
from wiserouter_langchain import RunnableWiseRouter  # names the extra that is missing

# isort: split
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

THINKS = {"low": 20, "medium": 120, "high": 700}
"""Tokens that the pretended model thinks, by effort; they are billed as output."""


class Pretend(BaseChatModel):
    """Stands in for ChatOpenAI(model="gpt-5"): an addition takes little thought, a proof takes much."""

    @property
    def _llm_type(self) -> str:
        return "pretend"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        question, tokens = messages[-1].text, THINKS[kwargs["reasoning_effort"]]
        solved = tokens >= (700 if "prove" in question else 20)
        asked = len(question.split())
        usage: Any = {"input_tokens": asked, "output_tokens": tokens, "total_tokens": asked + tokens}
        answer = AIMessage("solved" if solved else "a guess", usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=answer)])


price = Price(input=1.25e-6, output=1e-5)
growing = Growing(
    n_contexts=2, first_after=60, per_context=20, background=False
)  # finds kinds of question as they come
arms = [Model("gpt-5", price, params={"reasoning_effort": effort}) for effort in THINKS]
router = WiseRouter(arms, encoder="hashing", growing=growing, seed=0)
llm = RunnableWiseRouter(models={"gpt-5": Pretend()}, router=router, budget=Budget(amount_usd=0.9, horizon=301))
assert list(llm.core.pool.names) == ["gpt-5@low", "gpt-5@medium", "gpt-5@high"]

careful = llm.invoke("what is 1 plus 1?", reasoning_effort="high")  # what a call says itself is sent as it is
assert careful.response_metadata["wise_router"]["model"] == "gpt-5@high"

for i in range(300):
    question = f"prove that theorem {i} holds" if i % 3 == 0 else f"what is {i} plus 2?"
    answer = llm.invoke(question)
    llm.feedback(answer, 1.0 if answer.text == "solved" else 0.0)

estimates = llm.core.estimates
print("arm            calls   USD per call   score")
for k, name in enumerate(llm.core.pool.names):
    calls, labels = estimates.calls[:, k].sum(), estimates.labels[:, k].sum()
    cost, score = estimates.cost[:, k].sum() / max(calls, 1), estimates.reward[:, k].sum() / max(labels, 1)
    print(f"{name:14} {calls:5.0f}   {cost:12.5f}   {score:5.2f}")
status = llm.core.status()
print(f"spent {status.spent_usd:.3f} of {status.amount_usd} USD")
