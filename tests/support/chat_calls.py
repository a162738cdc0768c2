"""The ways to call a chat model, and what tests call it with: a tool, a schema, a tracer."""

import asyncio

from langchain_core.tools import tool
from langchain_core.tracers import BaseTracer
from pydantic import BaseModel


class Tree(BaseTracer):
    """Keeps finished root runs, and draws them as nested tuples."""

    def __init__(self):
        super().__init__(_schema_format="original+chat")
        self.roots = []

    def _persist_run(self, run):
        self.roots.append(run)

    def shape(self, run=None):
        run = run or self.roots[-1]
        return (run.run_type, run.name, [self.shape(child) for child in run.child_runs])


class City(BaseModel):
    """A city."""

    city: str


@tool
def weather(location: str) -> str:
    """Report the weather."""
    return "sunny"


async def collect(stream):
    return [chunk async for chunk in stream]


async def settled(llm, timeout_s=20.0):
    """Wait until nothing is in flight: some streams end in a task of their own."""
    async with asyncio.timeout(timeout_s):
        while llm.core.status().in_flight:
            await asyncio.sleep(0.01)


DOORS = {
    "invoke": lambda r, q, config=None: r.invoke(q, config),
    "ainvoke": lambda r, q, config=None: asyncio.run(r.ainvoke(q, config)),
    "stream": lambda r, q, config=None: list(r.stream(q, config)),
    "astream": lambda r, q, config=None: asyncio.run(collect(r.astream(q, config))),
    "batch": lambda r, q, config=None: r.batch([q], config),
    "abatch": lambda r, q, config=None: asyncio.run(r.abatch([q], config)),
}
