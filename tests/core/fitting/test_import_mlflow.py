"""Traces of LiteLLM's callback for MLflow, as MLflow 3.17 returns them."""

import json

import pytest

from support.recorded_calls import ASK
from wiserouter.fitting.imports.sources import SOURCES


def mlflow_of_litellm(**more):
    """Return a trace as LiteLLM's callback for MLflow writes it in the proxy, where `wise` was asked for."""
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 30}}
    values = {
        "mlflow.spanType": "LLM",
        "mlflow.spanInputs": {"messages": ASK},
        "litellm_call_id": "call-1",
        "call_type": "acompletion",
        "model": "gpt-mini",
        "cache_hit": None,
        "mlflow.chat.tokenUsage": {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120},
        "raw_llm_response": {"id": "chatcmpl-1", "model": "wise", "usage": usage},
        "response_cost": 1.59e-05,
        "mlflow.llm.model": "wise",
        **more,
    }
    span = {
        "span_id": "nWWqwVuBIks=",
        "parent_span_id": None,
        "name": "litellm-acompletion",
        "start_time_unix_nano": 1793491200000000000,
        "end_time_unix_nano": 1793491202000000000,
        "status": {"code": "STATUS_CODE_OK"},
        "attributes": {name: json.dumps(value) for name, value in values.items()},
    }
    return {"info": {"trace_id": "t-1", "trace_metadata": {}}, "data": {"spans": [span]}}


def test_a_call_of_litellm_in_mlflow_has_the_model_that_answered_and_the_cost_that_litellm_knows():
    (call,) = SOURCES["mlflow"].calls(mlflow_of_litellm())
    assert (call.model, call.group, call.cost_usd, call.failed) == ("gpt-mini", "wise", 1.59e-05, False)
    assert (call.input_tokens, call.output_tokens, call.cached_tokens) == (100, 20, 30)
    assert call.ids == ("9d65aac15b81224b", "call-1", "t-1")


def test_a_call_of_litellm_whose_cost_is_unknown_has_that_of_mlflow():
    (call,) = SOURCES["mlflow"].calls(
        mlflow_of_litellm(response_cost=None, **{"mlflow.llm.cost": {"total_cost": 0.002}})
    )
    assert call.cost_usd == 0.002


@pytest.mark.parametrize(("hit", "failed"), [(True, True), (False, False), (None, False)])
def test_an_answer_of_litellms_cache_in_mlflow_is_left_out(hit, failed):
    (call,) = SOURCES["mlflow"].calls(mlflow_of_litellm(cache_hit=hit, response_cost=0.0))
    assert call.failed == failed


@pytest.mark.parametrize(("kind", "n_calls"), [("aembedding", 0), ("aimage_generation", 0), ("aresponses", 1), ("", 1)])
def test_calls_of_litellm_in_mlflow_are_those_that_answer_with_a_text(kind, n_calls):
    assert len(list(SOURCES["mlflow"].calls(mlflow_of_litellm(call_type=kind)))) == n_calls
