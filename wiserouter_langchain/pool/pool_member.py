"""One chat model of the pool: its abilities, its limits and its rate card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLanguageModel, ModelProfile

from wiserouter import Price
from wiserouter.integration import (
    TOOLS_TOKENS,
    CallRequest,
    Params,
    RateCard,
    count_tokens,
    exact_encoding,
    rates_of,
    split_arm,
    template_tokens,
)
from wiserouter_langchain.billing.price_catalogue import (
    at_this_moment,
    depends_on_time,
    model_name,
    rate_card_of,
    unbounded_price,
)
from wiserouter_langchain.billing.search_fees import always_searches, hides_searches
from wiserouter_langchain.pool.single_attempt import single_attempt
from wiserouter_langchain.pool.wrapped_models import Wrapping
from wiserouter_langchain.requests.limits import (
    NO_LIMITS,
    OUTPUT_LIMITS,
    CallLimits,
    costly_field,
    fixed_limits,
    own_limits,
    rewritten,
)
from wiserouter_langchain.requests.sent_text import has_schemas, sent_texts

MEDIA_TOKENS = 2_000
"""Tokens of a typical image, to hold against context windows; a hard budget reserves the whole window instead."""

UNPRICED_MEDIA = frozenset({"audio", "video"})
"""Media whose tokens have prices of their own, by which nothing bounds a call."""


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A chat model with its prices and limits.

    Attributes
    ----------
    name : str
        Its name in the router.
    model : BaseChatModel
        The chat model.
    once : BaseChatModel
        The chat model with a client that sends each request once.
    rate_card : RateCard
        Its prices, its context window, and the longest answer that it is set to or can give.
    encoding_of : str or None
        The model's name, where tiktoken has the encoding that counts its tokens exactly.
    limit_field : str or None
        The field that limits its output.
    limits : CallLimits
        The limits that it is set to. The longest answer that it can give is none: langchain-anthropic sets it.
    fixed : CallLimits
        The limits within its `model_kwargs` and `extra_body`, which a call cannot lower.
    most_output_tokens : int or None
        The longest answer that it can give, where its profile says so.
    unbounded : str or None
        The reason why a hard budget cannot bound its calls, such as a setting.
    own_tokens : int
        A bound on the input tokens that its own settings and its template add.
    wrapping : Wrapping or None
        What the caller has wrapped around it.
    has_unknown_fee : bool
        Whether it searches the web with each call, for a fee that is not known.
    depends_on_time : bool
        Whether its prices are others at other times.
    """

    name: str
    model: BaseChatModel
    once: BaseChatModel
    rate_card: RateCard
    encoding_of: str | None
    limit_field: str | None
    limits: CallLimits = NO_LIMITS
    fixed: CallLimits = NO_LIMITS
    most_output_tokens: int | None = None
    unbounded: str | None = None
    own_tokens: int = 0
    wrapping: Wrapping | None = None
    has_unknown_fee: bool = False
    depends_on_time: bool = False

    @property
    def params(self) -> Params:
        """The parameters that make it an arm; empty for a plain model."""
        return self.rate_card.params

    @property
    def family(self) -> str:
        """The model that it is an arm of, or is."""
        return self.rate_card.family or split_arm(self.name).model

    @property
    def can_be_capped(self) -> bool:
        """True if its output can be limited, and is not yet."""
        return self.limit_field is not None and self.limits.output_tokens is None and self.fixed.output_tokens is None

    def at_price(self, price: Price | None) -> PoolMember:
        """Return the member at a price; itself where that is its own."""
        card = self.rate_card
        if price is None or price is card.price or price == card.price:
            return self
        rates = tuple(rates_of(price))
        card = replace(card, price=price, rates=rates, long_prompt_prices=(), tier_prices=(), source="operator")
        return replace(self, rate_card=card, depends_on_time=False)

    def present_card(self) -> RateCard:
        """Return its rate card with the prices of this moment."""
        return at_this_moment(self.rate_card, self.model) if self.depends_on_time else self.rate_card

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
        if self.unbounded or request.media & UNPRICED_MEDIA:
            return float("inf")
        inputs = self._input_tokens(request, bound_tokens) + self.own_tokens if request.countable else None
        answers = max(request.choices, self.limits.answers or 1, self.fixed.answers or 1)
        card = replace(self.rate_card, max_output_tokens=self.most_output_tokens)
        return card.worst_case_usd(inputs, self._output_tokens(request.output_tokens, cap_output_tokens), answers)

    def _output_tokens(self, requested: int | None, cap_output_tokens: int | None) -> int | None:
        """Return the limit of one answer that the provider receives."""
        limit = requested
        if limit is None:
            limit = cap_output_tokens if self.can_be_capped else self.limits.output_tokens
        given = [each for each in (limit, self.fixed.output_tokens) if each is not None]
        return max(given, default=None)

    def _input_tokens(self, request: CallRequest, bound_tokens: int) -> int:
        """Return the input tokens of a call: exact where the model's encoding is known, else their upper bound."""
        if self.encoding_of is None:
            return bound_tokens
        return count_tokens(request.counted, self.encoding_of).at_most + request.overhead_tokens

    def capped(self, cap_output_tokens: int | None, request: CallRequest) -> BaseChatModel:
        """Return the model with its output limited, where neither the call nor the model does so."""
        if cap_output_tokens is None or request.output_tokens is not None or not self.can_be_capped:
            return self.model
        return self.model.model_copy(update={str(self.limit_field): cap_output_tokens})

    def bounded(
        self, limits: CallLimits, cap_output_tokens: int | None, kwargs: Mapping[str, Any]
    ) -> tuple[BaseChatModel, dict[str, Any]]:
        """Return the model and the keyword arguments that send the limits by which a call was bounded.

        Parameters
        ----------
        limits : CallLimits
            Those of the call.
        cap_output_tokens : int or None
            The limit of the output where neither call nor model sets one.
        kwargs : mapping
            The caller's keyword arguments, and the queued operations.
        """
        limit = limits.output_tokens
        if limit is None and self.can_be_capped:
            limit = cap_output_tokens
        fields: dict[str, int] = {}
        if self.limit_field is not None and limit is not None:
            fields[self.limit_field] = limit
        has_answers = "n" in type(self.model).model_fields
        if has_answers and limits.answers is not None:
            fields["n"] = limits.answers
        output_tokens = None if self.limit_field else limits.output_tokens
        answers = None if has_answers else limits.answers
        model = self.once.model_copy(update=fields) if fields else self.once
        return model, rewritten(kwargs, output_tokens, answers)


