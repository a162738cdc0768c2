"""The settings `callback_settings.wiserouter` of the proxy's configuration, checked once; errors name the key."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from wiserouter.errors import InvalidInput
from wiserouter.integration import MAX_WAIT_S, DrawBy
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.settings.alert_settings import AlertSettings
from wiserouter_litellm.settings.budget_settings import BUDGET, SCORES, WORD, AccountSettings
from wiserouter_litellm.settings.strict_settings import Strict

ROOT = "callback_settings.wiserouter"

MOST_SHOWN = 5
"""Most mistakes that one message names."""

LONGEST_BATCH_S = 172_800.0
"""How long the results of a batch may take: the window of a day, and a day to fetch them."""

_OWN, _SHARED = "its own budget", "a shared budget"
_TAGS = frozenset({WORD, BUDGET, SCORES, _OWN, _SHARED})


class RoutingSettings(Strict):
    """The settings that each group has for itself.

    Attributes
    ----------
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
    draw_by : {"request", "question", "context"}
        What calls that get the same model, where the plan mixes two, have in common: nothing, the question, or
        context and hour.
    """

    encoder_timeout_s: float = Field(1.0, gt=0)
    cap_output_tokens: int | None = Field(None, ge=1)
    on_held: Literal["wait", "refuse"] = "wait"
    max_wait_s: float = Field(MAX_WAIT_S, gt=0)
    fallback_policy: Literal["inside", "refuse", "outside"] = "inside"
    draw_by: DrawBy = "request"

    @property
    def wait_s(self) -> float:
        """How long a request waits while the rest of the budget is only held by calls in flight."""
        return self.max_wait_s if self.on_held == "wait" else 0.0


class GroupSettings(RoutingSettings, AccountSettings):
    """One model group and its own budget."""


class MemberSettings(RoutingSettings):
    """One model group under a budget that it shares with others.

    Attributes
    ----------
    budget : str
        The name of one of `budgets`.
    """

    budget: str


class PullSettings(Strict):
    """A platform whose new scores are pulled; its keys are in its own environment variables.

    Attributes
    ----------
    platform : {"langfuse", "langsmith", "mlflow"}
        The platform; the key is `from`.
    every_s : float, seconds
        The time from one pull to the next.
    score : str, optional
        The metric to take; by default those of all judges and rules, and the only one of people.
    scale : str
        The worst and the best score, such as 1..5.
    since_s : float, seconds
        How far back the first pull reads.
    state : str, optional
        A file that keeps the place over restarts.
    url, project : str
        The address of the platform, and the experiment of MLflow or the project id of LangSmith.
    """

    platform: Literal["langfuse", "langsmith", "mlflow"] = Field(alias="from")
    every_s: float = Field(300.0, ge=1, le=31_536_000)
    score: str | None = None
    scale: str = "0..1"
    since_s: float = Field(86_400.0, ge=0)
    state: str | None = None
    url: str = ""
    project: str = ""


class BatchSettings(Strict):
    """The batches of groups: `/v1/files` and `/v1/batches` for files whose lines name a group.

    Attributes
    ----------
    folder : str
        The folder in which files and batches are kept; all workers of the proxy must have the same one.
    poll_s : float, seconds
        The time from one look at the providers' batches to the next.
    price_factor : float
        What a call costs in a batch over its plain price, where LiteLLM knows no batch price.
    keep_days : float, days
        How long files and batches that have ended are kept.
    """

    folder: str = Field(min_length=1)
    poll_s: float = Field(60.0, gt=0)
    price_factor: float = Field(1.0, gt=0, le=1)
    keep_days: float = Field(30.0, ge=2)


class Settings(Strict):
    """The whole block: groups, the budgets that several groups share, the platform of scores, metrics, alerts, batches.

    Metrics are on by default where prometheus-client is installed.
    """

    groups: dict[
        str,
        Annotated[
            Annotated[GroupSettings, Tag(_OWN)] | Annotated[MemberSettings, Tag(_SHARED)],
            Discriminator(lambda given: _SHARED if _names_a_budget(given) else _OWN),
        ],
    ] = Field(min_length=1)
    budgets: dict[str, AccountSettings] = Field(default_factory=dict)
    feedback_pull: PullSettings | None = None
    metrics: bool | None = None
    alerts: AlertSettings | None = None
    batches: BatchSettings | None = None

    @property
    def accounts(self) -> dict[str, AccountSettings]:
        """The budgets by name; that of one group has the name of the group."""
        return self.budgets | {name: one for name, one in self.groups.items() if isinstance(one, GroupSettings)}

    def members(self, budget: str) -> dict[str, RoutingSettings]:
        """Return the groups under a budget, by name."""
        return {name: one for name, one in self.groups.items() if _budget_of(name, one) == budget}

    @model_validator(mode="after")
    def _names_differ(self) -> Settings:
        both = [name for name in self.budgets if isinstance(self.groups.get(name), GroupSettings)]
        if both:
            raise ValueError(f"budgets.{both[0]} must have another name than the group {both[0]!r} with its own budget")
        return self

    @model_validator(mode="after")
    def _decisions_outlive_batches(self) -> Settings:
        ttl_s = min(one.feedback_ttl_s for one in self.accounts.values()) if self.accounts else LONGEST_BATCH_S
        if self.batches is not None and ttl_s < LONGEST_BATCH_S:
            raise ValueError(
                f"feedback_ttl_s must be at least {LONGEST_BATCH_S:.0f} beside batches, whose results are charged a "
                f"day later, got {ttl_s:g}"
            )
        return self

    @model_validator(mode="after")
    def _judges_are_not_routed(self) -> Settings:
        for one in self.accounts.values():
            if one.judge is not None and one.judge.model in self.groups:
                raise ValueError(f"judge.model must be no group that is routed, got {one.judge.model!r}")
        return self

    @model_validator(mode="after")
    def _journals_differ(self) -> Settings:
        paths = [Path(one.journal).resolve() for one in self.accounts.values() if one.journal is not None]
        if len(set(paths)) < len(paths):
            raise ValueError("journal must be another file in each group")
        return self

    @model_validator(mode="after")
    def _stores_differ(self) -> Settings:
        stores = [_place_of(name, one.store) for name, one in self.accounts.items() if not in_memory(one.store)]
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


def _place_of(group: str, store: str) -> tuple[str, ...]:
    """Return where a group's store is, whatever its settings: the file, or the server, database, prefix and name."""
    address, _, query = store_of(group, store).partition("?")
    scheme, _, place = address.partition("://")
    if scheme == "sqlite":
        return (str(Path(place.removeprefix("/")).resolve()),)
    options = dict(parse_qsl(query))
    return place.rpartition("@")[2], *(options.get(one, "") for one in ("db", "prefix", "name"))


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
        settings = Settings.model_validate(block)
    except ValidationError as error:
        first, *others = error.errors(include_url=False, include_context=False)
        further = "".join(f"; {_key(one)}: {_broken_rule(one)}" for one in others[: MOST_SHOWN - 1])
        more = f" (and {len(others) + 1 - MOST_SHOWN} more)" if len(others) >= MOST_SHOWN else ""
        raise SettingsError(_key(first), f"{_broken_rule(first)}{further}{more}") from None
    except InvalidInput as error:
        raise SettingsError(ROOT, str(error)) from error
    _check_members(settings)
    return settings


