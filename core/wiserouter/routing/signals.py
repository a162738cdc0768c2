"""Certain failures as scores: rules that read an answer, or what follows it, and give it a 0.

A rule says that an answer has failed, never that one is good: silence is no score. Each has a name, is off unless it is
asked for, and scores as the source `rule:<name>`, so that a person's score comes before it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from threading import RLock
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.parallel.forks import held_at_fork
from wiserouter.routing.schema_fit import fits

RULES = {
    "invalid_tool_call": "the arguments of a tool call are no JSON object",
    "schema_error": "the answer does not fit the schema that was asked for",
    "content_filter": "a content filter ended the answer",
    "truncated": "the answer ended at the limit of its output",
    "empty_answer": "the answer has neither text nor a tool call nor a refusal nor another part",
    "tool_error": "the tool that the answer called reported an error",
    "loop_exhausted": "the agent ran into the limit of its steps",
    "regenerated": "the same caller sent the same prompt again within two minutes of the answer",
}
"""The rules by name, the most telling first."""

REGENERATED_S = 120.0
"""Longest time from an answer to the same prompt, in seconds."""

MOST_ANSWERS = 10_000
"""Most answers that are remembered, by prompt and by tool call."""

_TRUNCATED = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "MAX_TOKENS"})
_FILTERED = frozenset({"content_filter", "content_filtered", "SAFETY", "guardrail_intervened"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What the rules read of an answer.

    Attributes
    ----------
    text : str
        Its text.
    finish_reason : str
        Why it ended, as the provider says.
    tool_arguments : sequence of str or mapping
        The arguments of its tool calls, as text or parsed.
    refusal : bool
        Whether it is a refusal in a field of its own.
    response_format : mapping or None
        The format that was asked for, as in OpenAI's `response_format`.
    failed : sequence of str
        Rules that the caller knows to hold.
    other : bool
        Whether it has parts of another kind: an image, audio, a call of a tool that takes no JSON or that the provider
        runs.

    Examples
    --------
    >>> Answer("", finish_reason="stop").failures()
    ('empty_answer',)
    """

    text: str = ""
    finish_reason: str = ""
    tool_arguments: Sequence[Any] = ()
    refusal: bool = False
    response_format: Mapping[str, Any] | None = None
    failed: Sequence[str] = ()
    other: bool = False

    def failures(self) -> tuple[str, ...]:
        """Return the rules that hold, the most telling first."""
        holds = {
            "invalid_tool_call": not all(map(_is_object, self.tool_arguments)),
            "schema_error": self._misses_schema(),
            "content_filter": self.finish_reason in _FILTERED,
            "truncated": self.finish_reason in _TRUNCATED,
            "empty_answer": not (self.text.strip() or self.tool_arguments or self.refusal or self.other),
        }
        return tuple(name for name in RULES if holds.get(name) or name in self.failed)

    def _misses_schema(self) -> bool:
        asked = self.response_format
        is_final = self.text and not (self.refusal or self.tool_arguments or self.other)
        if asked is None or not is_final or asked.get("type") not in {"json_object", "json_schema"}:
            return False
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError):
            return True
        schema = (asked.get("json_schema") or {}).get("schema")
        return isinstance(schema, Mapping) and not fits(value, schema)


class Signals:
    """The rules that are on, and the answers that a later request may show to have failed.

    Parameters
    ----------
    rules : iterable of str
        Names of rules; "all" for every one.
    clock : callable returning float
        Seconds.

    Raises
    ------
    InvalidInput
        If a rule is unknown.

    Examples
    --------
    >>> import time
    >>> Signals(["truncated"], time.monotonic).failures(Answer("", finish_reason="length"))
    ('truncated',)
    """

    def __init__(self, rules: Iterable[str], clock: Callable[[], float]) -> None:
        asked = [rules] if isinstance(rules, str) else list(rules)
        self.rules = frozenset(RULES if asked == ["all"] else asked)
        for name in asked if asked != ["all"] else ():
            if name not in RULES:
                near = get_close_matches(str(name), RULES, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"the rules are {', '.join(RULES)}"
                raise InvalidInput(f"signals must be names of rules, got {name!r}: {hint}", value=name)
        self._clock, self._lock = clock, held_at_fork(RLock(), innermost=True)
        self._by_prompt: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._by_tool_call: OrderedDict[str, str] = OrderedDict()

    def failures(self, answer: Answer) -> tuple[str, ...]:
        """Return the rules that are on and hold."""
        return tuple(name for name in answer.failures() if name in self.rules)

    def answered(self, decision_id: str, prompt: str = "", tool_calls: Iterable[str] = ()) -> None:
        """Remember an answer by the key of its prompt, and by the ids of its tool calls."""
        with self._lock:
            if prompt and "regenerated" in self.rules:
                self._by_prompt[prompt] = decision_id, self._clock()
                _trim(self._by_prompt)
            if "tool_error" in self.rules:
                self._by_tool_call.update(dict.fromkeys(tool_calls, decision_id))
                _trim(self._by_tool_call)

    def regenerated(self, prompt: str) -> str | None:
        """Return the decision of the answer that the same prompt, now sent again, had a short time ago; once."""
        with self._lock:
            decision_id, at_s = self._by_prompt.pop(prompt, ("", 0.0))
        return decision_id if decision_id and self._clock() - at_s <= REGENERATED_S else None

    def caller_of_tool(self, tool_call: str) -> str | None:
        """Return the decision of the answer that called a tool which reports an error; once."""
        with self._lock:
            return self._by_tool_call.pop(tool_call, None)


def _is_object(arguments: object) -> bool:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return False
    return isinstance(arguments, Mapping)


def _trim(remembered: OrderedDict[str, Any]) -> None:
    while len(remembered) > MOST_ANSWERS:
        remembered.popitem(last=False)
