"""The settings `callback_settings.wiserouter` of the proxy's configuration, checked once; errors name the key."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from wiserouter import Budget, Price
from wiserouter.errors import InvalidInput
from wiserouter.integration import MAX_WAIT_S
from wiserouter_litellm.errors import SettingsError

ROOT = "callback_settings.wiserouter"

MOST_SHOWN = 5
"""Most mistakes that one message names."""

_WORD, _BUDGET = "a word", "a budget"  # tags of the union, which are no part of a key


class Strict(BaseModel):
    """A block in which no key is ignored: a typo is an error that names the nearest key."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _knows_its_keys(cls, given: object) -> object:
        unknown = [key for key in given if key not in cls.model_fields] if isinstance(given, Mapping) else []
        if unknown:
            raise ValueError("; ".join(_unknown_key(str(key), list(cls.model_fields)) for key in unknown))
        return given


class PriceSettings(Strict):
    """The price of a model in USD per token."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(None, ge=0)
    cache_write: float | None = Field(None, ge=0)
    reasoning: float | None = Field(None, ge=0)

    def price(self) -> Price:
        """Return the core's price."""
        return Price(**self.model_dump())


class BudgetSettings(Strict):
    """One budget.

    Attributes
    ----------
    budget_usd : float, USD
        The amount, for `requests` requests or per `every`; more than 0.
    requests : int, optional
        The horizon: the number of requests that the budget is for; with `every` those expected in the first window.
    every : str, optional
        The period after which the budget renews: "day", "week", "month", "30d", "6h".
    timezone : str
        The time zone in which days, weeks and months begin.
    limit : {"expected", "hard"}
        Plan on means, or never exceed the amount.
    on_exhausted : {"reject", "cheapest"}
        HTTP 429, or the cheapest model.
    rollover : bool
        Whether the rest of a window is added to the next.
    """

    budget_usd: float = Field(gt=0)
    requests: int | None = Field(None, ge=1)
    every: str | None = None
    timezone: str = "UTC"
    limit: Literal["expected", "hard"] = "expected"
    on_exhausted: Literal["reject", "cheapest"] = "reject"
    rollover: bool = False

    def alone(self, share: float = 1.0, *, within: Budget | None = None) -> Budget:
        """Return this budget without those it is within, or the share of it that one of several workers may spend."""
        requests = None if self.requests is None else max(1, round(self.requests * share))
        return Budget(
            self.budget_usd * share,
            requests,
            limit=self.limit,
            on_exhausted=self.on_exhausted,
            every=self.every,
            timezone=self.timezone,
            rollover=self.rollover,
            within=within,
        )


class NestedSettings(BudgetSettings):
    """A budget and those it is within.

    Attributes
    ----------
    within : list of BudgetSettings
        Further budgets that must bear each call; the tightest rate applies.
    """

    within: list[BudgetSettings] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_a_budget(self) -> NestedSettings:
        self.budgets()
        return self

    def budgets(self, share: float = 1.0) -> Budget:
        """Return the budget with those it is within, or the share of them that one of several workers may spend."""
        around: Budget | None = None
        for one in reversed(self.within):
            around = one.alone(share, within=around)
        return self.alone(share, within=around)


class ScopeSettings(Strict):
    """Budgets of teams, organizations, users, keys, tags or a field of metadata, in addition to that of the group.

    Attributes
    ----------
    by : str
        The field that identifies a caller, as the proxy knows it for the key: "team", "organization", "user" or "key"
        by id (of a key its hash), "tag" or "metadata.<field>" by the metadata of the key or its team.
    budgets : dict
        Budgets by id.
    others : "shared", "refuse" or a budget
        The rule for callers who are not named: the group's own budget pays, or they are refused, or each has a budget
        like this.
    within_group : bool
        Whether the group's own budget must bear each call as well.
    from_request : bool
        Whether clients may name one of `budgets` by their tags or metadata, where their key has no id.
    max_others : int
        The most budgets of others that are opened.
    """

    by: str = Field(pattern=r"^(team|organization|user|key|tag|metadata\..+)$")
    budgets: dict[str, NestedSettings] = Field(default_factory=dict)
    others: Annotated[
        Annotated[Literal["shared", "refuse"], Tag(_WORD)] | Annotated[NestedSettings, Tag(_BUDGET)],
        Discriminator(lambda given: _WORD if isinstance(given, str) else _BUDGET),
    ] = "shared"
    within_group: bool = True
    from_request: bool = False
    max_others: int = Field(1_000, ge=1)

    @model_validator(mode="after")
    def _makes_sense(self) -> ScopeSettings:
        if not self.budgets and self.others == "shared":
            raise ValueError("scopes needs budgets, or others")
        if self.from_request and self.by.partition(".")[0] not in {"tag", "metadata"}:
            raise ValueError(f"from_request needs by: tag or metadata.<field>; a client cannot name its own {self.by}")
        return self


