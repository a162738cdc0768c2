"""A connection that breaks after the request was read: under a hard limit nothing is sent again unreserved."""

import functools
import inspect
import json
import socket
import struct
import threading
from contextlib import contextmanager

import httpx
import litellm
import openai
import pytest
import respx

from support.groups import HI, fitted, llms
from support.providers import deployment
from wiserouter import Budget
from wiserouter_litellm import attach

SLOW = pytest.mark.slow
BUDGETS = {"hard": Budget(10.0, 100, limit="hard"), "expected": Budget(10.0, 100)}


class Breaking:
    """A provider that reads each request, and bills it, and then resets the connection or closes it."""

    def __init__(self, *, resets: bool) -> None:
        self.billed, self._resets = 0, resets
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                if _read(connection):
                    self.billed += 1
                if self._resets:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self):
        self._listener.close()


def _read(connection):
    """Read one request; return False if none comes."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(65_536)):
            return False
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line.lower() for line in head.split(b"\r\n")]
    length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65_536)
    return True


@contextmanager
def breaking(monkeypatch, transport):
    """Serve a provider whose connections break as those after which LiteLLM's client on a transport sends again."""
    monkeypatch.setattr(litellm, "disable_aiohttp_transport", transport == "httpx")
    litellm.in_memory_llm_clients_cache.flush_cache()
    provider = Breaking(resets=transport == "aiohttp")
    yield provider
    provider.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("limit", ["hard", pytest.param("expected", marks=SLOW)])
@pytest.mark.parametrize("transport", ["aiohttp", "httpx"])
@pytest.mark.parametrize(
    "kind", ["mistral", "deepinfra", *(pytest.param(kind, marks=SLOW) for kind in ("anthropic", "openai"))]
)
async def test_each_request_that_reaches_the_provider_is_reserved_under_a_hard_limit(
    monkeypatch, settled, kind, transport, limit, stream
):
    with breaking(monkeypatch, transport) as provider:
        rows = [
            deployment(name, url=provider.url, model=f"{kind}/{name}", max_retries=0) for name in ("small", "large")
        ]
        router, litellm_router = fitted(), llms(*rows)
        attach(litellm_router, "wise", router=router, budget=BUDGETS[limit])
        with pytest.raises(openai.APIError):  # of a stream, perhaps later
            answer = await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60, stream=stream)
            if stream:
                [chunk async for chunk in answer]
        await settled(lambda: router.status().in_flight == 0)
        status = router.status()
    assert (status.charged, status.released) == (0, 0)
    if limit == "hard":
        assert provider.billed == status.presumed == 1
    else:
        assert provider.billed >= status.presumed == 1


@pytest.mark.parametrize("instrumented", [False, True])
def test_a_synchronous_request_is_sent_once_under_a_hard_limit(monkeypatch, instrumented):
    if instrumented:  # the method was replaced by somebody else, too, before any hard budget
        options = openai._models.FinalRequestOptions
        method = inspect.unwrap(options.get_max_retries)

        @functools.wraps(method)
        def traced(*arguments):
            return method(*arguments)

        monkeypatch.setattr(options, "get_max_retries", traced)
    with breaking(monkeypatch, "httpx") as provider:
        rows = [deployment(name, url=provider.url, model=f"deepinfra/{name}") for name in ("small", "large")]
        litellm_router = llms(*rows)
        callback = attach(litellm_router, "wise", router=fitted(), budget=BUDGETS["hard"])
        with pytest.raises(openai.APIError):
            litellm_router.completion(model="wise", messages=HI, max_tokens=60)
        assert provider.billed == 1
        assert not callback.attempts
        with pytest.raises(openai.APIError):  # of a program's own client, which is not told to send once
            client = openai.OpenAI(base_url=provider.url, api_key="k", max_retries=1)
            client.chat.completions.create(model="small", messages=HI)
        assert provider.billed == 3


@pytest.mark.parametrize("limit", BUDGETS)
def test_a_synchronous_response_is_retried_by_litellm_itself_only_without_a_hard_limit(respx_mock, limit):
    respx_mock.post().respond(500, json={"error": {"message": "out of order"}})
    router, litellm_router = fitted(), llms(*(deployment(name, num_retries=2) for name in ("small", "large")))
    attach(litellm_router, "wise", router=router, budget=BUDGETS[limit])
    with pytest.raises(openai.APIError):
        litellm_router.responses(model="wise", input="hello", max_output_tokens=60)
    assert len(respx_mock.calls) == {"hard": 1, "expected": 3}[limit]
    assert router.status().presumed == 1


async def test_a_client_of_the_program_sends_again_once_the_answer_has_come(provider):
    litellm_router = llms()
    callback = attach(litellm_router, "wise", router=fitted(), budget=BUDGETS["hard"])
    await litellm_router.acompletion(model="wise", messages=HI, max_tokens=60)
    options = openai._models.FinalRequestOptions.construct(method="post", url="/", max_retries=2)
    assert (len(callback.attempts), options.get_max_retries(0)) == (1, 2)  # LiteLLM has yet to report it


GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 6_010, "candidatesTokenCount": 100, "totalTokenCount": 6_110},
}
MARKED = [{"type": "text", "text": "word " * 4_000, "cache_control": {"type": "ephemeral", "ttl": "720h"}}]


def stores(request):
    """Answer as Gemini does, whose storage costs by the hour."""
    return httpx.Response(200, json={"name": "cachedContents/1"} if "cachedContents" in request.url.path else GEMINI)


@pytest.mark.parametrize("limit", BUDGETS)
@pytest.mark.parametrize("surface", ["chat", "messages", "synchronous"])
async def test_gemini_stores_no_messages_under_a_hard_limit(settled, surface, limit):
    rows = [deployment(name, url=None, model="gemini/gemini-2.5-pro") for name in ("small", "large")]
    router, llm = fitted(), llms(*rows)
    attach(llm, "wise", router=router, budget=BUDGETS[limit])
    with respx.mock() as gemini:
        gemini.route(host="generativelanguage.googleapis.com").mock(side_effect=stores)
        if surface == "messages":
            await llm.aanthropic_messages(model="wise", messages=HI, system=MARKED, max_tokens=100)
        else:
            call = {"model": "wise", "messages": [{"role": "system", "content": MARKED}, *HI], "max_tokens": 100}
            llm.completion(**call) if surface == "synchronous" else await llm.acompletion(**call)
        await settled(lambda: router.status().in_flight == 0)
        sent = [json.loads(call.request.content) for call in gemini.calls if call.request.method == "POST"]
    assert [MARKED[0]["text"] in json.dumps(body) for body in sent] == ([True] if limit == "hard" else [True, False])
