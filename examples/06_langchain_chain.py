"""A chain whose chat model chooses a chat model: answers, a stream, a structured answer, and feedback. Offline."""

from typing import Any

from wiserouter import Budget, Price
from wiserouter_langchain import RunnableWiseRouter, track_decisions  # names the extra that is missing

# isort: split
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel


class City(BaseModel):
    """A city and its country."""

    city: str
    country: str


class Pretend(BaseChatModel):
    """Stands in for ChatOpenAI(...) or ChatAnthropic(...)."""

    says: str

    @property
    def _llm_type(self) -> str:
        return "pretend"

    def _usage(self, messages: list[BaseMessage]) -> Any:
        asked, said = sum(len(m.text.split()) for m in messages), len(self.says.split())
        return {"input_tokens": asked, "output_tokens": said, "total_tokens": asked + said}

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        answer = AIMessage(self.says, usage_metadata=self._usage(messages))
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        for word in self.says.split():
            yield ChatGenerationChunk(message=AIMessageChunk(word + " "))
        last = AIMessageChunk("", usage_metadata=self._usage(messages), chunk_position="last")
        yield ChatGenerationChunk(message=last)

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        return self | RunnableLambda(lambda message: schema(city="Paris", country=message.text.split()[0]))


llm = RunnableWiseRouter(
    models={"small": Pretend(says="France"), "large": Pretend(says="France, whose capital is Paris")},
    prices={"small": Price(1e-7, 4e-7), "large": Price(3e-6, 1.5e-5)},
    budget=Budget(amount_usd=0.01, horizon=100),
)
chain = ChatPromptTemplate.from_messages([("human", "In which country is {city}?")]) | llm

answer = chain.invoke({"city": "Paris"})
print(answer.response_metadata["wise_router"]["model"], "says", answer.text)
llm.feedback(answer, 0.9)  # by message; a run id or a decision id works too

print(*chain.pipe(StrOutputParser()).stream({"city": "Lyon"}))
print(llm.with_structured_output(City).invoke("Where is the Louvre?"))

with track_decisions(llm) as tracked:  # no ids to pass along
    chain.batch([{"city": "Nice"}, {"city": "Lille"}])
for root in tracked.decisions:
    tracked.feedback(root, 0.8)

status = llm.core.status()
print(f"{status.charged} calls, {status.spent_usd:.7f} of {status.amount_usd} USD")
assert status.charged == 5
assert status.in_flight == 0
