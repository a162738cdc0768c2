"""Blocks of settings that refuse what they do not know."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from pydantic import BaseModel, ConfigDict, field_validator, model_validator


class Strict(BaseModel):
    """A block in which no key is ignored: a typo is an error that names the nearest key, and so is a key without value.

    LiteLLM passes on `os.environ/NAME` as null where there is no such variable.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _knows_its_keys(cls, given: object) -> object:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = [key for key in given if key not in known] if isinstance(given, Mapping) else []
        if unknown:
            raise ValueError("; ".join(_unknown_key(str(key), known) for key in unknown))
        return given

    @field_validator("*", mode="before")
    @classmethod
    def _has_a_value(cls, given: object) -> object:
        if given is None:
            raise ValueError("needs a value: set it, or the environment variable that it names, or leave the key out")
        return given


def _unknown_key(key: str, known: list[str]) -> str:
    """Return the complaint about an unknown key, with the known ones that are nearest, or all of them."""
    near = [name for name in known if name.startswith(key) or key.startswith(name)]
    near = near or get_close_matches(key, known, n=1)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"the keys here are {', '.join(known)}"
    return f"unknown key {key!r}, {remedy}"
