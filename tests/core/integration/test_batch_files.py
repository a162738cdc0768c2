import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from support.batch_schemas import (
    ANTHROPIC_RESULT,
    check_anthropic_file,
    check_gemini_line,
    check_openai_line,
    check_openai_result,
)
from wiserouter import Model, Price, Usage
from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.layouts import LAYOUTS, provider_of, result_of, write_files
from wiserouter.integration.batches.requests import BatchRequest, read_requests
from wiserouter.integration.batches.worst_cases import worst_cases_usd

PNG = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": PNG}}
MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
BODIES = [
    MESSAGES,
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "In French."}]},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}, IMAGE]},
            {"role": "assistant", "content": "Bonjour"},
            {"role": "user", "content": "Thanks"},
        ],
        "max_completion_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": "END",
        "n": 1,
    },
]


def lines(provider, model="m"):
    """Return requests as they are written; Anthropic takes no sampling parameters."""
    left = {"temperature", "top_p"} if provider == "anthropic" else set()
    bodies = [{name: value for name, value in body.items() if name not in left} for body in BODIES]
    return [LAYOUTS[provider].request(f"id{at}", model, body, 4_096) for at, body in enumerate(bodies)]


def test_requests_are_valid_by_the_published_schema_of_openai():
    for line in lines("openai"):
        check_openai_line(line)
    with pytest.raises(ValidationError):
        check_openai_line({**line, "body": {"model": "m", "messages": [{"role": "nobody"}]}})


def test_requests_are_valid_by_the_published_schema_of_anthropic():
    check_anthropic_file({"requests": lines("anthropic")})
    first, second = (line["params"] for line in lines("anthropic"))
    assert first["max_tokens"] == 4_096
    assert (second["max_tokens"], second["stop_sequences"]) == (50, ["END"])
    assert second["system"] == "Be brief.\n\nIn French."
    assert second["messages"][0]["content"][1]["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgo=",
    }
    with pytest.raises(ValidationError):
        check_anthropic_file({"requests": [{"custom_id": "a b", "params": first}]})
    with pytest.raises(ValidationError):
        check_anthropic_file({"requests": [{"custom_id": "a", "params": {"model": "m", **MESSAGES}}]})


def test_requests_are_valid_by_the_published_schema_of_gemini():
    for line in lines("gemini"):
        check_gemini_line(line)
    request = line["request"]
    assert [one["role"] for one in request["contents"]] == ["user", "model", "user"]
    assert request["generationConfig"] == {
        "maxOutputTokens": 50,
        "temperature": 0.5,
        "topP": 0.9,
        "stopSequences": ["END"],
    }
    with pytest.raises(ValidationError):
        check_gemini_line({**line, "request": {**request, "model": "m"}})


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "tool", "content": "4"}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        {**BODIES[0], "logprobs": True},
        {**BODIES[0], "n": 2},
    ],
)
def test_what_a_provider_cannot_be_asked_for_is_refused(provider, body):
    with pytest.raises(InvalidInput, match="cannot be written"):
        LAYOUTS[provider].request("a", "m", body, 100)


