"""LangChain's standard test suites on the router, and on the bare stub, which skips the same tests."""

from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from support.chat_stub import PRICES, StubChat, core
from wiserouter_langchain import RunnableWiseRouter


class Stub:
    @property
    def chat_model_class(self):
        return StubChat

    @property
    def has_tool_calling(self):
        return True

    @property
    def has_tool_choice(self):
        return True

    @property
    def has_structured_output(self):
        return True

    @property
    def model_override_value(self):
        return "stub-override"


class Router(Stub):
    @property
    def chat_model_class(self):
        return RunnableWiseRouter

    @property
    def chat_model_params(self):
        models = {"small": StubChat(model="stub-small"), "large": StubChat(model="stub-large")}
        return {"models": models, "router": core(), "prices": PRICES}


class TestStubUnit(Stub, ChatModelUnitTests):
    pass


class TestStubIntegration(Stub, ChatModelIntegrationTests):
    pass


class TestRouterUnit(Router, ChatModelUnitTests):
    pass


class TestRouterIntegration(Router, ChatModelIntegrationTests):
    pass
