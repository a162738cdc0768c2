"""One call as adapters describe it: the question, the text that is billed as input, and the limits of the answer.

Each adapter parses the requests of its framework into a `CallRequest`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

from wiserouter.pricing.tokens import SHORT_TEXT_CHARS, count_tokens
from wiserouter.routing.keyed_draws import context_key
from wiserouter.types import NO_CONTEXT

__all__ = ["FRAME_TOKENS", "SHORT_TEXT_CHARS", "TOOLS_TOKENS", "CallRequest", "DrawBy", "template_tokens"]

FRAME_TOKENS = 8
"""A generous bound on what chat formats add per message, and once for the reply."""
TOOLS_TOKENS = 1_000
"""A generous bound on what providers add to the prompt where tools are given."""

_TEMPLATES = ((re.compile("grok", re.I), 1_000), (re.compile("gpt-oss|llama|qwen|granite", re.I), 100))
"""Models with a text of their own in every prompt, and generous bounds on its tokens: Grok 4.1 states 663 tokens for a
prompt of "Who are you?", and the templates of the others begin with a line or two on the model and the date."""

DrawBy = Literal["request", "question", "context"]
"""What calls that get the same model, where the plan mixes two, share: nothing, the question, or context and hour."""


@lru_cache(maxsize=1_000)
def template_tokens(model: str) -> int:
    """Return a bound on the tokens of the text that a model has in every prompt; 0 where none is known.

    Parameters
    ----------
    model : str
        The model's name, with or without its provider.

    Examples
    --------
    >>> [template_tokens(model) for model in ("xai/grok-4", "groq/openai/gpt-oss-120b", "gpt-4o")]
    [1000, 100, 0]
    """
    return next((tokens for names, tokens in _TEMPLATES if names.search(model)), 0)


class CallRequest(NamedTuple):
    """One call.

    Attributes
    ----------
    question : str
        The text by which the call is routed: what the person asks for (`question_of`).
    counted : str
        All text that is billed as input.
    overhead_tokens : int
        Tokens that the provider adds to that text.
    countable : bool
        Whether the text is the whole input: False with media, a stored conversation or a search.
    media : frozenset of str
        The media that the call brings, such as "image".
    tools, structured : bool
        Whether the model must call tools, and whether it must give a structured answer.
    output_tokens : int or None
        The limit of one answer; None where the call sets none.
    choices : int
        The number of answers asked for.
    tier : str
        The service tier asked for.
    limit_name : str
        The parameter that limits the output, as the interface of the call names it.
    informative : bool
        Whether the question says what is asked for.
    messages : int
        The number of its messages.

    Examples
    --------
    >>> CallRequest("hi", counted="hi", overhead_tokens=16).input_bound_tokens
    18
    """

    question: str
    counted: str
    overhead_tokens: int
    countable: bool = True
    media: frozenset[str] = frozenset()
    tools: bool = False
    structured: bool = False
    output_tokens: int | None = None
    choices: int = 1
    tier: str = ""
    limit_name: str = "max_tokens"
    informative: bool = True
    messages: int = 1

    def draw_key(
        self,
        draw_by: DrawBy,
        caller: str | None = None,
        context: int = NO_CONTEXT,
        clock: Callable[[], float] = time.time,
    ) -> str | None:
        """Return the key by which the model is drawn, as `WiseRouter.decide` takes it; None draws for this call alone.

        Parameters
        ----------
        draw_by : {"request", "question", "context"}
            Questions that differ in spaces or case are equal; one that says nothing has no key.
        caller : str, optional
            Tells equal questions of different callers apart.
        context : int, optional
            The context of the question; without one it has no key by context.
        clock : callable returning float, default time.time
            Seconds.

        Examples
        --------
        >>> CallRequest("Sort  a list", counted="", overhead_tokens=0).draw_key("question", "team-a")
        'team-a sort a list'
        >>> CallRequest("Sort a list", counted="", overhead_tokens=0).draw_key("context", context=3, clock=lambda: 7e3)
        'context 3 3600 1'
        """
        if draw_by == "context":
            return None if context == NO_CONTEXT else context_key(context, clock())
        if draw_by == "request" or not self.informative or not self.question:
            return None
        return " ".join([caller or "", *self.question.casefold().split()])

    @property
    def estimated_tokens(self) -> int:
        """The tokens of the text and of what chat formats add, but not the most that providers add for tools."""
        return count_tokens(self.counted).tokens + FRAME_TOKENS * (self.messages + 1)

    @property
    def input_bound_tokens(self) -> int:
        """An upper bound on the tokens of the text for every byte-level tokenizer: its bytes plus the overhead."""
        text = self.counted
        n_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return n_bytes + self.overhead_tokens