class GroupSettings(NestedSettings):
    """One model group and its budget.

    Attributes
    ----------
    scopes : ScopeSettings, optional
        Budgets of teams, users and other callers.
    artifact : str, optional
        A file written by `wiserouter fit`; without one the router starts without any estimates.
    encoder : str, optional
        "litellm/<model>" for an embedding model of LiteLLM; by default the artifact's encoder.
    encoder_params : dict
        Parameters of the embedding call, such as `api_key`.
    encoder_timeout_s : float, seconds
        The longest time that a question waits for its embedding.
    cap_output_tokens : int, optional
        The limit of the output where a request sets none; also sent to the provider.
    on_held : {"wait", "refuse"}
        The rule for a request that fits only once calls in flight are settled: it waits for that, or is refused.
    max_wait_s : float, seconds
        How long it waits.
    fallback_policy : {"inside", "refuse", "outside"}
        Whose budget pays for a call that LiteLLM sends on to another group: this one, none, or the other group's.
    prices : dict
        Prices by model, which come before LiteLLM's.
    explore_requests : int, optional
        Without an artifact: the number of requests that explore all models in turn, as in the paper, instead of
        learning optimistically.
    store : str
        The URL of the store of budgets and decisions.
    reservation_ttl_s : float, seconds
        The time after which the reservation of a call that never reported is given back; longer than the longest call.
    feedback_ttl_s : float, seconds
        The time for which an answer can be rated.
    journal : str, optional
        A file of JSON lines, one per decision, charge, release and score.
    label_share : float, optional
        Share of the answers to ask feedback for, where it would change the plan most.
    explore_share : float, optional
        Share of the requests that go to a model drawn uniformly, for `wiserouter evaluate` on the journal.
    seed : int, optional
        Seed of the random draws.
    """

    scopes: ScopeSettings | None = None
    artifact: str | None = None
    encoder: str | None = Field(None, pattern=r"^litellm/.+")
    encoder_params: dict[str, Any] = Field(default_factory=dict)
    encoder_timeout_s: float = Field(1.0, gt=0)
    cap_output_tokens: int | None = Field(None, ge=1)
    on_held: Literal["wait", "refuse"] = "wait"
    max_wait_s: float = Field(MAX_WAIT_S, gt=0)
    fallback_policy: Literal["inside", "refuse", "outside"] = "inside"
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    explore_requests: int | None = Field(None, ge=1)
    store: str = "memory://"
    reservation_ttl_s: float = Field(900.0, gt=0)
    feedback_ttl_s: float = Field(7 * 86_400.0, gt=0)
    journal: str | None = Field(None, min_length=1)
    label_share: float | None = Field(None, gt=0, le=1)
    explore_share: float | None = Field(None, gt=0, le=1)
    seed: int | None = None

    @property
    def wait_s(self) -> float:
        """How long a request waits while the rest of the budget is only held by calls in flight."""
        return self.max_wait_s if self.on_held == "wait" else 0.0

    @model_validator(mode="after")
    def _encodes_for_contexts(self) -> GroupSettings:
        if self.encoder is not None and self.artifact is None:
            raise ValueError("encoder needs artifact: without one there is one context, and nothing to encode for")
        return self


class Settings(Strict):
    """The whole block: groups by name."""

    groups: dict[str, GroupSettings] = Field(min_length=1)

    @model_validator(mode="after")
    def _journals_differ(self) -> Settings:
        paths = [one.journal for one in self.groups.values() if one.journal is not None]
        if len(set(paths)) < len(paths):
            raise ValueError("journal must be another file in each group")
        return self

    @model_validator(mode="after")
    def _stores_differ(self) -> Settings:
        stores = [store_of(name, one.store) for name, one in self.groups.items() if not in_memory(one.store)]
        if len(set(stores)) < len(stores):
            raise ValueError("store must differ between groups: another file, or another ?name=")
        return self


def in_memory(store: str) -> bool:
    """Return True if only one process sees a store."""
    return store.startswith("memory:")


def store_of(group: str, store: str) -> str:
    """Return the URL of a group's store: on a shared server each group has a part named like it.

    Examples
    --------
    >>> store_of("wise", "redis://localhost:6379/0?on_store_error=local")
    'redis://localhost:6379/0?on_store_error=local&name=wise'
    """
    address, _, query = store.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if in_memory(store) or address.startswith("sqlite:") or "name" in options:
        return store
    return f"{address}?{'&'.join(filter(None, [query, urlencode({'name': group})]))}"


def settings_of(block: object) -> Settings:
    """Return the checked settings.

    Raises
    ------
    SettingsError
        If there are none, a key is unknown, or a value breaks a rule; each such key is named.

    Examples
    --------
    >>> settings_of({"groups": {"wise": {"budget_usd": 5, "requests": "100"}}}).groups["wise"].requests
    100
    """
    if not block:
        raise SettingsError(
            ROOT, "is missing: add `callback_settings: {wiserouter: {groups: {<model group>: {budget_usd: ..., ...}}}}`"
        )
    try:
        return Settings.model_validate(block)
    except ValidationError as error:
        first, *others = error.errors(include_url=False, include_context=False)
        further = "".join(f"; {_key(one)}: {_broken_rule(one)}" for one in others[: MOST_SHOWN - 1])
        more = f" (and {len(others) + 1 - MOST_SHOWN} more)" if len(others) >= MOST_SHOWN else ""
        raise SettingsError(_key(first), f"{_broken_rule(first)}{further}{more}") from None
    except InvalidInput as error:
        raise SettingsError(ROOT, str(error)) from error


def _unknown_key(key: str, known: list[str]) -> str:
    """Return the complaint about an unknown key, with the known ones that are nearest, or all of them."""
    near = [name for name in known if name.startswith(key) or key.startswith(name)]
    near = near or get_close_matches(key, known, n=1)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"the keys here are {', '.join(known)}"
    return f"unknown key {key!r}, {remedy}"


def _key(error: Any) -> str:
    return ".".join([ROOT, *(str(part) for part in error["loc"] if part not in {_WORD, _BUDGET})])


def _broken_rule(error: Any) -> str:
    """Return the rule and the value, unless that is absent or may hold a secret: an encoder's parameter, or a block."""
    if error["type"] == "missing":
        return "is required"
    rule = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    secret = "encoder_params" in error["loc"] or isinstance(error["input"], Mapping | list)
    return rule if secret else f"{rule}, got {error['input']!r:.80}"