def _check_members(settings: Settings) -> None:
    """Check that each group names a budget that is there, and that each budget has a group."""
    for name, one in settings.groups.items():
        budget = _budget_of(name, one)
        if budget not in settings.accounts:
            known = list(settings.budgets)
            near = get_close_matches(budget, known, n=1)
            hint = f": did you mean {near[0]}?" if near else "; a budget of this group alone is `budget_usd`"
            rule = f"must be one of {', '.join(known)}" if known else "needs a block `budgets`"
            raise SettingsError(f"{ROOT}.groups.{name}.budget", f"{rule}, got {budget!r:.80}{hint}")
    for budget in settings.budgets:
        if not settings.members(budget):
            raise SettingsError(f"{ROOT}.budgets.{budget}", f"no group has it: write `budget: {budget}` in a group")


def _names_a_budget(given: object) -> bool:
    return isinstance(given, Mapping) and isinstance(given.get("budget"), str)


def _budget_of(name: str, group: RoutingSettings) -> str:
    return group.budget if isinstance(group, MemberSettings) else name


def _key(error: Any) -> str:
    return ".".join([ROOT, *(str(part) for part in error["loc"] if part not in _TAGS)])


def _broken_rule(error: Any) -> str:
    """Return the rule and the value, unless that is absent or may hold a secret: an encoder's parameter, or a block."""
    if error["type"] == "missing":
        return "is required"
    rule = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    secret = {"encoder_params", "webhooks"} & set(error["loc"]) or isinstance(error["input"], Mapping | list)
    return rule if secret else f"{rule}, got {error['input']!r:.80}"
