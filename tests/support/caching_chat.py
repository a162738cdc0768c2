"""A chat model whose provider discounts prefixes that it has read, and bills each call in a ledger of its own."""

from __future__ import annotations

from threading import Lock
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from support.chat_stub import StubChat
from wiserouter import Price, Usage
from wiserouter.pricing.prices import cost_usd

MIN_CACHEABLE_TOKENS = 1_024
RATES = {
    "small": Price(3e-7, 1.2e-6, cache_read=3e-8),
    "large": Price(3e-6, 1.5e-5, cache_read=3e-7, cache_write=3.75e-6),
}


class Provider:
    """The provider of one model: its prices, what it has read, and what it is owed."""

    def __init__(self, price: Price) -> None:
        self.price, self.ledger_usd, self.calls, self.down = price, 0.0, 0, False
        self.cached_tokens = self.prompt_tokens = 0
        self._read: set[tuple[str, ...]] = set()
        self._lock = Lock()

    def bill(self, messages: list[Any], answer: str) -> dict[str, Any]:
        """Bill a call, and return its tokens as LangChain has them."""
        with self._lock:  # bills of several threads add up
            return self._billed(messages, answer)

    def _billed(self, messages: list[Any], answer: str) -> dict[str, Any]:
        texts = [f"{message.type} {message.text} {getattr(message, 'tool_calls', '')}" for message in messages]
        lengths = [len(message.text) for message in messages]  # a token for each character
        prompt = sum(lengths)
        known = max((n for n in range(len(texts) + 1) if tuple(texts[:n]) in self._read), default=0)
        read = sum(lengths[:known])
        read = read if read >= MIN_CACHEABLE_TOKENS else 0
        written = prompt - read if self.price.cache_write_usd > self.price.input else 0
        self._read |= {tuple(texts[:n]) for n in range(1, len(texts) + 1)}
        said = max(len(answer), 1)
        self.calls += 1
        self.cached_tokens += read
        self.prompt_tokens += prompt
        self.ledger_usd += cost_usd(self.price, Usage(prompt, said, cache_read_tokens=read, cache_write_tokens=written))
        details = {"cache_read": read, "cache_creation": written}
        counts = {"input_tokens": prompt, "output_tokens": said, "total_tokens": prompt + said}
        return {**counts, "input_token_details": details}


class CachingChat(StubChat):
    """Calls its first tool `steps` times for each question, then answers."""

    provider: Any = None
    steps: int = 0

    def _answer(self, messages: list[Any], **kw: Any) -> AIMessage:
        if self.provider.down:
            raise RuntimeError(f"{self.model} is down")
        asked = max(i for i, message in enumerate(messages) if isinstance(message, HumanMessage))
        done = sum(isinstance(message, ToolMessage) for message in messages[asked:])
        calls = self._calls([*messages[:asked], messages[asked]], kw.get("tools") or [], None)
        calls = calls if done < self.steps else []
        text = "" if calls else self.text
        metadata = {"model_name": self.model, "model_provider": "stub"}
        usage = self.provider.bill(messages, f"{text}{[call['args'] for call in calls]}")
        return AIMessage(text, tool_calls=calls, usage_metadata=usage, response_metadata=metadata)