def openai_result(custom_id="a", status=200, code=None, usage=None):
    """Return a line as OpenAI documents it."""
    usage = usage or {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    message = {"role": "assistant", "content": "hi", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    answer = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m-2026",
        "choices": [choice],
        "usage": usage,
    }
    body = answer if status == 200 else {"error": {"message": "bad request", "type": "invalid_request_error"}}
    response = {"status_code": status, "request_id": "r", "body": body} if code is None else None
    error = None if code is None else {"code": code, "message": "not run"}
    return {"id": "batch_req_1", "custom_id": custom_id, "response": response, "error": error}


def anthropic_result(kind, **fields):
    return {"custom_id": "a", "result": {"type": kind, **fields}}


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 0},
}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}, "request_id": None}
GEMINI = {"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "cachedContentTokenCount": 4}


def test_lines_of_all_providers_and_outcomes_are_read():
    openai = [openai_result(), openai_result(status=400), openai_result(code="batch_expired")]
    openai.append(openai_result(code="batch_cancelled"))
    anthropic = [
        anthropic_result("succeeded", message=MESSAGE),
        anthropic_result("errored", error=OVERLOADED),
        anthropic_result("expired"),
        anthropic_result("canceled"),
    ]
    for line in openai:
        check_openai_result(line)
    for line in anthropic:
        ANTHROPIC_RESULT.validate_python(line)
    expected = ["succeeded", "errored", "expired", "canceled"]
    for one in (openai, anthropic):
        assert [result_of(line).outcome for line in one] == expected
    assert result_of(openai[0]).usage == Usage(9, 5)
    assert (result_of(openai[1]).error, result_of(openai[2]).error) == ("bad request", "not run")
    assert result_of(anthropic[0]).usage == Usage(99, 5, cache_read_tokens=90)
    assert result_of(anthropic[1]).error == "overloaded"
    found = result_of({"key": "a", "response": {"candidates": [], "usageMetadata": GEMINI}})
    assert found.usage == Usage(9, 12, cache_read_tokens=4, reasoning_tokens=7)
    assert result_of({"key": "a", "error": {"code": 13, "message": "internal"}}).outcome == "errored"


def test_lines_that_are_no_results_are_none():
    for line in [*lines("openai"), *lines("anthropic"), *lines("gemini"), {}, {"custom_id": "a"}]:
        assert result_of(line) is None


@pytest.mark.parametrize("provider", sorted(LAYOUTS))
def test_files_are_split_at_the_limits_of_requests_and_bytes(provider, tmp_path):
    requests = [LAYOUTS[provider].request(f"id{at}", "m", BODIES[0], 100) for at in range(10)]
    one = len(json.dumps(requests[0]).encode())
    for limits in ({"most_requests": 4}, {"most_bytes": 4 * (one + 3) + 30}):
        layout = LAYOUTS[provider]._replace(**limits)
        files = list(write_files(tmp_path, "m/x y", provider, requests, layout))
        assert sum(file.requests for file in files) == 10
        assert max(file.requests for file in files) <= 4
        read = []
        for file in files:
            assert file.file.startswith(f"{provider}-m-x-y-")
            content = (tmp_path / file.file).read_bytes()
            assert len(content) == file.bytes <= layout.most_bytes
            whole = provider == "anthropic"
            read += json.loads(content)["requests"] if whole else map(json.loads, content.splitlines())
        assert read == requests
    with pytest.raises(InvalidInput, match="must fit"):
        list(write_files(tmp_path, "m", provider, requests, layout._replace(most_bytes=one)))


def test_the_published_limits():
    assert {name: (one.most_requests, one.most_bytes) for name, one in LAYOUTS.items()} == {
        "openai": (50_000, 200_000_000),
        "anthropic": (100_000, 256_000_000),
        "gemini": (200_000, 2_000_000_000),
    }


def test_a_stated_provider_comes_before_the_one_of_the_name():
    assert provider_of("claude-on-my-server", {"claude-on-my-server": "openai"}) == "openai"
    with pytest.raises(InvalidInput, match="must be one of"):
        provider_of("m", {"m": "acme"})


def test_requests_are_read_in_all_their_forms(tmp_path):
    path = tmp_path / "prompts.jsonl"
    forms = [
        {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "x", **BODIES[0]}},
        {"id": 7, "prompt": "hi", "max_tokens": 3},
        {"messages": BODIES[0]["messages"], "model": "x"},
    ]
    path.write_text("\n\n".join(map(json.dumps, forms)), encoding="utf-8-sig")
    found = read_requests(path)
    assert [one.id for one in found] == ["a", "7", "5"]
    assert [one.text for one in found] == ["hi"] * 3
    assert [one.body for one in found] == [BODIES[0], {**BODIES[0], "max_tokens": 3}, BODIES[0]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "at least one"),
        ('{"prompt": "a"', "line 1 must be JSON"),
        ("[]", "must be an object"),
        ('{"id": 1, "prompt": "a"}\n{"id": 1, "prompt": "b"}', "unique"),
        ('{"prompt": ["a"]}', "must have a prompt"),
        ('{"custom_id": "a", "url": "/v1/embeddings", "body": {}}', "/v1/chat/completions"),
    ],
)
def test_files_that_are_no_batch_are_refused(tmp_path, text, why):
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=why):
        read_requests(path)


def test_the_worst_case_of_an_arm_counts_its_own_limit_for_each_answer():
    request = BatchRequest("a", {**MESSAGES, "max_tokens": 10, "n": 2})
    price = {"m": Price(0.0, 1e-6), "long": Price(0.0, 1e-6)}
    models = [Model("m"), Model("long", params={"max_completion_tokens": 50, "reasoning_effort": "high"}, family="m")]
    assert worst_cases_usd([request], models, price)[0].tolist() == pytest.approx([20e-6, 100e-6])
    searching = Model("searching", params={"web_search_options": {}}, family="m")
    with pytest.raises(InvalidInput, match=r"the parameter 'web_search_options' of 'searching'"):
        worst_cases_usd([request], [searching], {"searching": Price(0, 0)})


@given(st.text(max_size=200), st.integers(1, 500), st.integers(1, 4))
def test_no_byte_level_tokenizer_exceeds_the_worst_case(text, limit, choices):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": limit, "n": choices}
    most = worst_cases_usd([BatchRequest("a", body)], [Model("m")], {"m": Price(1e-6, 2e-6, cache_write=3e-6)})
    tokens = len(text.encode("utf-8", "surrogatepass")) + 16
    assert most[0, 0] >= 3e-6 * tokens + 2e-6 * limit * choices
