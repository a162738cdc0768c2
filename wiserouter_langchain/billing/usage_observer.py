"""The model runs of one call: a callback below it observes every start, end, error and partial stream."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from types import FrameType
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage, BaseMessage, BaseMessageChunk
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.rate_limiters import BaseRateLimiter
from pydantic import ValidationError

_START = "on_chat_model_start"
"""The method in which LangChain tells callbacks of a run, before its request is sent."""

_PART = "on_llm_new_token"
"""The method in which LangChain tells callbacks of a part of an answer."""

_SENDING = frozenset({"_generate", "_agenerate", "_stream", "_astream"})
"""The methods in which a chat model sends its requests: what fails within them may follow one that was sent."""

_WRITES_REQUEST = frozenset(
    {
        *("_get_request_payload", "_create_message_dicts", "_chat_params", "_prepare_request"),
        *("_messages_to_bedrock", "_converse_params"),
    }
)
"""The functions in which chat models write a request from messages and arguments: those of OpenAI and Anthropic; of
Mistral, Groq, OpenRouter and LiteLLM; of Ollama; of Google; of Bedrock."""

_PARSED = {"parse_chat_completion": "chat_completion", "parse_response": "response"}
"""The functions in which OpenAI's client parses an answer, and their names of it."""


class ModelRun(NamedTuple):
    """A model run that ended.

    Attributes
    ----------
    message : BaseMessage or None
        The answer, or the part of it that arrived; None where nothing did.
    error : BaseException or None
        What ended the run before its answer was complete.
    took_s : float, seconds
        The time from its start to its end, without that of the run whose answer it passes on.
    passes_on : bool
        Whether its answer is that of another run, which a chat model makes within its own: the other one is billed.
    unsent : bool
        Whether it ended before its request was sent: while it waited for its rate limiter, or as that was written.
    """

    message: BaseMessage | None
    error: BaseException | None = None
    took_s: float = 0.0
    passes_on: bool = False
    unsent: bool = False


def _ignore(event: object) -> None:
    """Do nothing at the start or end of a run."""


@dataclass(eq=False, repr=False)
class UsageObserver(BaseCallbackHandler):
    """A callback that collects the model runs below one call of the router; it never raises.

    Attributes
    ----------
    started : int
        The number of runs that began.
    runs : list of ModelRun
        The runs that ended.
    on_start : callable of (UUID) -> None
        Called when a run begins.
    on_end : callable of (BaseException or None) -> None
        Called when a run ends: where the caller reads the model's own stream, nothing else reports its end.
    now_s : callable
        The clock, in seconds.
    """

    run_inline = True  # no thread hop per event on the asynchronous path
    ignore_chat_model = True  # a `StartObserver` reports the runs that begin

    started: int = 0
    runs: list[ModelRun] = field(default_factory=list)
    on_start: Callable[[UUID], object] = _ignore
    on_end: Callable[[BaseException | None], object] = _ignore
    now_s: Callable[[], float] = time.perf_counter
    _started_s: dict[UUID, float] = field(default_factory=dict)
    _ended_before: dict[UUID, int] = field(default_factory=dict)
    _ended: dict[UUID, int] = field(default_factory=dict)
    _streamed: set[UUID] = field(default_factory=set)
    _reports: dict[UUID, BaseMessage] = field(default_factory=dict)
    _refuses_part: bool = False
    _made_s: float = field(default_factory=time.perf_counter)

    @property
    def has_answer(self) -> bool:
        """True if a run brought an answer or a part of one, which a callback may have refused, or may still do so."""
        ended = any(run.message is not None or run.error is None for run in self.runs)
        return self._refuses_part or ended or self.started > len(self.runs)

    @property
    def has_ended(self) -> bool:
        """True if a run began, and all that began have ended."""
        return 0 < self.started == len(self.runs)

    @property
    def answer(self) -> BaseMessage | None:
        """The answer of the last run, or the part of it that arrived."""
        return self.runs[-1].message if self.runs else None

    def add_unseen(self, output: object) -> None:
        """Record an answer where no run began: a model that implements `invoke` itself need not report its runs.

        Parameters
        ----------
        output : object
            The answer; its bill is unknown where it is no whole message, such as the last chunk of a stream.
        """
        if self.started or self.runs or output is None:
            return
        message = output.get("raw") if isinstance(output, dict) else output
        whole = message if isinstance(message, BaseMessage) and not isinstance(message, BaseMessageChunk) else None
        self.started = 1
        self.runs.append(ModelRun(whole, took_s=self.now_s() - self._made_s))

    def end_reported(self) -> None:
        """Record the streams whose usage has arrived, but not their end: a parser that raises leaves them open."""
        for run_id in self._reports.keys() & self._started_s.keys():
            self._add(run_id, self._reports[run_id], GeneratorExit())

    def take_back_start(self, error: BaseException) -> None:
        """Take back a run that ended before its request was sent: refused by a callback, or in its rate limiter."""
        if self.started > len(self.runs) and _ends_unsent(error):
            self.started -= 1

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report the run."""
        self.started += 1
        self._started_s[run_id] = self.now_s()
        self._ended_before[run_id] = len(self.runs)
        self.on_start(run_id)

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Note that the run streams: its answer comes from no cache; and keep the part that brings its usage."""
        self._streamed.add(run_id)
        part = with_stated_usage(getattr(kwargs.get("chunk"), "message", None))
        if getattr(part, "usage_metadata", None):
            before = self._reports.get(run_id)
            self._reports[run_id] = part if before is None else before + part  # type: ignore[assignment]

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the answer."""
        message = _message(response)
        if message is not None and (run_id in self._streamed or _is_generated(message, response, run_id)):
            message = without_cache_report(message)
        elif message is not None and _is_bare(message):
            message = with_cache_report(message)
        self._add(run_id, message)
        self.on_end(None)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the part of the answer that came before the error, or that the error holds."""
        message = _message(kwargs.get("response"))
        self._refuses_part = self._refuses_part or any(name == _PART for name in _methods(error))
        self._add(run_id, _unparsed(error) if message is None or _is_empty(message) else message, error)
        self.on_end(error)

    def _add(self, run_id: UUID, message: BaseMessage | None, error: BaseException | None = None) -> None:
        """Record a run that ended; of one that ends twice, as where ChatBedrock reports an error itself, the answer."""
        at = self._ended.setdefault(run_id, len(self.runs))
        if at < len(self.runs) and message is None:
            return
        message = with_stated_usage(message)
        took_s = self._took_s(run_id)
        within = self.runs[self._ended_before.pop(run_id, len(self.runs)) :]
        inner = [run for run in within if message is not None and _is_billed_answer(run.message, message.id)]
        took_s = max(took_s - sum(run.took_s for run in inner), 0.0)
        unsent = error is not None and message is None and _ends_unsent(error)
        self.runs[at : at + 1] = [ModelRun(message, error, took_s, passes_on=bool(inner), unsent=unsent)]

    def _took_s(self, run_id: UUID) -> float:
        now_s = self.now_s()
        return now_s - self._started_s.pop(run_id, now_s)


