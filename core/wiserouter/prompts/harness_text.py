"""The text that programs add to what a person writes, and the person's part of a message without it.

Agents and editors send reminders, listings of files and outputs of commands as text of the user. The tables below hold
the tags, openings and headings by which they do so. Each message is read once from its start to its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

ASK_TAGS = frozenset(
    {"user_query", "user_request", "userrequest", "command-args", "pr_description", "issue_description"}
)
"""Tags around what the person asks for: where one stands, the text outside of it is the program's."""

OPENING_ASK_TAGS = frozenset({"task", "feedback", "answer", "user_message"})
"""The same for tags that people write too: they count at the start of a text."""

NOISE_TAGS = frozenset(
    {
        # reminders and instructions
        *("system-reminder", "system_reminder", "reminderinstructions", "user_instructions", "repository_instructions"),
        *("user-prompt-submit-hook", "permissions_instructions", "collaboration_mode", "turn_aborted"),
        # the environment
        *("environment_context", "environment_details", "environment_info", "workspace_info", "system_information"),
        *("runtime_information", "repository_info", "extra_info", "session_context", "user_info", "user_information"),
        *("project_layout", "git_status", "additional_data", "additional_metadata", "browser_state"),
        # files and editors
        *("uploaded_files", "attached_files", "attachments", "file_content", "folder_content"),
        *("open_and_recently_viewed_files", "editorcontext", "ide_opened_file", "ide_selection", "linter_errors"),
        "new-diagnostics",
        # commands and tools
        *("local-command-stdout", "local-command-stderr", "local-command-caveat", "bash-input", "bash-stdout"),
        *("bash-stderr", "command-name", "command-message", "user_shell_command", "task-notification"),
        *("tool_response", "tool_result", "function_results"),
    }
)
"""Tags around what a program adds; none that people write in their own prompts, such as `<instructions>`."""

OPENINGS = (
    *("observation:", "observation\n", "call id:", "execution result of [", "tool response:", "tool result:"),
    *("environment reminder:", "exitcode:", "<returncode>", '{"returncode"', "the last command <command>"),
    *("please always provide exactly one action", "please continue working on the task on whatever approach"),
    *("your command ran successfully and did not produce any output", "[error] you did not use a tool"),
    *("[request interrupted by user", "caveat: the messages below were generated", "# agents.md instructions for"),
    *("i have *added these files to the chat*", "here are summaries of some files present in my git"),
    *("here are some read only files", "i ran this command:\n", "the llm did not conform to the"),
)
"""The first words, in lower case, of texts that are a program's as a whole."""

_LONGEST_OPENING = max(map(len, OPENINGS))
_RESULT = re.compile(r"\[[^\]\n]{1,200}\] Result:|Called the \w{1,50} tool with the following input")
_RESULT_HEADER = re.compile(rf"(?:{_RESULT.pattern})[^\n]*")
"""A text that is only the heading of the next one, which is the result of a tool."""

_PROMPT = "bash-$"
"""The last words of an observation that ends with the prompt of a shell."""

_SECTIONS = (
    ("## My request for Codex:", None),
    ("ISSUE:", "INSTRUCTIONS:"),
)
"""Headings between which the person's part stands."""

_QUESTION = "Question:"
_PREVIOUS_WORK = "This was your previous work"
_STEPS = ("Thought:", "Action:", "Observation:", _PREVIOUS_WORK)
"""The lines at which a question ends and the record of an agent's steps begins."""

_TAG = re.compile(r"<([A-Za-z][\w-]{2,40}+)(?:\s[^<>]*+)?>")


class _Block(NamedTuple):
    """A tag, the text in it, and its end."""

    name: str
    start: int
    inner_start: int
    inner_end: int
    end: int


