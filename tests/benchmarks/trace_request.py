"""How often one request changes the file it runs in: `uv run python tests/benchmarks/trace_request.py [--verbose]`.

The figure stands for what a reader of the code does who follows a request from file to file.

The rule of counting
--------------------
The interpreter reports each call and each return (`sys.setprofile`), in every thread. After each event, the file that
runs is that of the innermost frame on the stack whose code lies in `wiserouter`, `wiserouter_litellm` or
`wiserouter_langchain`. Frames of NumPy, LiteLLM, LangChain and generated code (`<string>`: the constructors of
dataclasses and named tuples) are skipped, so what they call belongs to the frame of ours below them. A change of file
is an event after which another file runs than before it: a call into another file is one change, the return is a
second. Entering the first frame and leaving the last are no changes; where a framework enters several times (a hook
before the call, another after it), going from the last file of one entry to the first of the next is a change if they
differ. Calls are the call events in these files, comprehensions and each resumption of a generator or coroutine
included.

What is traced
--------------
Everything runs in memory and is seeded: router, embeddings, rewards and token counts.

- decide, charge, reward: 8 contexts, 5 priced models, `Optimistic`, a text and its embedding given; the charge builds
  its `Usage`. 101 rounds after 400 of warm-up, once with an expected limit and once with a hard one.
- LiteLLM: `acompletion` of a `litellm.Router` of two deployments with mocked answers and `attach`, up to the last
  success callback. LangChain: `invoke` of a `RunnableWiseRouter` of two fake chat models. Both routers start without
  history and keep one context, as all did at the commit below. "First calls" are calls 6 to 20, at each of which the
  plan is solved again; the other rows hold 101 calls after 100 of warm-up.

Each row has two groups of columns: the median of all traced calls, and the median of those that touch as many files as
the 95th of 100 calls does. For a decision and for a call of an adapter, the latter are those at which the plan is
solved again; rarer calls do more, such as one in a hundred charges, which tests for drift.

At commit b2b2b36, before the core had folders, the script reports 88 changes and 18 files for a decision that solves
the plan, 39 changes for a charge, 239 changes and 30 files for a first call of LiteLLM, and 178 changes for a call of
LangChain that solves the plan.
"""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import argparse
import asyncio
import logging
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median_low
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from wiserouter import Budget, Contexts, Decision, Model, Optimistic, Price, Usage, WiseRouter

PACKAGES = ("wiserouter", "wiserouter_litellm", "wiserouter_langchain")
ROUNDS, CALLS, TRACED = 400, 100, 101
"""Rounds and calls of warm-up, and how many are traced afterwards."""

FIRST_CALLS = slice(5, 20)
N_CONTEXTS, N_MODELS, DIM, MAX_OUTPUT_TOKENS = 8, 5, 32, 1_000
QUESTION = "how do I reset the password of the billing database?"
PRICES = {"small": Price(1e-6, 2e-6), "large": Price(2e-6, 4e-6)}


class Step(NamedTuple):
    """One change of file: where it leads, and how deep the stack of our frames is there."""

    file: str
    function: str
    depth: int


class Walk(NamedTuple):
    """The way of one request through the files."""

    steps: list[Step]
    files: set[str]
    n_calls: int

    @property
    def changes(self) -> int:
        """Number of changes of file."""
        return max(0, len(self.steps) - 1)


class Figures(NamedTuple):
    """Medians over several walks."""

    changes: int
    files: int
    calls: int


class Row(NamedTuple):
    """The figures of one request: of all its traced calls, and of those that touch many files."""

    name: str
    all_calls: Figures
    many_files: Figures


