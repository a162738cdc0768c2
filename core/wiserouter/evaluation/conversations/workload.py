"""A workload of simulated conversations, and what a policy and a provider see of each of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from wiserouter.evaluation.conversations.provider_terms import ProviderTerms


class SimulatedCall(NamedTuple):
    """The next call of a conversation.

    Attributes
    ----------
    context : int
        The context of its own text.
    asks : bool
        Whether its text says what is asked for; a follow-up such as "yes, go on" does not.
    prompt_tokens : int
        Length of the prompt: the conversation so far.
    """

    context: int
    asks: bool
    prompt_tokens: int


class Answered(NamedTuple):
    """The outcome of a call.

    Attributes
    ----------
    output_tokens : int
        Billed tokens of the answer, hidden reasoning included.
    reward : float or None
        The score of this answer, as drawn; None where only the conversation as a whole has one.
    quality : float or None
        The mean of that score.
    """

    output_tokens: int
    reward: float | None = None
    quality: float | None = None


class Closing(NamedTuple):
    """The outcome of a conversation.

    Attributes
    ----------
    quality : float
        Sum of the expected rewards, over the scored units: the answers of a chat, or the one outcome of a run.
    reward : float
        The score of the conversation as a whole, as drawn.
    """

    quality: float
    reward: float


class Session(Protocol):
    """A conversation in progress."""

    @property
    def is_over(self) -> bool:
        """True after its last call."""
        ...

    @property
    def gap_s(self) -> float:
        """Seconds from the last call to the next one."""
        ...

    def next_call(self) -> SimulatedCall:
        """Return the next call."""
        ...

    def answer(self, model: int) -> Answered:
        """Let a model serve the next call."""
        ...

    def closing(self) -> Closing:
        """Return the outcome after the last call."""
        ...


class Script(Protocol):
    """All that is drawn in advance of a conversation, so that every policy meets the same one."""

    @property
    def key(self) -> str:
        """Its id."""
        ...

    @property
    def start_s(self) -> float:
        """The time of its first call."""
        ...

    def open(self) -> Session:
        """Return the conversation before its first call."""
        ...


class Workload(NamedTuple):
    """The conversations of one seed, and the models that may serve them.

    Attributes
    ----------
    terms : tuple of ProviderTerms
        The models.
    scripts : sequence of Script
        The conversations by time of their first call.
    n_contexts : int
        Number of contexts that texts are told apart by.
    shared_tokens : int
        Length of the system prompt that all conversations share.
    n_scored : int
        Number of scored units: answers of chats, or runs.
    """

    terms: tuple[ProviderTerms, ...]
    scripts: Sequence[Script]
    n_contexts: int
    shared_tokens: int
    n_scored: int
