"""The text that settings bring into the input of a call: those of the call, those that are bound, and the model's own.

Whatever may hold a text of the caller's own counts. What no model reads is named (`limits.UNREAD`), so that settings
which are new to this list count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from wiserouter_langchain.requests.limits import UNREAD, UNREAD_ENDS

_MAY_HOLD_TEXT = (str, Mapping, list, tuple, type, BaseModel)


def read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a model may read: no numbers, flags or clients, and none that are known not to be read.

    Examples
    --------
    >>> read_settings({"temperature": 0.5, "stop": ["."], "logprobs": True, "response_format": {"type": "json_object"}})
    {'response_format': {'type': 'json_object'}}
    """
    return {
        name: value
        for name, value in settings.items()
        if isinstance(value, _MAY_HOLD_TEXT) and value and name not in UNREAD and not name.endswith(UNREAD_ENDS)
    }


def sent_texts(settings: Mapping[str, Any]) -> list[str]:
    """Return the texts that settings become in a request.

    Examples
    --------
    >>> sent_texts({"guided_grammar": "root ::= [0-9]", "guided_choice": ["yes", "no"], "seed": 1})
    ['root ::= [0-9]', 'yes', 'no']
    """
    values = read_settings(settings).values()
    return [sent_text(each) for value in values for each in (value if isinstance(value, list | tuple) else [value])]


def has_schemas(settings: Mapping[str, Any]) -> bool:
    """Return True if a setting that a model may read holds an object or a class, to which a provider may add text.

    Examples
    --------
    >>> has_schemas({"guided_choice": ["yes", "no"]}), has_schemas({"tools": [{"name": "look"}]})
    (False, True)
    """
    values = read_settings(settings).values()
    each = (part for value in values for part in (value if isinstance(value, list | tuple) else [value]))
    return not all(isinstance(part, str) for part in each)


def sent_text(value: object) -> str:
    """Return the text of a setting or a tool: the longest JSON that it becomes, since each model has its own format.

    Examples
    --------
    >>> sent_text({"name": "look", "input_examples": [{"path": "/src"}]})
    '{"name": "look", "input_examples": [{"path": "/src"}]}'
    """
    if isinstance(value, str):
        return value
    forms = [value, _described(value)] if isinstance(value, Mapping) else [_described(value)]
    return max(map(_json, forms), key=len)


def _described(value: Any) -> object:
    """Return the schema that a class, a tool or a function becomes in a request; the text of anything else."""
    try:
        schema = convert_to_openai_tool(value)
    except Exception:  # what LangChain cannot convert is sent as it is, or refused by the model
        return value if isinstance(value, Mapping) else str(value)
    if isinstance(value, BaseTool):
        return [schema, value.extras]
    own = value.model_json_schema() if isinstance(value, type) and issubclass(value, BaseModel) else {}
    return max(schema, own, key=lambda each: len(_json(each)))


def _json(value: object) -> str:
    return json.dumps(value, default=_plain, skipkeys=True)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else _described(value)