class StartObserver(BaseCallbackHandler):
    """A callback that reports a run to its observer, once no callback before it has refused the run."""

    run_inline = True

    def __init__(self, observer: UsageObserver) -> None:
        self._observer = observer

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report the run."""
        self._observer.on_chat_model_start(serialized, messages, run_id=run_id)


def observe(callbacks: BaseCallbackManager, observer: UsageObserver) -> None:
    """Add an observer to the callbacks of a call: before those of the caller, each of which may raise on an answer."""
    callbacks.add_handler(StartObserver(observer), inherit=True)
    for handlers in (callbacks.handlers, callbacks.inheritable_handlers):
        handlers.insert(0, observer)


def _ends_unsent(error: BaseException) -> bool:
    """Return True if an error comes from the start of a run, its rate limiter, or the writing of its request."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    before = takewhile(lambda frame: frame.f_code.co_name not in _SENDING, frames)
    waits = any(
        frame.f_code.co_name == _START or isinstance(frame.f_locals.get("self"), BaseRateLimiter) for frame in before
    )
    return waits or _wrote_request(frames)


def _wrote_request(frames: Sequence[FrameType]) -> bool:
    """Return True if an error comes from the writing of the run's own request: one within it may follow others."""
    own = [frame for frame in frames if frame.f_code.co_name in _SENDING | _WRITES_REQUEST]
    models = {id(frame.f_locals["self"]) for frame in own if "self" in frame.f_locals}
    return len(models) == 1 and any(frame.f_code.co_name in _WRITES_REQUEST for frame in own)


def _methods(error: BaseException) -> Iterator[str]:
    """Return the names of the methods that an error came through."""
    return (frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__))


def _message(response: LLMResult | None) -> BaseMessage | None:
    generations = response.generations if response is not None else []
    first = generations[0][0] if generations and generations[0] else None
    return first.message if isinstance(first, ChatGeneration) else None


def _unparsed(error: BaseException) -> BaseMessage | None:
    """Return the answer that OpenAI's client did not parse; None in any other error."""
    answer = _held_answer(error)
    if answer is None or not answer.usage:
        return None
    if choices := getattr(answer, "choices", None):
        text, reason = choices[0].message.content, choices[0].finish_reason
    else:
        text, reason = getattr(answer, "output_text", ""), getattr(answer, "status", None)
    stated = {"finish_reason": reason or "stop", "token_usage": answer.usage.model_dump()}
    return AIMessage(text or "", response_metadata=stated)


