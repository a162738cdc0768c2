"""The examples of the documentation run, with stubs in place of providers."""

import re
from pathlib import Path
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

from support.chat_calls import weather
from support.chat_stub import PRICES, StubChat, routed
from wiserouter import Budget
from wiserouter_langchain import RunnableWiseRouter, WiseRouterMiddleware

DOCS = Path(__file__).parents[2] / "docs"


def stub(model):
    return StubChat(model=model, profile={"max_input_tokens": 10_000})


def examples(page, section):
    """Return the Python examples of a section."""
    text = (DOCS / page).read_text().split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", text, re.S)


def test_the_agent_under_a_run_budget():
    (code,) = examples("agents.md", "LangChain")
    names = {
        **dict.fromkeys(("ChatOpenAI", "ChatAnthropic"), stub),
        **{one.__name__: one for one in (Budget, RunnableWiseRouter, WiseRouterMiddleware, create_agent)},
        "tools": [weather],
    }
    code = code.replace("    unit=", '    prices={"gpt-mini": small, "claude-big": large},\n    unit=')
    exec(code, {**names, **PRICES}, names)
    status = names["llm"].core.status()
    assert (status.decided, status.charged) == (1, 2)
    assert names["llm"].core.estimates.labels.sum() == 1


def test_the_loop_of_feedback():
    (code,) = examples("langchain.md", "Feedback")
    llm = routed()
    chain = ChatPromptTemplate.from_messages([("human", "{question}")]) | llm | StrOutputParser()
    exec(code, {"chain": chain, "llm": llm, "uuid4": uuid4, "examples": [("Why?", "soft"), ("Who?", "dog")]})
    assert llm.core.estimates.labels.sum() == 102


def test_the_first_page_shows_how_a_chain_gives_feedback():
    (code,) = examples("../README.md", "LangChain")
    names = {
        **dict.fromkeys(("ChatOpenAI", "ChatAnthropic"), stub),
        "prompt": ChatPromptTemplate.from_messages([("human", "{question}")]),
        "parser": StrOutputParser(),
        "uuid4": uuid4,
        "examples": [("Why?", "soft"), ("Who?", "dog")],
    }
    code = code.replace("    cap_output", '    prices={"gpt-mini": small, "claude-big": large},\n    cap_output')
    exec(code, {**names, **PRICES}, names)
    assert names["llm"].core.estimates.labels.sum() == 3


@pytest.mark.parametrize("page", ["agents.md", "langchain.md"])
def test_examples_are_python(page):
    for code in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S):
        compile(code, page, "exec")
