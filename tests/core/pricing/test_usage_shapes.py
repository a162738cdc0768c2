"""Usage blocks of providers and frameworks, as mappings and as objects."""

import math
from types import SimpleNamespace

import pytest

from wiserouter import Budget, Model, Price, Usage, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.pricing.usage_shapes import usage_from

PRICE = Price(1e-6, 2e-6, cache_read=1e-7, cache_write=1.25e-6, reasoning=3e-6)
SHAPES = {
    "usage": (Usage(10, 5), Usage(10, 5)),
    "openai chat": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
        Usage(100, 50, cache_read_tokens=60, reasoning_tokens=20),
    ),
    "openai embeddings": ({"prompt_tokens": 3, "total_tokens": 3}, Usage(3, 0)),
    "openai responses": (
        {
            "input_tokens": 100,
            "output_tokens": 50,
            "input_tokens_details": {"cached_tokens": 60},
            "output_tokens_details": {"reasoning_tokens": 20},
        },
        Usage(100, 50, cache_read_tokens=60, reasoning_tokens=20),
    ),
    "anthropic": (
        {"input_tokens": 10, "output_tokens": 50, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30},
        Usage(100, 50, cache_read_tokens=60, cache_write_tokens=30),
    ),
    "anthropic without cache": (
        {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": None, "cache_creation_input_tokens": None},
        Usage(10, 5),
    ),
    "langchain": (
        {
            "input_tokens": 100,
            "output_tokens": 50,
            "total_tokens": 150,
            "input_token_details": {"cache_read": 60, "cache_creation": 30},
            "output_token_details": {"reasoning": 20},
        },
        Usage(100, 50, cache_read_tokens=60, cache_write_tokens=30, reasoning_tokens=20),
    ),
    "litellm": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_creation_tokens": 30},
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 30,
        },
        Usage(100, 50, cache_read_tokens=60, cache_write_tokens=30),
    ),
    "parts beyond their whole": (
        {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 99}},
        Usage(10, 5, cache_read_tokens=10),
    ),
}


def as_object(block):
    if not isinstance(block, dict):
        return block
    return SimpleNamespace(**{name: as_object(value) for name, value in block.items()})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", [dict, as_object], ids=["mapping", "object"])
def test_every_shape_is_read(shape, form):
    block, usage = SHAPES[shape]
    assert usage_from(block if form is dict else form(block)) == usage


@pytest.mark.parametrize("shape", SHAPES)
def test_a_call_is_charged_by_any_shape(shape):
    block, usage = SHAPES[shape]
    router = WiseRouter([Model("small", PRICE)], seed=0)
    router.start(Budget(1.0, 10))
    router.charge(router.decide("hello"), usage=block)
    spent = router.status().spent_usd
    router.charge(router.decide("hello"), usage=usage)
    assert router.status().spent_usd == pytest.approx(2 * spent)


@pytest.mark.parametrize("block", [{}, {"total_tokens": 3}, 5, "3 tokens", [3], object()], ids=type)
def test_what_counts_nothing_is_refused_plainly(block):
    router = WiseRouter([Model("small", PRICE)], seed=0)
    router.start(Budget(1.0, 10))
    decision = router.decide("hello")
    with pytest.raises(InvalidInput, match="usage must be a Usage, or a usage block of OpenAI, Anthropic or LangChain"):
        router.charge(decision, usage=block)
    assert router.status().in_flight == 1


@pytest.mark.parametrize("count", [-1, math.nan, math.inf, 1.5, True, "3"], ids=repr)
def test_odd_counts_are_refused(count):
    with pytest.raises(InvalidInput, match="prompt_tokens must be a whole number of at least 0"):
        usage_from({"prompt_tokens": count})
