"""The times of model runs: what a limit on latency counts."""

import pytest
from langchain_core.callbacks import CallbackManager
from langchain_core.language_models import FakeListChatModel

from support.chat_stub import StubChat
from wiserouter import Budget, Limit, Limits, Price, UseRate
from wiserouter_langchain import RunnableWiseRouter
from wiserouter_langchain.billing.usage_observer import UsageObserver, observe

PRICES = {"small": Price(1e-6, 2e-6), "large": Price(2e-6, 4e-6)}


@pytest.mark.filterwarnings("ignore")
def test_the_time_of_a_call_counts():
    models = {name: FakeListChatModel(responses=["hi"], sleep=0.02) for name in PRICES}
    llm = RunnableWiseRouter(models=models, prices=PRICES, budget=Budget(1.0, 100))
    llm.core.set_limits(Limits({"latency_s": Limit(mean=5.0)}))
    for _ in range(3):
        llm.invoke("hello")
    (limit,) = llm.core.status().limits
    assert limit.calls == 3
    assert 0.02 <= limit.mean < 5.0


def test_the_tokens_of_an_answer_count_at_their_rates():
    llm = RunnableWiseRouter(
        models={name: StubChat(model=name) for name in PRICES}, prices=PRICES, budget=Budget(1.0, 100)
    )
    llm.core.set_use_rates({name: {"energy_wh": UseRate(call=1.0, output_token=0.5)} for name in PRICES})
    llm.core.set_limits(Limits({"energy_wh": Limit(mean=50.0)}))
    answers = [llm.invoke("hello") for _ in range(3)]
    tokens = [answer.usage_metadata["output_tokens"] for answer in answers]
    (limit,) = llm.core.status().limits
    assert (limit.calls, limit.mean) == (3, 1.0 + 0.5 * sum(tokens) / 3)


def test_a_run_is_timed_by_the_clock_from_its_start_to_its_end():
    times = iter([1.0, 3.5])
    observer = UsageObserver(now_s=lambda: next(times))
    callbacks = CallbackManager([])
    observe(callbacks, observer)
    FakeListChatModel(responses=["hi"]).invoke("hello", {"callbacks": callbacks})
    (run,) = observer.runs
    assert run.took_s == 2.5
