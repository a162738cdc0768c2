"""For any body that a hard budget lets pass, the reservation covers what an obedient provider bills for it."""

import json

import litellm
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from litellm.types.utils import all_litellm_params

from support import billing_rules as oracle
from support.groups import fitted, llms
from support.hostile_bodies import BODIES, HI, body_for, cases
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import attach
from wiserouter_litellm.deployments.litellm_compat import deployments_of
from wiserouter_litellm.groups.candidates import bounded_params
from wiserouter_litellm.requests.limits import ALL_ANSWERS, ALL_LIMITS
from wiserouter_litellm.requests.parameters import _ROUTER_KEYS, ALLOWED, OWN_REFUSED, SENT_REFUSED
from wiserouter_litellm.requests.request import surface_of

CAP = 60
NOT_SENT = {*all_litellm_params, *_ROUTER_KEYS, "timeout", "extra_body", "extra_headers"}


@pytest.fixture(scope="module")
def callback():
    """Return the callback of a hard group whose deployments add parameters of their own."""
    info = {"max_output_tokens": oracle.MAX_OUTPUT_TOKENS, "max_input_tokens": oracle.MAX_INPUT_TOKENS}
    rows = [
        deployment("small", info=info, max_completion_tokens=900, n=2),
        deployment("large", info={**info, "id": "large"}, max_tokens="700"),
    ]
    budget = Budget(1e9, 1_000_000, limit="hard")
    yield attach(llms(*rows), "wise", router=fitted(), budget=budget, cap_output_tokens=CAP)
    litellm.logging_callback_manager._reset_all_callbacks()


def check(callback, messages, kwargs):
    """Check the bound for a call, for every deployment; return True if it was bounded."""
    group = callback.groups["wise"]
    deployments = deployments_of(callback._router, "wise")
    try:
        routing = callback.begin(group, deployments, messages, kwargs, "wise")
        if routing is None:
            return False
        bounds = group.bounds_of(routing)
    except (litellm.BadRequestError, litellm.ContextWindowExceededError):
        return False
    for one in routing.candidates:
        params = bounded_params(routing.request, one, group.cap_output_tokens)
        body = sent(messages, kwargs, params)
        tokens = oracle.read(body)
        name = params["model"].partition("/")[2]
        if tokens.input <= oracle.MAX_INPUT_TOKENS:
            cost_usd = tokens.cost_usd(oracle.PRICES[name])
            assert cost_usd <= bounds.worst_usd[one.info.model] * (1 + 1e-9), (name, tokens, body)
    return True


def sent(messages, kwargs, params):
    """Return the body that LiteLLM sends: the deployment's parameters below the request's, `extra_body` above them."""
    added = {name: value for name, value in params.items() if name in {*ALL_LIMITS, *ALL_ANSWERS, "service_tier"}}
    given = {name: value for name, value in kwargs.items() if name not in NOT_SENT and not name.startswith("_litellm_")}
    body = {**added, **given, **(kwargs.get("extra_body") or {})}
    if surface_of(messages, kwargs) == "responses":
        body["max_output_tokens"] = max(16, int(body.get("max_output_tokens") or oracle.MAX_OUTPUT_TOKENS))
    elif len(messages) == 1 and isinstance(messages[0], dict) and messages[0].get("content") is PROMPTS:
        body["prompt"] = PROMPTS
    else:
        body["messages"] = messages
    return json.loads(json.dumps(body))


PROMPTS = ["one", "two", "three"]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**10),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["7", "4096", "priority", "auto", "fast", "web_search", "text", "function", "clear_x", "us"]),
)
NAMES = sorted(
    {name for one in ALLOWED for name in one.names.split()}
    | {*ALL_LIMITS, *ALL_ANSWERS, *SENT_REFUSED, *OWN_REFUSED, *oracle.LIMITS, *oracle.ANSWERS, *oracle.PRICED}
)
keys = st.one_of(st.sampled_from(NAMES), st.text(min_size=1, max_size=6))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=6,
)
texts = st.text(max_size=40)
parts = st.one_of(
    texts,
    st.none(),
    st.lists(st.builds(lambda text: {"type": "text", "text": text}, texts), max_size=4),
    st.lists(
        st.dictionaries(st.sampled_from(["type", "text", "image_url", "content"]), scalars, max_size=3), max_size=2
    ),
)
messages = st.lists(
    st.builds(
        lambda role, content, more: {"role": role, "content": content, **more},
        st.sampled_from(["user", "assistant", "system", "tool"]),
        parts,
        st.dictionaries(
            st.sampled_from(["name", "tool_calls", "audio", "tool_call_id", "refusal"]), values, max_size=1
        ),
    ),
    max_size=4,
)
plausible = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.one_of(st.none(), st.integers(1, 5_000), st.sampled_from(["5", "900", 30.0])),
        "max_completion_tokens": st.one_of(st.none(), st.integers(1, 5_000)),
        "n": st.one_of(st.none(), st.integers(1, 9), st.just("4")),
        "best_of": st.one_of(st.none(), st.integers(1, 9)),
        "temperature": scalars,
        "suffix": texts,
        "tools": st.just([{"type": "function", "function": {"name": "f", "description": "x" * 99}}]),
        "response_format": values,
        "extra_body": st.dictionaries(
            st.sampled_from(["top_k", "seed", "n", "chat_template_kwargs"]), values, max_size=1
        ),
        "service_tier": st.sampled_from(["auto", "flex", "priority", None]),
        "stream": st.booleans(),
    },
)
likely = st.one_of(
    plausible,
    st.dictionaries(keys, values, max_size=3),
    st.builds(lambda a, b: {**a, **b}, plausible, st.dictionaries(keys, values, max_size=1)),
)


def reservation_covers_what_is_billed(callback, surface, chat, body):
    kwargs = {
        name: value for name, value in body.items() if name not in {"messages", "input", "prompt", "litellm_metadata"}
    }
    if surface == "chat":
        check(callback, chat, kwargs)
    elif surface == "completions":
        check(callback, [{"role": "user", "content": PROMPTS}], kwargs)
    elif surface == "messages":
        check(callback, chat, {**kwargs, "messages": chat, "litellm_metadata": {}})
    else:
        limit = kwargs.pop("max_tokens", None)
        more = {} if limit is None else {"max_output_tokens": limit}
        check(callback, None, {**kwargs, **more, "input": chat, "litellm_metadata": {}})


any_body = given(st.sampled_from(["chat", "completions", "responses", "messages"]), messages, likely)
few, many = (settings(max_examples=n, deadline=None, suppress_health_check=list(HealthCheck)) for n in (250, 2_000))
test_the_reservation_covers_what_is_billed = few(any_body(reservation_covers_what_is_billed))
test_the_reservation_covers_what_many_bodies_cost = pytest.mark.slow(many(any_body(reservation_covers_what_is_billed)))


def test_enough_bodies_pass_for_the_property_to_mean_something(callback):
    passed = 0
    for surface, name in cases():
        body = body_for(surface, "wise", BODIES[name])
        del body["model"]
        if surface in {"chat", "streams"}:
            passed += check(callback, body.pop("messages", None) or HI, body)
        elif surface == "messages":
            passed += check(callback, body.get("messages") or HI, {"messages": HI, **body, "litellm_metadata": {}})
        elif surface == "responses":
            passed += check(callback, None, {**body, "litellm_metadata": {}})
    assert passed > 150
