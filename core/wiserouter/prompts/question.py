"""The question of a call: the text by which it is routed, which is the person's latest ask.

Reminders, listings of files, outputs of tools and short answers such as "yes, go on" do not say what is asked for. Of
an agent's call the question is thus the task, as long as the person does not ask for something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wiserouter.prompts.harness_text import person_texts
from wiserouter.prompts.short_answers import is_informative


class Message(NamedTuple):
    """One message as an adapter reads it.

    Attributes
    ----------
    role : str
        "user" for the person, or the program that speaks in the person's place.
    texts : sequence of str
        Its parts of text, without results of tools and media.
    """

    role: str
    texts: Sequence[str]

    @property
    def text(self) -> str:
        """All of its text."""
        return "\n".join(filter(None, self.texts))


class Question(NamedTuple):
    """The text by which a call is routed.

    Attributes
    ----------
    text : str
        What the person asks for, as the person wrote it.
    informative : bool
        False where no message says what is asked for.
    """

    text: str
    informative: bool


def question_of(messages: Sequence[Message]) -> Question:
    """Return the last text of the user that says what is asked for.

    Parameters
    ----------
    messages : sequence of Message
        The conversation, the oldest message first.

    Returns
    -------
    Question
        Where no message of the user says what is asked for: its last text of a person, else its last text, else the
        text of all messages.

    Examples
    --------
    >>> question_of([Message("user", ["sort a list"]), Message("assistant", ["How?"]), Message("user", ["ok, go on"])])
    Question(text='sort a list', informative=True)
    >>> question_of([Message("user", ["ok"])])
    Question(text='ok', informative=False)
    """
    last = ""
    for message in reversed(messages):
        if message.role != "user":
            continue
        text = "\n".join(person_texts(message.texts))
        if text and is_informative(text):
            return Question(text, informative=True)
        last = last or text
    if last:
        return Question(last, informative=False)
    return _without_person(messages)


def _without_person(messages: Sequence[Message]) -> Question:
    """Return the question of a call in which no person speaks."""
    of_user = next((text for one in reversed(messages) if one.role == "user" and (text := one.text)), "")
    if of_user:
        return Question(of_user, informative=False)
    text = "\n".join(filter(None, (message.text for message in messages)))
    return Question(text, is_informative(text))
