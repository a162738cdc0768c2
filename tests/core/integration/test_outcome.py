"""Errors that prove that nothing was billed, told apart by status code and class name."""

import asyncio
import socket
from functools import partial

import pytest

from wiserouter.integration import proves_unbilled, refuses_request


def error_of(package: str, name: str, base: type[BaseException] = Exception, **fields: object) -> BaseException:
    """Return an error of a class as a client's package has it."""
    made = type(name, (base,), {"__module__": package, **fields})
    return made("failed")


def status(code: object, package: str = "openai", name: str = "APIStatusError") -> BaseException:
    return error_of(package, name, status_code=code)


def caused(outer: BaseException, *causes: BaseException) -> BaseException:
    inner = outer
    for cause in causes:
        inner.__cause__ = cause
        inner = cause
    return outer


def httpx(name: str) -> BaseException:
    return error_of("httpx", name)


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 409, 413, 422, 429])
def test_a_refused_request_is_unbilled(code):
    assert proves_unbilled(status(code))
    assert proves_unbilled(status(code, "anthropic"))


@pytest.mark.parametrize("code", [200, 302, 408, 424, 499, 500, 502, 503, 504, 529, None, "400", True])
def test_any_other_status_proves_nothing(code):
    assert not proves_unbilled(status(code))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("refused"),
        socket.gaierror("no such host"),
        caused(error_of("openai", "APIConnectionError"), httpx("ConnectError"), OSError("refused")),
        caused(error_of("openai", "APITimeoutError"), httpx("ConnectTimeout"), TimeoutError()),
        caused(status(500, "litellm.exceptions", "APIConnectionError"), httpx("ConnectError")),
        caused(status(408, "litellm.exceptions", "Timeout"), httpx("PoolTimeout")),
        error_of("httpx2", "ConnectError"),
        error_of("aiohttp.client_exceptions", "ClientConnectorError"),
        error_of("botocore.exceptions", "EndpointConnectionError"),
    ],
    ids=repr,
)
def test_a_connection_that_was_never_made_is_unbilled(error):
    assert proves_unbilled(error)


REFUSED = [
    f"{name}() got an unexpected keyword argument 'seed'"
    for name in (
        *("Messages.create", "AsyncMessages.create", "Completions.create", "AsyncResponses.parse"),
        *("Client.chat", "AsyncClient.chat"),
    )
]


def raised(told, *modules):
    """Return a `TypeError` as the innermost of some modules raises it."""
    code = compile("def call(inner, told):\n    if inner: inner(told)\n    raise TypeError(told)", "<stub>", "exec")
    call = None
    for module in reversed(modules):
        space = {"__name__": module}
        exec(code, space)
        call = partial(space["call"], call)
    with pytest.raises(TypeError) as caught:
        call(told)
    return caught.value


@pytest.mark.parametrize("adapter", ["langchain_openai.chat_models.base", "langchain_anthropic", "litellm.main"])
@pytest.mark.parametrize("client", [(), ("openai._legacy_response", "openai._utils"), ("anthropic._utils",)])
@pytest.mark.parametrize("told", REFUSED)
def test_an_argument_that_the_client_does_not_take_is_unbilled_and_about_the_request(told, client, adapter):
    error = raised(told, adapter, *client)
    assert proves_unbilled(error)
    assert refuses_request(error)


@pytest.mark.parametrize("told", ["A.parse() got an unexpected keyword argument 'b'", "Messages.create() failed"])
def test_another_type_error_proves_nothing(told):
    error = raised(told, "langchain_openai", "openai._utils")
    assert not proves_unbilled(error)
    assert not refuses_request(error)


@pytest.mark.parametrize("told", REFUSED)
def test_a_client_that_a_callback_calls_proves_nothing_of_the_request_before(told):
    of_a_callback = raised(told, "langchain_openai", "langchain_core.callbacks", "guard", "openai._utils")
    for error in (of_a_callback, TypeError(told)):
        assert not proves_unbilled(error)
        assert not refuses_request(error)


@pytest.mark.parametrize(
    "error",
    [
        None,
        TimeoutError(),
        RuntimeError("anything"),
        asyncio.CancelledError(),
        GeneratorExit(),
        KeyboardInterrupt(),
        caused(error_of("openai", "APITimeoutError"), httpx("ReadTimeout"), TimeoutError()),
        caused(status(408, "litellm.exceptions", "Timeout"), httpx("ReadTimeout")),
        caused(error_of("openai", "APIConnectionError"), httpx("RemoteProtocolError")),
        ConnectionResetError("reset"),
        status(429, "litellm.exceptions", "MidStreamFallbackError"),
        status(400, "litellm.exceptions", "GuardrailRaisedException"),
        status(400, "litellm.exceptions", "ContentPolicyViolationError"),
        error_of("openai", "BadRequestError", status_code=400, code="content_filter"),
        error_of("connectrpc.errors", "ConnectError"),
    ],
    ids=repr,
)
def test_everything_else_proves_nothing(error):
    assert not proves_unbilled(error)


def test_the_outermost_evidence_decides():
    assert not proves_unbilled(caused(httpx("ReadTimeout"), httpx("ConnectError")))  # the retry was sent
    assert proves_unbilled(caused(httpx("ConnectTimeout"), asyncio.CancelledError()))


def test_the_context_counts_unless_it_is_suppressed():
    error = RuntimeError("wrapped")
    error.__context__ = ConnectionRefusedError("refused")
    assert proves_unbilled(error)
    error.__suppress_context__ = True
    assert not proves_unbilled(error)


def test_errors_that_cause_each_other_end():
    one, other = RuntimeError(), RuntimeError()
    one.__cause__, other.__cause__ = other, one
    assert not proves_unbilled(one)


def test_a_group_proves_it_only_as_a_whole():
    assert proves_unbilled(ExceptionGroup("both", [status(400), httpx("ConnectError")]))
    assert not proves_unbilled(ExceptionGroup("one", [status(400), httpx("ReadError")]))


def test_an_error_about_the_request_is_told_from_one_about_the_model():
    assert all(refuses_request(status(code)) for code in (400, 409, 413, 422))
    assert not any(refuses_request(status(code)) for code in (401, 403, 404, 408, 429, 500, 503))
    assert refuses_request(caused(RuntimeError("wrapped"), status(400)))
    assert not refuses_request(httpx("ConnectError"))


def test_statuses_are_read_where_clients_put_them():
    response = type("Response", (), {"status_code": 429})()
    assert proves_unbilled(error_of("requests.exceptions", "HTTPError", response=response))
    assert proves_unbilled(error_of("google.api_core.exceptions", "ResourceExhausted", code=429))
    assert proves_unbilled(error_of("aiohttp.client_exceptions", "ClientResponseError", status=404))
    boto = {"ResponseMetadata": {"HTTPStatusCode": 400}}
    assert proves_unbilled(error_of("botocore.exceptions", "ClientError", response=boto))
    assert not proves_unbilled(error_of("botocore.exceptions", "ClientError", response={}))