def pool_member(
    name: str,
    model: BaseChatModel,
    own_price: Price | None,
    wrapping: Wrapping | None = None,
    kept_price: Price | None = None,
) -> PoolMember:
    """Return the member of the pool that a chat model makes.

    Parameters
    ----------
    name : str
        Its name in the router.
    model : BaseChatModel
        The chat model.
    own_price : Price or None
        A price that comes before the catalogue's.
    wrapping : Wrapping, optional
        What was wrapped around it.
    kept_price : Price, optional
        The price that a router has for it.

    Raises
    ------
    UnknownPrice
        If neither the caller nor the router nor the catalogue has a price.
    """
    profile: Mapping[str, Any] = model.profile or {}
    fields = {name: getattr(model, name) for name in type(model).model_fields}
    field = next((name for name in OUTPUT_LIMITS if name in fields), None)
    own, fixed = own_limits(fields, field), fixed_limits(fields, field)
    most = profile.get("max_output_tokens")
    set_to = max(filter(None, (own.output_tokens, fixed.output_tokens)), default=None)
    known_as, bound = model_name(model), {} if wrapping is None else wrapping.kwargs
    card = rate_card_of(name, model, own_price, profile.get("max_input_tokens"), set_to or most, kept=kept_price)
    if wrapping is not None and wrapping.params:
        said = split_arm(name)
        family = wrapping.family or (said.model if said.params else known_as)
        card = replace(card, params=wrapping.params, family=family)
    return PoolMember(
        name,
        model,
        single_attempt(model),
        card,
        known_as if exact_encoding(known_as) else None,
        field,
        own if own.output_tokens != most or _has_thinking_budget(fields, bound) else own._replace(output_tokens=None),
        fixed,
        most,
        costly_field(fields) or (wrapping and wrapping.unbounded) or unbounded_price(model, card.source),
        _bound_of_settings(fields, bound) + template_tokens(known_as),
        wrapping,
        always_searches(known_as) and (not card.search_usd or hides_searches(known_as)),
        depends_on_time(model, card.source),
    )


def _has_thinking_budget(*settings: Mapping[str, Any]) -> bool:
    """Return True if a setting has a budget of thoughts, to which Anthropic refuses a limit of the output below it."""
    asked = (each.get("thinking") for each in settings)
    return any(isinstance(thinking, Mapping) and "budget_tokens" in thinking for thinking in asked)


def _bound_of_settings(fields: Mapping[str, Any], bound: Mapping[str, Any]) -> int:
    """Return a bound on the input tokens that the settings of a model add, such as tools in its `model_kwargs`."""
    common = BaseChatModel.model_fields
    own = {k: v for k, v in fields.items() if k not in common and not isinstance(v, BaseLanguageModel)}
    texts = [*sent_texts(own), *sent_texts(bound)]
    added = TOOLS_TOKENS if has_schemas(own) or has_schemas(bound) else 0
    return added + sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


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


def common_params(params: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the tracing parameters that hold for all models: the least of each limit, and equal values.

    Examples
    --------
    >>> common_params([{"ls_provider": "openai", "ls_max_tokens": 50}, {"ls_provider": "openai", "ls_max_tokens": 20}])
    {'ls_provider': 'openai', 'ls_max_tokens': 20}
    """
    first, *others = params
    common = {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
    limits = [limit for each in params if (limit := each.get("ls_max_tokens"))]
    return {**common, "ls_max_tokens": min(limits)} if limits else common


def common_profile(models: Sequence[BaseChatModel]) -> ModelProfile | None:
    """Return the profile that all models meet: flags that all have, the least of each known limit, and equal values."""
    profiles: list[Any] = [model.profile for model in models]
    if not any(profiles):
        return None
    common: dict[str, Any] = {}
    for key in sorted({key for profile in profiles for key in profile or ()}):
        values = [profile[key] for profile in profiles if profile and key in profile]
        if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            common[key] = min(values)
        elif len(values) == len(profiles) and all(isinstance(value, bool) for value in values):
            common[key] = all(values)
        elif len(values) == len(profiles) and all(value == values[0] for value in values):
            common[key] = values[0]
    return common  # type: ignore[return-value]


def about_tokens(request: CallRequest) -> int:
    """Return an estimate of the input tokens of a call, to hold against context windows."""
    return count_tokens(request.counted).tokens + request.overhead_tokens + MEDIA_TOKENS * len(request.media)
