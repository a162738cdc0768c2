"""One chat model of the pool: what it can do, how much it may say, what it asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel, ModelProfile

from wiserouter import Model, Price
from wiserouter.errors import InvalidInput
from wiserouter.pricing.tokens import count_tokens
from wiserouter_langchain.price_catalogue import Tariff, tariff_of
from wiserouter_langchain.request import MEDIA_TOKENS, Ask

_LIMIT_FIELDS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict")


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A chat model and its figures.

    Attributes
    ----------
    name : str
        Its name in the router.
    model : BaseChatModel
        The chat model.
    tariff : Tariff
        Its prices.
    max_input_tokens, max_output_tokens : int or None
        The context window, and the longest answer that it is set to or can give.
    encoding_of : str or None
        The model's name, where tiktoken has the encoding that counts its tokens exactly.
    cap_field : str or None
        The field that limits its output, where it is not set.
    """

    name: str
    model: BaseChatModel
    tariff: Tariff
    max_input_tokens: int | None
    max_output_tokens: int | None
    encoding_of: str | None
    cap_field: str | None

    def can_take(self, ask: Ask, about_tokens: int) -> str | None:
        """Return why this model cannot take a call, or None where it can."""
        profile = self.model.profile or {}
        if ask.tools and not calls_tools(self.model):
            return "calls no tools"
        if ask.structured and not structures(self.model):
            return "gives no structured answers"
        lacking = [kind for kind in sorted(ask.media) if profile.get(f"{kind}_inputs") is False]
        if lacking:
            return f"takes no {', '.join(lacking)}"
        if self.max_input_tokens is not None and about_tokens > self.max_input_tokens:
            return f"needs about {about_tokens} tokens, window is {self.max_input_tokens}"
        return None

    def worst_case_usd(self, ask: Ask, cap_output_tokens: int | None) -> float:
        """Return the most that a call can cost; infinite where nothing bounds it."""
        inputs = self.max_input_tokens if ask.media else self.bound_tokens(ask)
        asked = ask.output_tokens if ask.output_tokens is not None else cap_output_tokens
        limits = [limit for limit in (asked, self.max_output_tokens) if limit is not None]
        if inputs is None or not limits:
            return float("inf")
        return self.tariff.worst_case_usd(inputs, min(limits) * ask.choices)

    def bound_tokens(self, ask: Ask) -> int:
        """Return an upper bound on the input tokens of a call without media."""
        if self.encoding_of is None:
            return ask.at_most_tokens
        return count_tokens(ask.counted, self.encoding_of).at_most + ask.overhead_tokens

    def capped(self, cap_output_tokens: int | None, ask: Ask) -> BaseChatModel:
        """Return the model with its output limited, where neither the call nor the model does so."""
        if cap_output_tokens is None or ask.output_tokens is not None or self.cap_field is None:
            return self.model
        return self.model.model_copy(update={self.cap_field: cap_output_tokens})

    def core_model(self) -> Model:
        """Return the core's model of this price and these limits."""
        bounded = self.max_input_tokens is not None and self.max_output_tokens is not None
        worst = self.tariff.worst_case_usd(self.max_input_tokens or 0, self.max_output_tokens or 0)
        return Model(
            self.name,
            self.tariff.price,
            max_output_tokens=self.max_output_tokens,
            max_input_tokens=self.max_input_tokens,
            max_cost_usd=worst if bounded else None,
        )


def pool_member(name: str, model: BaseChatModel, own: Price | None) -> PoolMember:
    """Return the arm of a chat model.

    Raises
    ------
    InvalidInput
        If it is no chat model.
    UnknownPrice
        If nothing says what it costs.
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
    named = str(model._get_ls_params().get("ls_model_name"))
    return PoolMember(
        name,
        model,
        tariff_of(name, model, own),
        profile.get("max_input_tokens"),
        limit or profile.get("max_output_tokens"),
        named if _is_exact(named) else None,
        field if limit is None else None,
    )


def calls_tools(model: BaseChatModel) -> bool:
    """Return whether a chat model can call tools: as its profile says, else if it implements `bind_tools`."""
    profile = model.profile
    if profile and "tool_calling" in profile:
        return bool(profile["tool_calling"])
    return type(model).bind_tools is not BaseChatModel.bind_tools


def structures(model: BaseChatModel) -> bool:
    """Return whether a chat model can give structured answers: natively, or by calling tools."""
    own = type(model).with_structured_output is not BaseChatModel.with_structured_output
    return own or calls_tools(model) or bool((model.profile or {}).get("structured_output"))


def common_profile(models: Sequence[BaseChatModel]) -> ModelProfile | None:
    """Return what all models can do: flags that all have, the least of each limit, and what is equal."""
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


def about_tokens(ask: Ask) -> int:
    """Return about how many tokens a call has, for the context windows."""
    return count_tokens(ask.counted).tokens + ask.overhead_tokens + MEDIA_TOKENS * len(ask.media)


def _is_exact(name: str) -> bool:
    probe = count_tokens("naïve", name)
    return probe.at_most < len("naïve".encode())
