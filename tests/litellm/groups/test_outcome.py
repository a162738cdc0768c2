"""Every error that LiteLLM raises, over every error of the clients below it: what does it prove about the bill?"""

import asyncio
import inspect
import socket

import aiohttp
import httpx
import litellm.exceptions
import openai
import pytest
from aiohttp.client_reqrep import ConnectionKey

from wiserouter_litellm.groups.outcome import UNBILLED_STATUSES, outcome_of

REQUEST = httpx.Request("POST", "http://provider.test/v1/chat/completions")
KEY = ConnectionKey("provider.test", 80, False, True, None, None, None)

LOCAL = {"UnsupportedParamsError", "LiteLLMUnknownProvider", "BudgetExceededError", "ImageFetchError"}
"""Raised while LiteLLM builds the request."""
AFTER = {"ContentPolicyViolationError", "MidStreamFallbackError"}
"""Raised although a part may be billed, whatever lies below."""


def made(kind: type[BaseException], **fields: object) -> BaseException:
    """Return an error without calling its constructor."""
    error = kind.__new__(kind)
    vars(error).update(fields)
    return error


def caused(outer: BaseException, *causes: BaseException) -> BaseException:
    link = outer
    for cause in causes:
        link.__cause__ = link.__context__ = cause
        link = cause
    return outer


def refused(status: int) -> list[BaseException]:
    """Return the errors below LiteLLM's for an answer with a status."""
    response = httpx.Response(status, request=REQUEST)
    below = httpx.HTTPStatusError("refused", request=REQUEST, response=response)
    return [openai.APIStatusError("refused", response=response, body=None), below]


def exceptions_of_litellm() -> dict[str, type[BaseException]]:
    kinds = vars(litellm.exceptions).values()
    return {
        kind.__name__: kind
        for kind in kinds
        if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == "litellm.exceptions"
    }


KINDS = exceptions_of_litellm()

UNSENT = {
    "refused": lambda: [httpx.ConnectError("all attempts failed"), OSError("refused"), ConnectionRefusedError()],
    "no such host": lambda: [httpx.ConnectError("name"), socket.gaierror("no such host")],
    "never connected": lambda: [httpx.ConnectTimeout("slow"), TimeoutError()],
    "no connection free": lambda: [httpx.PoolTimeout("busy")],
    "bad protocol": lambda: [httpx.UnsupportedProtocol("gopher")],
    "bad address": lambda: [httpx.InvalidURL("no host")],
    "refused, aiohttp": lambda: [httpx.ConnectError("x"), aiohttp.ClientConnectorError(KEY, OSError("refused"))],
    "dns, aiohttp": lambda: [httpx.ConnectError("x"), aiohttp.ClientConnectorDNSError(KEY, OSError("no such host"))],
    "slow, aiohttp": lambda: [httpx.ConnectTimeout("x"), aiohttp.ConnectionTimeoutError("connecting")],
}
SENT = {
    "read timeout": lambda: [openai.APITimeoutError(REQUEST), httpx.ReadTimeout("slow"), TimeoutError()],
    "write timeout": lambda: [httpx.WriteTimeout("slow")],
    "connection lost": lambda: [openai.APIConnectionError(request=REQUEST), httpx.RemoteProtocolError("gone")],
    "read error": lambda: [httpx.ReadError("reset"), ConnectionResetError()],
    "write error": lambda: [httpx.WriteError("reset"), BrokenPipeError()],
    "reset, aiohttp": lambda: [httpx.ConnectError("x"), aiohttp.ClientOSError(104, "reset by peer")],
    "gone, aiohttp": lambda: [httpx.ReadError("x"), aiohttp.ServerDisconnectedError()],
    "slow, aiohttp": lambda: [httpx.ReadTimeout("x"), aiohttp.SocketTimeoutError("reading")],
    "cut off, aiohttp": lambda: [httpx.ReadError("x"), aiohttp.ClientPayloadError("cut")],
    "cancelled inside": lambda: [httpx.ConnectError("cancelled internally"), asyncio.CancelledError()],
    "sent again": lambda: [httpx.ConnectError("the second time"), OSError(), httpx.RemoteProtocolError("the first")],
    "an error in a 200": lambda: [Exception("error code: 429")],
    "nothing below": list,
}


@pytest.mark.parametrize("name", KINDS)
def test_by_itself_an_error_of_litellm_proves_nothing_unless_it_is_raised_before_the_call(name):
    error = made(KINDS[name], status_code=429, message="rate limit")
    assert outcome_of(error) == ("unbilled" if name in LOCAL else "unknown")


@pytest.mark.parametrize("status", sorted(UNBILLED_STATUSES))
@pytest.mark.parametrize("name", sorted(KINDS.keys() - AFTER))
def test_a_provider_that_refuses_bills_nothing_whatever_litellm_calls_it(name, status):
    assert outcome_of(caused(made(KINDS[name]), *refused(status))) == "unbilled"


@pytest.mark.parametrize("status", [408, 409, 418, 424, 425, 451, 499, 500, 502, 503, 504, 529])
@pytest.mark.parametrize("name", sorted(KINDS.keys() - LOCAL))
def test_any_other_status_may_come_after_generation(name, status):
    assert outcome_of(caused(made(KINDS[name], status_code=400), *refused(status))) == "unknown"


@pytest.mark.parametrize("name", sorted(AFTER))
def test_a_filter_or_a_broken_stream_may_be_billed_even_if_the_status_refuses(name):
    assert outcome_of(caused(made(KINDS[name]), *refused(400))) == "unknown"


@pytest.mark.parametrize("below", UNSENT)
@pytest.mark.parametrize("name", ["APIConnectionError", "InternalServerError", "Timeout"])
def test_what_never_left_is_unbilled(name, below):
    links = UNSENT[below]()
    assert outcome_of(links[0] if len(links) == 1 else caused(*links)) == "unbilled"
    assert outcome_of(caused(made(KINDS[name]), *UNSENT[below]())) == "unbilled"


@pytest.mark.parametrize("below", SENT)
@pytest.mark.parametrize("name", ["APIConnectionError", "InternalServerError", "Timeout", "RateLimitError"])
def test_what_may_have_arrived_is_unknown(name, below):
    assert outcome_of(caused(made(KINDS[name], status_code=429), *SENT[below]())) == "unknown"


@pytest.mark.parametrize(
    "error", [None, asyncio.CancelledError(), TimeoutError(), GeneratorExit(), KeyError("x")], ids=repr
)
def test_anything_unrecognised_is_unknown(error):
    assert outcome_of(error) == "unknown"


def test_the_error_of_the_attempt_before_proves_nothing_about_this_one():
    """Python chains the errors of a retry to the one that is being handled while it runs."""
    first = caused(made(KINDS["RateLimitError"]), *refused(429))
    second = caused(made(KINDS["RateLimitError"], status_code=429), Exception("an error in a 200"))
    second.__cause__.__context__ = first
    assert outcome_of(second) == "unbilled"
    assert outcome_of(second, earlier=id(first)) == "unknown"


def test_errors_that_cause_each_other_end():
    one, other = RuntimeError(), RuntimeError()
    one.__cause__, other.__cause__ = other, one
    assert outcome_of(one) == "unknown"


def test_a_response_that_litellm_made_up_is_no_proof():
    error = litellm.exceptions.RateLimitError("x", "openai", "m", response=httpx.Response(429, request=REQUEST))
    assert outcome_of(error) == "unknown"
    assert outcome_of(litellm.exceptions.AuthenticationError("x", "openai", "m")) == "unknown"
