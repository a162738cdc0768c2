"""An agent under a run budget: one model per run, a sub-agent on the same budget, a runaway loop that ends. Offline."""

from typing import Any

from wiserouter import Budget, Price
from wiserouter.errors import RunBudgetExhausted
from wiserouter_langchain import RunnableWiseRouter, WiseRouterMiddleware  # names the extra that is missing

# isort: split
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool


class Pretend(BaseChatModel):
    """Stands in for ChatOpenAI(...): calls its tool until it has `steps` results, then answers."""

    steps: int
    max_tokens: int = 60

    @property
    def _llm_type(self) -> str:
        return "pretend"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(wanted=tools[0].name)

    def _generate(self, messages: list[BaseMessage], *args: Any, wanted: str = "", **kwargs: Any) -> ChatResult:
        results = sum(isinstance(message, ToolMessage) for message in messages)
        calls = [{"name": wanted, "args": {"file": "main.py"}, "id": f"call_{results}"}] if results < self.steps else []
        usage = {"input_tokens": 40 * len(messages), "output_tokens": 30, "total_tokens": 40 * len(messages) + 30}
        answer = AIMessage("" if calls else "The bug is fixed.", tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def routed(steps: int) -> RunnableWiseRouter:
    """Return a router of two models whose runs may spend a cent each."""
    return RunnableWiseRouter(
        models={"small": Pretend(steps=steps), "large": Pretend(steps=steps)},
        prices={"small": Price(1e-6, 4e-6), "large": Price(5e-6, 2.5e-5)},
        budget=Budget(amount_usd=1.0, horizon=100, limit="hard"),  # of 100 runs
        unit="run",
        run_budget_usd=0.01,
    )


@tool
def read(file: str) -> str:
    """Return the text of a file."""
    return f"# {file}"


llm = routed(steps=3)
tester = create_agent(llm, [read], middleware=[WiseRouterMiddleware(llm)])


@tool
def delegate(file: str) -> str:
    """Let another agent look into a file; it draws on the budget of the run that calls it."""
    return str(tester.invoke({"messages": [("human", f"Test {file}.")]})["messages"][-1].text)


agent = create_agent(llm, [delegate], middleware=[WiseRouterMiddleware(llm)])
out = agent.invoke({"messages": [("human", "Fix the bug in main.py.")]})
print(f"{out['wise_model']} says: {out['messages'][-1].text}")
print(f"{llm.core.status().charged} calls of {llm.core.status().decided} runs, {llm.core.status().spent_usd:.6f} USD")
llm.feedback(out["wise_run"], 1.0)  # the run succeeded: one score for all of its calls
assert llm.core.status().charged == 16

runaway = routed(steps=10_000)
try:
    create_agent(runaway, [read], middleware=[WiseRouterMiddleware(runaway)]).invoke(
        {"messages": [("human", "Fix it.")]}, {"recursion_limit": 10_000}
    )
except RunBudgetExhausted as stopped:
    print(f"stopped after {runaway.core.status().charged} calls: {stopped}")
assert runaway.core.status().spent_usd <= 0.01
