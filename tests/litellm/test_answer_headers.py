"""The headers of answers bear any name of a model."""

from urllib.parse import unquote

import pytest
from starlette.responses import Response

from support.groups import HI, RICH, llms
from support.providers import deployment
from wiserouter_litellm import attach


@pytest.mark.parametrize(
    ("name", "as_sent"),
    [
        ("openai/gpt-5@low,max_tokens=500", "openai/gpt-5@low,max_tokens=500"),
        ("our model (new)", "our model (new)"),
        ("one\nline two\u2028three", "one%0Aline two%E2%80%A8three"),
        ("modèle-é", "mod%C3%A8le-%C3%A9"),
        ("50%", "50%25"),
        ("\ud800", "?"),
    ],
)
async def test_the_model_of_an_answer_is_named_in_printable_ascii(name, as_sent):
    row = deployment("small", info={"wiserouter_model": name})
    callback = attach(llms(row), "wise", budget=RICH)
    data = {"metadata": {}}
    rows = await callback.async_filter_deployments("wise", [row], HI, data)
    assert [found["model_info"]["id"] for found in rows] == ["small"]
    headers = await callback.async_post_call_response_headers_hook(
        data, None, None, litellm_call_info={"model_id": "small"}
    )
    response = Response()
    response.headers.update(headers)
    assert response.headers["x-wiserouter-model"] == as_sent
    assert unquote(as_sent) == name or name == "\ud800"


async def test_an_answer_to_a_request_with_credentials_of_its_own_has_headers(provider):
    litellm_router = llms(deployment("small"))
    callback = attach(litellm_router, "wise", budget=RICH)
    data = {"metadata": {}}
    answer = await litellm_router.acompletion(model="wise", messages=HI, api_key="sk-of-the-client", **data)
    served = answer._hidden_params["model_id"]
    assert served != "small"
    headers = await callback.async_post_call_response_headers_hook(
        data, None, None, litellm_call_info={"model_id": served}
    )
    assert headers["x-wiserouter-model"] == "openai/small"
