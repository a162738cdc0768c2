"""The published schemas of batch files: types of the SDKs of OpenAI and Anthropic, and models of Gemini's reference."""

from collections.abc import Iterator
from typing import Literal

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from anthropic.types.messages import MessageBatchIndividualResponse
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

OPENAI_BODY = TypeAdapter(CompletionCreateParamsNonStreaming)
ANTHROPIC_PARAMS = TypeAdapter(MessageCreateParamsNonStreaming)
ANTHROPIC_RESULT = TypeAdapter(MessageBatchIndividualResponse)


class Strict(BaseModel):
    """A model without other fields."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Snake(Strict):
    """The same, with names as they are written here."""

    model_config = ConfigDict(alias_generator=None)


class OpenAILine(Snake):
    """https://platform.openai.com/docs/api-reference/batch/request-input"""

    custom_id: str
    method: Literal["POST"]
    url: Literal["/v1/chat/completions"]
    body: dict


class OpenAIResponse(Snake):
    """The `response` of https://platform.openai.com/docs/api-reference/batch/request-output"""

    status_code: int
    request_id: str
    body: dict


class OpenAIError(Snake):
    """The `error` of the same."""

    code: str
    message: str


class OpenAIResult(Snake):
    """https://platform.openai.com/docs/api-reference/batch/request-output"""

    id: str
    custom_id: str
    response: OpenAIResponse | None
    error: OpenAIError | None


class AnthropicEntry(Snake):
    """An entry of `requests`: https://docs.anthropic.com/en/api/creating-message-batches"""

    custom_id: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$")
    params: dict


class AnthropicFile(Snake):
    """The body of the same request."""

    requests: list[AnthropicEntry]


class Blob(Strict):
    """https://ai.google.dev/api/caching#Blob"""

    mime_type: str
    data: str


class Part(Strict):
    """https://ai.google.dev/api/caching#Part"""

    text: str | None = None
    inline_data: Blob | None = None


class Content(Strict):
    """https://ai.google.dev/api/caching#Content"""

    role: Literal["user", "model"] | None = None
    parts: list[Part] = Field(min_length=1)


class GenerationConfig(Strict):
    """The fields that are used of https://ai.google.dev/api/generate-content#generationconfig"""

    stop_sequences: list[str] | None = Field(default=None, max_length=5)
    max_output_tokens: int | None = None
    temperature: float | None = Field(default=None, ge=0.0, le=2.0)
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None


class GenerateContentRequest(Strict):
    """The fields that are used of https://ai.google.dev/api/generate-content#request-body"""

    contents: list[Content] = Field(min_length=1)
    system_instruction: Content | None = None
    generation_config: GenerationConfig | None = None


class GeminiLine(Strict):
    """A line of https://ai.google.dev/gemini-api/docs/batch-api#input-file"""

    key: str
    request: GenerateContentRequest


def check_openai_line(line):
    """Validate a line of an OpenAI batch file."""
    OpenAILine.model_validate(line)
    exhausted(OPENAI_BODY.validate_python(line["body"]))
    assert set(line["body"]) <= set(CompletionCreateParamsNonStreaming.__annotations__) | base_keys()


def base_keys():
    """Return the names of the parameters that streamed calls also have."""
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase

    return set(CompletionCreateParamsBase.__annotations__)


def check_anthropic_file(content):
    """Validate the body of a request for a message batch."""
    for entry in AnthropicFile.model_validate(content).requests:
        exhausted(ANTHROPIC_PARAMS.validate_python(entry.params))
        from anthropic.types.message_create_params import MessageCreateParamsBase

        assert set(entry.params) <= set(MessageCreateParamsBase.__annotations__)


def check_gemini_line(line):
    """Validate a line of a Gemini batch file."""
    GeminiLine.model_validate(line)


def check_openai_result(line):
    """Validate a line of an output or error file of OpenAI."""
    found = OpenAIResult.model_validate(line)
    if found.response is not None and found.response.status_code == 200:
        ChatCompletion.model_validate(found.response.body)


def exhausted(value):
    """Run through all iterables, which pydantic validates only then."""
    if isinstance(value, dict):
        for one in value.values():
            exhausted(one)
    elif isinstance(value, list | Iterator) or type(value).__name__ == "ValidatorIterator":
        for one in value:
            exhausted(one)
