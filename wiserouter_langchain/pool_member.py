"""One chat model of the pool: its abilities, its limits and its rate card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel, ModelProfile

from wiserouter import Price
from wiserouter.errors import InvalidInput
from wiserouter.integration import CallRequest, RateCard, count_tokens, exact_encoding
from wiserouter_langchain.price_catalogue import rate_card_of

MEDIA_TOKENS = 2_000
"""Tokens of a typical image, to hold against context windows; a hard budget reserves the whole window instead."""

_LIMIT_FIELDS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict")


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A chat model with its prices and limits.

    Attributes
    ----------
    name : str
        Its name in the router.
    model : BaseChatModel
        The chat model.
    rate_card : RateCard
        Its prices, its context window, and the longest answer that it is set to or can give.
    encoding_of : str or None
        The model's name, where tiktoken has the encoding that counts its tokens exactly.
    cap_field : str or None
        The field that limits its output, where it is not set.
    """

    name: str
    model: BaseChatModel
    rate_card: RateCard
    encoding_of: str | None
    cap_field: str | None

    def can_take(self, request: CallRequest, about_tokens: int) -> str | None:
        """Return the reason why this model cannot take a call, or None where it can."""
        profile = self.model.profile or {}
        if request.tools and not calls_tools(self.model):
            return "calls no tools"
        if request.structured and not structures(self.model):
            return "gives no structured answers"
        lacking = [kind for kind in sorted(request.media) if profile.get(f"{kind}_inputs") is False]
        if lacking:
            return f"takes no {', '.join(lacking)}"
        window = self.rate_card.max_input_tokens
        if window is not None and about_tokens > window:
            return f"needs about {about_tokens} tokens, window is {window}"
        return None

    def worst_case_usd(self, request: CallRequest, bound_tokens: int, cap_output_tokens: int | None) -> float:
        """Return the most that a call can cost; infinite where nothing bounds it.

        Parameters
        ----------
        request : CallRequest
            The call.
        bound_tokens : int
            An upper bound on its input tokens, for any model.
        cap_output_tokens : int or None
            The limit of the output where neither call nor model sets one.
        """
        limit = request.output_tokens if request.output_tokens is not None else cap_output_tokens
        inputs = self._input_tokens(request, bound_tokens) if request.countable else None
        return self.rate_card.worst_case_usd(inputs, limit, request.choices)

    def _input_tokens(self, request: CallRequest, bound_tokens: int) -> int:
        """Return the input tokens of a call: exact where the model's encoding is known, else their upper bound."""
        if self.encoding_of is None:
            return bound_tokens
        return count_tokens(request.counted, self.encoding_of).at_most + request.overhead_tokens

    def capped(self, cap_output_tokens: int, request: CallRequest) -> BaseChatModel:
        """Return the model with its output limited, where neither the call nor the model does so."""
        if request.output_tokens is not None or self.cap_field is None:
            return self.model
        return self.model.model_copy(update={self.cap_field: cap_output_tokens})


def pool_member(name: str, model: BaseChatModel, own: Price | None) -> PoolMember:
    """Return the member of the pool that a chat model makes.

    Parameters
    ----------
    name : str
        Its name in the router.
    model : BaseChatModel
        The chat model.
    own : Price or None
        A price that comes before the catalogue's.

    Raises
    ------
    InvalidInput
        If it is no chat model.
    UnknownPrice
        If neither `own` nor the catalogue has a price.
    """
    if not isinstance(model, BaseChatModel):
        raise InvalidInput(
            f"models must be chat models, got {type(model).__name__} for {name!r}: pass the model itself, and bind or "
            f"wrap the router instead",
            value=name,
        )
    profile: Mapping[str, Any] = model.profile or {}
    field = next((field for field in _LIMIT_FIELDS if field in type(model).model_fields), None)
    limit = getattr(model, field) if field else None
    ls_model_name = str(model._get_ls_params().get("ls_model_name"))
    return PoolMember(
        name,
        model,
        rate_card_of(name, model, own, profile.get("max_input_tokens"), limit or profile.get("max_output_tokens")),
        ls_model_name if exact_encoding(ls_model_name) else None,
        field if limit is None else None,
    )


def calls_tools(model: BaseChatModel) -> bool:
    """Return True if a chat model can call tools: as its profile says, else if it implements `bind_tools`."""
    profile = model.profile
    if profile and "tool_calling" in profile:
        return bool(profile["tool_calling"])
    return type(model).bind_tools is not BaseChatModel.bind_tools


def structures(model: BaseChatModel) -> bool:
    """Return True if a chat model can give structured answers: natively, or by calling tools."""
    own = type(model).with_structured_output is not BaseChatModel.with_structured_output
    return own or calls_tools(model) or bool((model.profile or {}).get("structured_output"))


def common_profile(models: Sequence[BaseChatModel]) -> ModelProfile | None:
    """Return the profile that all models meet: flags that all have, the least of each limit, and equal values."""
    profiles: list[Any] = [model.profile for model in models]
    if not profiles or any(profile is None for profile in profiles):
        return None
    common: dict[str, Any] = {}
    for key in set.intersection(*(set(profile) for profile in profiles)):
        values = [profile[key] for profile in profiles]
        if all(isinstance(value, bool) for value in values):
            common[key] = all(values)
        elif all(isinstance(value, int) for value in values):
            common[key] = min(values)
        elif all(value == values[0] for value in values):
            common[key] = values[0]
    return common  # type: ignore[return-value]


def about_tokens(request: CallRequest) -> int:
    """Return an estimate of the input tokens of a call, to hold against context windows."""
    return count_tokens(request.counted).tokens + request.overhead_tokens + MEDIA_TOKENS * len(request.media)