def _held_answer(error: BaseException) -> Any:
    """Return the answer behind an error of OpenAI's client: one that ended at its limit, or is of another schema."""
    held = getattr(error, "completion", None)
    if held is None and isinstance(error, ValidationError):
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        parsers = [frame for frame in frames if frame.f_code.co_name in _PARSED]
        held = next((frame.f_locals.get(_PARSED[frame.f_code.co_name]) for frame in parsers), None)
    return held if hasattr(held, "usage") else None


def with_stated_usage(message: BaseMessage | None) -> BaseMessage | None:
    """Return an answer with the usage that its metadata alone states.

    langchain-openai leaves it there in structured streams of servers that name the role in each part, such as Ollama.
    One without a total is not in OpenAI's format: Anthropic's leaves cached tokens out of the input.

    Examples
    --------
    >>> from langchain_core.messages import AIMessage
    >>> stated = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    >>> with_stated_usage(AIMessage("hi", response_metadata={"token_usage": stated})).usage_metadata["input_tokens"]
    3
    """
    usage = None if message is None else message.response_metadata.get("token_usage")
    if message is None or not isinstance(usage, Mapping) or getattr(message, "usage_metadata", None):
        return message
    if not isinstance(usage.get("total_tokens"), int):
        return message
    sent, made = ("prompt", "completion") if "prompt_tokens" in usage else ("input", "output")
    details = (usage.get(f"{sent}_tokens_details"), usage.get(f"{made}_tokens_details"))
    read, written = (one if isinstance(one, Mapping) else {} for one in details)
    counts = {
        "input_tokens": usage.get(f"{sent}_tokens") or 0,
        "output_tokens": usage.get(f"{made}_tokens") or 0,
        "total_tokens": usage["total_tokens"],
        "input_token_details": {
            "cache_read": read.get("cached_tokens") or 0,
            "cache_creation": read.get("cache_write_tokens") or 0,
        },
        "output_token_details": {"reasoning": written.get("reasoning_tokens") or 0},
    }
    return message.model_copy(update={"usage_metadata": counts})


def _is_generated(message: BaseMessage, response: LLMResult, run_id: UUID) -> bool:
    """Return True if a run has generated its answer itself: the answer has the id of the run, or further output.

    An answer from a cache has the id that the billed run or its provider gave it, and no output besides its message.
    """
    return bool(response.llm_output) or str(run_id) in str(message.id)


def _is_billed_answer(message: BaseMessage | None, name: str | None) -> bool:
    """Return True if a message has a name, and comes from no cache."""
    return message is not None and bool(name) and message.id == name and not _is_cached(message)


def _is_cached(message: BaseMessage) -> bool:
    usage = getattr(message, "usage_metadata", None)
    return isinstance(usage, dict) and usage.get("total_cost") == 0


def _is_bare(message: BaseMessage) -> bool:
    """Return True if an answer has no more than content: a run names what it generates, a cache of texts cannot."""
    return message.id is None and not getattr(message, "usage_metadata", None) and not message.response_metadata


def with_cache_report(message: BaseMessage) -> BaseMessage:
    """Return an answer from a cache that keeps texts only, with the cost of 0 that LangChain writes into any other.

    Examples
    --------
    >>> from langchain_core.messages import AIMessage
    >>> with_cache_report(AIMessage("hi")).usage_metadata
    {'total_cost': 0}
    """
    return message.model_copy(update={"usage_metadata": {"total_cost": 0}})


def without_cache_report(message: BaseMessage) -> BaseMessage:
    """Return a generated answer without the cost of 0 that LangChain writes into answers from a cache.

    A cache in memory holds the answer of a billed call itself. Another call that finds it there before the billed one
    has ended marks the one answer that both have.

    Examples
    --------
    >>> from langchain_core.messages import AIMessage
    >>> usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4, "total_cost": 0}
    >>> without_cache_report(AIMessage("hi", usage_metadata=usage)).usage_metadata
    {'input_tokens': 3, 'output_tokens': 1, 'total_tokens': 4}
    """
    if not _is_cached(message):
        return message
    usage = getattr(message, "usage_metadata", None) or {}
    counted = {name: value for name, value in usage.items() if name != "total_cost"}
    return message.model_copy(update={"usage_metadata": counted or None})


def _is_empty(message: BaseMessage) -> bool:
    """Return True if a run broke off before its answer began: LangChain puts the provider's error into a message."""
    content = message.text or getattr(message, "tool_call_chunks", None) or getattr(message, "tool_calls", None)
    return not content and not getattr(message, "usage_metadata", None)