class Recorder:
    """Follows the frames of our packages in all threads, while it is switched on."""

    def __init__(self) -> None:
        roots = [Path(find_spec(name).origin).parent for name in PACKAGES]  # type: ignore[union-attr,arg-type]
        self._roots = {f"{root}{os.sep}": f"{root.parent}{os.sep}" for root in roots}
        self._short: dict[str, str | None] = {}
        self._steps: dict[int, list[Step]] = {}
        self._files: Counter[str] = Counter()
        self._on = False

    def install(self) -> None:
        """Watch the threads that start from now on, in addition to the one that walks."""
        threading.setprofile(self._event)

    @contextmanager
    def walking(self) -> Iterator[list[Walk]]:
        """Record what runs meanwhile; the walk is in the list at the end."""
        self._steps, self._files, found = {}, Counter(), []
        self._on = True
        sys.setprofile(self._event)
        try:
            yield found
        finally:
            sys.setprofile(None)
            self._on = False
        steps = [step for of_thread in self._steps.values() for step in of_thread]
        found.append(Walk(steps, set(self._files), self._files.total()))

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        if not self._on or event not in {"call", "return"} or self._file(frame) is None:
            return
        if event == "call":
            self._files[self._file(frame) or ""] += 1
            self._visit(frame)
        else:
            self._visit(self._ours(frame.f_back))

    def _visit(self, frame: FrameType | None) -> None:
        file = None if frame is None else self._file(frame)
        if frame is None or file is None:
            return
        steps = self._steps.setdefault(threading.get_ident(), [])
        if not steps or steps[-1].file != file:
            steps.append(Step(file, frame.f_code.co_qualname, self._depth(frame)))

    def _ours(self, frame: FrameType | None) -> FrameType | None:
        while frame is not None and self._file(frame) is None:
            frame = frame.f_back
        return frame

    def _depth(self, frame: FrameType | None) -> int:
        depth = 0
        while (frame := self._ours(frame)) is not None:
            frame, depth = frame.f_back, depth + 1
        return depth

    def _file(self, frame: FrameType) -> str | None:
        path = frame.f_code.co_filename
        if path not in self._short:
            roots = [parent for root, parent in self._roots.items() if path.startswith(root)]
            self._short[path] = path.removeprefix(roots[0]) if roots else None
        return self._short[path]


RECORDER = Recorder()


class Rounds:
    """Rounds of decide, charge and reward of one seeded router that learns while it serves."""

    def __init__(self, limit: str) -> None:
        self._rng = np.random.default_rng(0)
        models = [
            Model(f"m{k}", Price(1e-6 * (k + 1), 4e-6 * (k + 1)), max_output_tokens=MAX_OUTPUT_TOKENS)
            for k in range(N_MODELS)
        ]
        contexts = Contexts(self._rng.normal(size=(N_CONTEXTS, DIM)), np.full(N_CONTEXTS, 1 / N_CONTEXTS))
        self._good = self._rng.random((N_CONTEXTS, N_MODELS))
        self._router = WiseRouter(models, contexts, policy=Optimistic(), seed=0)
        self._router.start(Budget(2.5e-3 * 100_000, 100_000, limit=limit))  # type: ignore[arg-type]

    def trace(self) -> dict[str, list[Walk]]:
        """Return the walks of the traced rounds, by the verb."""
        for _ in range(ROUNDS):
            self._round()
        rounds = [self._round() for _ in range(TRACED)]
        return {verb: [walks[verb] for walks in rounds] for verb in rounds[0]}

    def _round(self) -> dict[str, Walk]:
        embedding = self._rng.normal(size=DIM).astype(np.float32)
        with RECORDER.walking() as decide:
            decision = self._router.decide(QUESTION, embedding=embedding)
        output_tokens, reward = min(MAX_OUTPUT_TOKENS, int(self._rng.lognormal(5.0, 0.8))), self._reward(decision)
        with RECORDER.walking() as charge:
            self._router.charge(decision, usage=Usage(10, output_tokens))
        with RECORDER.walking() as rewarded:
            self._router.reward(decision, reward)
        return {"decide": decide[0], "charge": charge[0], "reward": rewarded[0]}

    def _reward(self, decision: Decision) -> float:
        return float(self._rng.random() < self._good[decision.context, int(decision.model[1:])])


def budget() -> Budget:
    """Return a budget that does not run out."""
    return Budget(1e3, 10**6)


def learner(models: dict[str, Price]) -> WiseRouter:
    """Return a router of one context that knows the prices of its models and learns the rest."""
    return WiseRouter([Model(name, price) for name, price in models.items()], growing=None, policy=Optimistic(), seed=0)


def deployment(name: str, price: Price) -> dict[str, Any]:
    """Return a deployment whose answer is mocked."""
    priced = {"input_cost_per_token": price.input, "output_cost_per_token": price.output}
    params = {"model": f"openai/{name}", "api_key": "none", "mock_response": "ok", **priced}
    return {"model_name": "wise", "litellm_params": params, "model_info": {"id": name, "max_output_tokens": 20}}


