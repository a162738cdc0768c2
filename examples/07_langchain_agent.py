"""An agent with tools under a hard budget: one model per run, and a runaway loop that the budget stops. Offline."""

from typing import Any

from wiserouter import Budget, Price
from wiserouter.errors import BudgetExhausted
from wiserouter_langchain import RunnableWiseRouter, WiseRouterMiddleware  # names the extra that is missing

# isort: split
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool


@tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sunny in {city}"


class Pretend(BaseChatModel):
    """Stands in for ChatOpenAI(...): calls the tool once, or in an endless loop."""

    stubborn: bool = False
    max_tokens: int = 50

    @property
    def _llm_type(self) -> str:
        return "pretend"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(**kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        done = isinstance(messages[-1], ToolMessage) and not self.stubborn
        calls = [] if done else [{"name": "weather", "args": {"city": "Oslo"}, "id": f"call_{len(messages)}"}]
        usage = {"input_tokens": 40, "output_tokens": 20, "total_tokens": 60}
        answer = AIMessage("It is sunny." if done else "", tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def routed(stubborn: bool) -> RunnableWiseRouter:
    """Return a router of two models under a hard budget."""
    return RunnableWiseRouter(
        models={"small": Pretend(stubborn=stubborn), "large": Pretend(stubborn=stubborn)},
        prices={"small": Price(1e-6, 4e-6), "large": Price(5e-6, 2.5e-5)},
        budget=Budget(amount_usd=0.05, horizon=1_000, limit="hard"),
    )


question = {"messages": [("human", "What is the weather in Oslo?")]}

llm = routed(stubborn=False)
agent = create_agent(llm, [weather], middleware=[WiseRouterMiddleware(llm)])  # or create_agent(llm, [weather])
out = agent.invoke(question)
print(out["wise_model"], "says", out["messages"][-1].text)
print(f"{llm.core.status().charged} model calls, {llm.core.status().spent_usd:.6f} USD")

runaway = routed(stubborn=True)
try:
    create_agent(runaway, [weather]).invoke(question, {"recursion_limit": 10_000})
except BudgetExhausted as stopped:
    print(f"stopped after {runaway.core.status().charged} model calls: {stopped}")
assert runaway.core.status().spent_usd <= 0.05
