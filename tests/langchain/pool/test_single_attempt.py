"""Under a hard budget each request is sent once, also by clients whose retries are in parts of their own."""

from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from support.billing_stub import Behaviour, billing_stub
from wiserouter import Budget, Price
from wiserouter_langchain import RunnableWiseRouter


class Model(BaseChatModel):
    """A chat model with a client of its own, as those of Bedrock, OpenRouter and LiteLLM."""

    client: Any
    send: Any
    max_tokens: int = 10
    model_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self):
        return "stub"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.send(self)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("hi"))])


def routed(model, limit):
    budget = Budget(1.0, 100, limit=limit)
    return RunnableWiseRouter(models={"m": model}, prices={"m": Price(1e-6, 1e-5)}, budget=budget)


def converse(model):
    return model.client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}])


@pytest.mark.parametrize(("limit", "sent"), [("hard", 1), ("expected", 3)])
def test_a_client_of_boto3_repeats_no_request_under_a_hard_budget(limit, sent):
    with billing_stub() as stub:
        stub.behaviour = Behaviour(status=503, bills_failures=True)
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        client = boto3.client("bedrock-runtime", endpoint_url=stub.root, **keys)
        with pytest.raises(Exception, match="503"):
            routed(Model(client=client, send=converse), limit).invoke("hi")
        assert stub.received == sent
        if limit == "hard":  # the client itself is as it was
            with pytest.raises(Exception, match="503"):
                converse(Model(client=client, send=converse))
            assert stub.received == 1 + 3


@dataclass
class OpenRouter:
    """The parts of OpenRouter's client that hold its retries: it makes `chat` once that is asked for."""

    sdk_configuration: Any
    _sub_sdk_map: dict[str, str] = field(default_factory=lambda: {"chat": ""})

    def __getattr__(self, name):
        if name != "chat":
            raise AttributeError(name)
        self.chat = SimpleNamespace(settings=self.sdk_configuration)
        return self.chat


def test_a_client_of_openrouter_repeats_no_request():
    client, seen = OpenRouter(SimpleNamespace(retry_config="backoff")), []
    before = client.chat.settings
    model = Model(client=client, send=lambda one: seen.append(one.client.chat.settings.retry_config))
    routed(model, "hard").invoke("hi")
    assert (seen, before.retry_config, client.chat.settings) == ([None], "backoff", before)


def test_litellm_is_asked_to_repeat_no_request():
    seen = []
    model = Model(client=ModuleType("litellm"), send=lambda one: seen.append(one.model_kwargs))
    routed(model, "hard").invoke("hi")
    assert (seen, model.model_kwargs) == ([{"max_retries": 0, "num_retries": 0}], {})


class RouterModel(Model):
    """A chat model on a router of LiteLLM, as `ChatLiteLLMRouter`."""

    router: Any = None


def test_a_router_of_litellm_is_asked_to_send_to_no_other_model():
    seen = []
    model = RouterModel(client=ModuleType("litellm"), send=lambda one: seen.append(one.model_kwargs))
    routed(model, "hard").invoke("hi")
    assert seen == [{"max_retries": 0, "num_retries": 0, "disable_fallbacks": True}]