async def trace_litellm() -> list[Walk]:
    """Return the walks of calls of a LiteLLM router, each to the end of its success callbacks."""
    import litellm
    from litellm.integrations.custom_logger import CustomLogger

    from wiserouter_litellm import attach, detach

    class Settled(CustomLogger):  # added last: it is called when all other callbacks have been
        async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            settled.set()

    for name in ("LiteLLM", "LiteLLM Router"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    settled = asyncio.Event()
    llms = litellm.Router([deployment(name, price) for name, price in PRICES.items()], num_retries=0)
    attach(llms, "wise", router=learner(PRICES), budget=budget())
    litellm.logging_callback_manager.add_litellm_callback(Settled())
    message = [{"role": "user", "content": QUESTION}]

    async def call() -> None:
        settled.clear()
        await llms.acompletion(model="wise", messages=message)
        await asyncio.wait_for(settled.wait(), 10)

    walks = [await walk_of(call) for _ in range(CALLS + TRACED)]
    detach(llms)
    return walks


async def walk_of(call: Callable[[], Awaitable[None]]) -> Walk:
    """Return the walk of one asynchronous call."""
    with RECORDER.walking() as walks:
        await call()
    return walks[0]


def trace_langchain() -> list[Walk]:
    """Return the walks of `invoke` of a routed chat model."""
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    from wiserouter_langchain import RunnableWiseRouter

    logging.getLogger("wiserouter").setLevel(logging.ERROR)  # a fake model answers without usage
    logging.getLogger("wiserouter_langchain").setLevel(logging.ERROR)
    models = {name: FakeListChatModel(responses=["hi there"]) for name in PRICES}
    llm = RunnableWiseRouter(models=models, router=learner(PRICES), prices=PRICES, budget=budget())
    walks = []
    for _ in range(CALLS + TRACED):
        with RECORDER.walking() as found:
            llm.invoke(QUESTION)
        walks += found
    return walks


def figures(walks: list[Walk]) -> Figures:
    """Return the medians over several walks."""
    columns = zip(*((walk.changes, len(walk.files), walk.n_calls) for walk in walks), strict=True)
    return Figures(*(median_low(column) for column in columns))


def row(name: str, walks: list[Walk]) -> Row:
    """Return the figures of one request."""
    many = sorted(len(walk.files) for walk in walks)[int(0.95 * (len(walks) - 1))]
    return Row(name, figures(walks), figures([walk for walk in walks if len(walk.files) == many]))


def measure() -> tuple[list[Row], Walk]:
    """Return the figures of each request, and one decision whose number of changes is the median."""
    RECORDER.install()
    try:
        expected, hard = Rounds("expected").trace(), Rounds("hard").trace()
        rows = [row(verb, walks) for verb, walks in expected.items()]
        rows.append(row("decide, hard limit", hard["decide"]))
        for name, walks in (("LiteLLM", asyncio.run(trace_litellm())), ("LangChain", trace_langchain())):
            rows += [row(f"{name}, first calls", walks[FIRST_CALLS]), row(name, walks[CALLS:])]
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    typical = next(walk for walk in expected["decide"] if walk.changes == rows[0].all_calls.changes)
    return rows, typical


def show(walk: Walk) -> None:
    """Print the changes of file of one request, indented by the depth of the stack."""
    for i, step in enumerate(walk.steps):
        print(f"{i:>4}  {'  ' * (step.depth - 1)}{step.file}: {step.function}")


def main() -> None:
    """Print the table, and the way of one decision if asked to."""
    parser = argparse.ArgumentParser(description="How often one request changes the file it runs in.")
    parser.add_argument("--verbose", action="store_true", help="also print the files of one decision, in order")
    verbose = parser.parse_args().verbose
    rows, typical = measure()
    print(f"{'':<22}{'median of all calls':>26}{'of those with many files':>28}")
    print(f"{'request':<22}" + f"{'changes':>12}{'files':>7}{'calls':>7}  " * 2)
    for each in rows:
        print(f"{each.name:<22}" + "".join(f"{f.changes:>12}{f.files:>7}{f.calls:>7}  " for f in each[1:]))
    if verbose:
        print("\none decision:")
        show(typical)


if __name__ == "__main__":
    main()
