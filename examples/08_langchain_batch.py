"""Five hundred requests through a chain, with a progress bar and the account at the end. Offline."""

import asyncio
from typing import Any

from wiserouter import Budget, Price
from wiserouter_langchain import RunnableWiseRouter  # names the extra that is missing

# isort: split
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from rich.progress import Progress


class Pretend(BaseChatModel):
    """Stands in for ChatOpenAI(...): the better model writes longer answers."""

    words: int

    @property
    def _llm_type(self) -> str:
        return "pretend"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        usage = {"input_tokens": 20, "output_tokens": self.words, "total_tokens": 20 + self.words}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("word " * self.words, usage_metadata=usage))])


async def main() -> None:
    """Send a batch, rate the answers, and print the account."""
    llm = RunnableWiseRouter(
        models={"small": Pretend(words=30), "large": Pretend(words=120)},
        prices={"small": Price(1e-7, 4e-7), "large": Price(3e-6, 1.5e-5)},
        budget=Budget(amount_usd=0.30, horizon=500),
    )
    chain = ChatPromptTemplate.from_messages([("human", "Summarise ticket {number}.")]) | llm
    tickets = [{"number": number} for number in range(500)]
    served: dict[str, int] = {}
    with Progress() as bars:
        bar = bars.add_task("tickets", total=len(tickets))
        async for _, answer in chain.abatch_as_completed(tickets, {"max_concurrency": 20}):
            model = answer.response_metadata["wise_router"]["model"]
            served[model] = served.get(model, 0) + 1
            await llm.afeedback(answer, 0.9 if model == "large" else 0.6)
            bars.advance(bar)
    status = llm.core.status()
    print(f"served {dict(sorted(served.items()))}")
    print(f"spent {status.spent_usd:.4f} of {status.amount_usd} USD for {status.charged} answers")
    assert status.charged == 500


asyncio.run(main())