def person_texts(texts: Sequence[str]) -> list[str]:
    """Return the parts of a message that a person wrote, each without what a program added.

    Examples
    --------
    >>> person_texts(["[read_file for 'a.py'] Result:", "import re", "use the other parser"])
    ['use the other parser']
    """
    before = ["", *texts][:-1]
    kept = (person_text(text) for text, last in zip(texts, before, strict=True) if not _is_heading(last))
    return [text for text in kept if text]


def person_text(text: str) -> str:
    """Return the part of a text that a person wrote; empty where a program wrote all of it.

    Examples
    --------
    >>> person_text("fix the test <system-reminder>be brief</system-reminder>")
    'fix the test'
    >>> person_text("Observation: 3 files")
    ''
    """
    text = text.strip()
    if _is_programs(text):
        return ""
    text = _section(text)
    if "<" in text:
        text = _untagged(text)
    return _before_steps(text).strip()


def _is_programs(text: str) -> bool:
    opening = text[:_LONGEST_OPENING].lower()
    return opening.startswith(OPENINGS) or text.endswith(_PROMPT) or _RESULT.match(text) is not None


def _is_heading(text: str) -> bool:
    return _RESULT_HEADER.fullmatch(text.strip()) is not None


def _section(text: str) -> str:
    """Return the section of the person, where a program has divided the text by headings."""
    for heading, next_heading in _SECTIONS:
        start = _line_at(text, heading)
        if start < 0:
            continue
        start += len(heading)
        end = -1 if next_heading is None else _line_at(text, next_heading, start)
        if next_heading is None or end >= 0:
            return text[start : None if end < 0 else end]
    return text


def _untagged(text: str) -> str:
    """Return the text between the tags of an ask, else the text without blocks of noise."""
    text = text.strip()
    blocks = [*_blocks(text, _ask_tags(text) | NOISE_TAGS)]
    asked = [text[block.inner_start : block.inner_end] for block in blocks if block.name not in NOISE_TAGS]
    return "\n".join(filter(None, map(_without_noise, asked))) or _without(text, blocks)


def _ask_tags(text: str) -> frozenset[str]:
    """Return the names of the tags that mark an ask in this text."""
    first = _TAG.match(text)
    return ASK_TAGS if first is None else ASK_TAGS | ({first[1].lower()} & OPENING_ASK_TAGS)


def _without_noise(text: str) -> str:
    return _without(text, _blocks(text, NOISE_TAGS))


def _without(text: str, blocks: Iterable[_Block]) -> str:
    kept, at = [], 0
    for block in blocks:
        kept.append(text[at : block.start])
        at = block.end
    return "\n".join(part for one in [*kept, text[at:]] if (part := one.strip()))


def _blocks(text: str, names: frozenset[str]) -> Iterator[_Block]:
    """Yield the outer blocks of these tags, in order; a tag that nothing closes is text."""
    at, unclosed = 0, set()
    while (tag := _TAG.search(text, at)) is not None:
        name, at = tag[1].lower(), tag.end()
        if name not in names or name in unclosed:
            continue
        end = _closing(name).search(text, at)
        if end is None:
            unclosed.add(name)
            continue
        at = end.end()
        yield _Block(name, tag.start(), tag.end(), end.start(), at)


@cache
def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{name}\s*>", re.IGNORECASE)


def _before_steps(text: str) -> str:
    """Return the question of an agent's prompt that records its steps in the same text."""
    if _line_at(text, "Observation:") < 0 and _line_at(text, _PREVIOUS_WORK) < 0:
        return text
    start = text.rfind(_QUESTION) + len(_QUESTION) if _line_at(text, _QUESTION) >= 0 else 0
    ends = [at for line in _STEPS if (at := _line_at(text, line, start)) >= 0]
    return text[start : min(ends, default=None)]


def _line_at(text: str, opening: str, start: int = 0) -> int:
    """Return the start of the first line that opens so; -1 where there is none."""
    if not start and text.startswith(opening):
        return 0
    at = text.find("\n" + opening, start)
    return at + 1 if at >= 0 else -1
