"""The block `callback_settings.wiserouter` of the proxy's configuration, checked once; errors name the key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wiserouter import Budget, Price
from wiserouter.errors import InvalidInput
from wiserouter_litellm.errors import SettingsError

ROOT = "callback_settings.wiserouter"


class Strict(BaseModel):
    """No key is ignored: a typo is an error."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class PriceSettings(Strict):
    """USD per token."""

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
        The amount, for `requests` requests or per `every`.
    requests : int, optional
        The horizon: how many requests the budget is for; with `every` the number expected in the first window.
    every : str, optional
        How often the budget renews: "day", "week", "month", "30d", "6h".
    timezone : str
        Whose midnight days, weeks and months begin at.
    limit : {"expected", "hard"}
        Plan on means, or never exceed the amount.
    on_exhausted : {"reject", "cheapest"}
        HTTP 429, or the cheapest model.
    rollover : bool
        Whether what a window leaves goes to the next.
    """

    budget_usd: float = Field(ge=0)
    requests: int | None = Field(None, ge=1)
    every: str | None = None
    timezone: str = "UTC"
    limit: Literal["expected", "hard"] = "expected"
    on_exhausted: Literal["reject", "cheapest"] = "reject"
    rollover: bool = False

    def budget(self, share: float = 1.0, *, within: Budget | None = None) -> Budget:
        """Return the budget, or the share of it that one of several workers may spend."""
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


class GroupSettings(BudgetSettings):
    """One model group and its budget.

    Attributes
    ----------
    within : list of BudgetSettings
        Further budgets that must bear each call; the tightest rules.
    artifact : str, optional
        A file that `wiserouter fit` wrote; without one the router learns from nothing.
    encoder : str, optional
        "litellm/<model>" for an embedding model of LiteLLM; else what the artifact was fitted with.
    encoder_params : dict
        Of the embedding call, such as `api_key`.
    encoder_timeout_s : float, seconds
        How long a question waits for its embedding.
    cap_output_tokens : int, optional
        The limit of the output where a request names none; also sent to the provider.
    prices : dict
        Prices by model, instead of LiteLLM's.
    explore_requests : int, optional
        Without an artifact: explore blindly for so many requests, as in the paper, instead of learning optimistically.
    store : str
        Where budgets and decisions live.
    reservation_ttl_s : float, seconds
        After this long the reservation of a call that never reported is given back; longer than the longest call.
    feedback_ttl_s : float, seconds
        How long an answer can be rated.
    journal : str, optional
        A file of JSON lines, one per decision, charge, release and score.
    label_share : float, optional
        Share of the answers to ask feedback for, where it would change the plan most.
    explore_share : float, optional
        Share of the requests that go to a model drawn uniformly, for `wiserouter evaluate` on the journal.
    seed : int, optional
        Seeds the draws.
    """

    within: list[BudgetSettings] = Field(default_factory=list)
    artifact: str | None = None
    encoder: str | None = Field(None, pattern=r"^litellm/.+")
    encoder_params: dict[str, Any] = Field(default_factory=dict)
    encoder_timeout_s: float = Field(1.0, gt=0)
    cap_output_tokens: int | None = Field(None, ge=1)
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    explore_requests: int | None = Field(None, ge=1)
    store: str = "memory://"
    reservation_ttl_s: float = Field(900.0, gt=0)
    feedback_ttl_s: float = Field(7 * 86_400.0, gt=0)
    journal: str | None = Field(None, min_length=1)
    label_share: float | None = Field(None, gt=0, le=1)
    explore_share: float | None = Field(None, gt=0, le=1)
    seed: int | None = None

    @model_validator(mode="after")
    def _is_a_budget(self) -> GroupSettings:
        self.budgets()
        if self.encoder is not None and self.artifact is None:
            raise ValueError("encoder needs artifact: without one there is one context, and nothing to encode for")
        return self

    def budgets(self, share: float = 1.0) -> Budget:
        """Return the budget with those it is within, or the share of them that one of several workers may spend."""
        around: Budget | None = None
        for one in reversed(self.within):
            around = one.budget(share, within=around)
        return self.budget(share, within=around)


class Settings(Strict):
    """The whole block: groups by name."""

    groups: dict[str, GroupSettings] = Field(min_length=1)

    @model_validator(mode="after")
    def _journals_differ(self) -> Settings:
        paths = [one.journal for one in self.groups.values() if one.journal is not None]
        if len(set(paths)) < len(paths):
            raise ValueError("journal must be a file of its own in each group")
        return self


def settings_of(block: object) -> Settings:
    """Return the checked settings.

    Raises
    ------
    SettingsError
        If there are none, a key is unknown, or a value breaks a rule; the first such key is named.

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
        key = ".".join([ROOT, *map(str, first["loc"])])
        more = f" (and {len(others)} more)" if others else ""
        raise SettingsError(key, f"{_said(first['msg'])}, got {_shown(first)}{more}") from None
    except InvalidInput as error:
        raise SettingsError(ROOT, str(error)) from error


def _said(message: str) -> str:
    return message.removeprefix("Value error, ").rstrip(".")


def _shown(error: Any) -> str:
    """Return the value got, unless the key may hold a secret."""
    return "a value that is not shown" if "encoder_params" in error["loc"] else repr(error["input"])[:80]
