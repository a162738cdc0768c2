"""The settings of budgets: amounts, prices, scopes, and the router that a budget belongs to."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from wiserouter import Budget, Price
from wiserouter.integration import check_price
from wiserouter_litellm.settings.limit_settings import LimitSettings, Share, UseSettings, check_uses_are_known
from wiserouter_litellm.settings.strict_settings import Strict

WORD, BUDGET, SCORES = "a word", "a budget", "scores"
"""Tags of the unions of a word and a budget or scores, which are no part of a key."""

Priors = Annotated[
    Annotated[str, Field(min_length=1), Tag(WORD)] | Annotated[dict[str, Share], Tag(SCORES)],
    Discriminator(lambda given: WORD if isinstance(given, str) else SCORES),
]
"""A family of published scores, a csv file, or scores by model."""

MOST_REQUESTS = 10**12
"""The most requests of a budget."""

PathText = Annotated[str, Field(pattern=r"^[^\x00]+$")]
"""The path of a file."""

Rule = Literal[
    "all",
    "invalid_tool_call",
    "schema_error",
    "content_filter",
    "truncated",
    "empty_answer",
    "tool_error",
    "regenerated",
]
"""The rules of failures that LiteLLM shows."""

TokenUsd = Annotated[float, Field(ge=0), AfterValidator(lambda usd: check_price("a price", usd))]


class PriceSettings(Strict):
    """The price of a model in USD per token."""

    input: TokenUsd
    output: TokenUsd
    cache_read: TokenUsd | None = None
    cache_write: TokenUsd | None = None
    reasoning: TokenUsd | None = None

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
    requests: int | None = Field(None, ge=1, le=MOST_REQUESTS)
    every: str | None = None
    timezone: str = "UTC"
    limit: Literal["expected", "hard"] = "expected"
    on_exhausted: Literal["reject", "cheapest"] = "reject"
    rollover: bool = False

    @model_validator(mode="after")
    def _ends_or_renews(self) -> BudgetSettings:
        if self.requests is None and self.every is None:
            raise ValueError("a budget needs requests (how many it is for) or every (how often it renews)")
        return self

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
        Annotated[Literal["shared", "refuse"], Tag(WORD)] | Annotated[NestedSettings, Tag(BUDGET)],
        Discriminator(lambda given: WORD if isinstance(given, str) else BUDGET),
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


class ValueSettings(Strict):
    """The values of requests, relative to 1: how the budget is divided among callers.

    Attributes
    ----------
    by : str
        The field that identifies a caller, as in `scopes`.
    known : dict
        The values of callers by id.
    claims_up_to : float, optional
        The most that a client may state by the header `x-wiserouter-value` or the metadata `wiserouter_value`, where
        its key has no value. By default no claim is read.
    """

    by: str = Field("team", pattern=r"^(team|organization|user|key|tag|metadata\..+)$")
    known: dict[str, Annotated[float, Field(ge=1e-3, le=1e3)]] = Field(default_factory=dict)
    claims_up_to: float | None = Field(None, ge=1e-3, le=1e3)

    @model_validator(mode="after")
    def _states_any(self) -> ValueSettings:
        if not self.known and self.claims_up_to is None:
            raise ValueError("values needs known, or claims_up_to")
        return self


class ConversationSettings(Strict):
    """The unit of decision.

    Attributes
    ----------
    unit : {"call", "conversation", "run"}
        Each call is decided alone, or priced with what its conversation has in caches; or once for all calls of a run.
    run_budget_usd : float, USD, optional
        The most that one run may spend, with those that name it as their parent.
    run_limit : {"hard", "expected"}
        Whether the worst case of each call must fit the budget of its run, or its expected cost.
    conversation_ttl_s : float, seconds
        Time after the last call at which a conversation or a run is over.
    """

    unit: Literal["call", "conversation", "run"] = "call"
    run_budget_usd: float | None = Field(None, gt=0)
    run_limit: Literal["hard", "expected"] = "hard"
    conversation_ttl_s: float = Field(3_600.0, gt=0)

    @model_validator(mode="after")
    def _fits_its_unit(self) -> ConversationSettings:
        if self.run_budget_usd is not None and self.unit != "run":
            raise ValueError(f"run_budget_usd needs unit: run, got unit: {self.unit}")
        if "run_limit" in self.model_fields_set and self.run_budget_usd is None:
            raise ValueError("run_limit needs run_budget_usd: it is the limit of that budget")
        if "conversation_ttl_s" in self.model_fields_set and self.unit == "call":
            raise ValueError("conversation_ttl_s needs unit: conversation or unit: run")
        return self

    @property
    def conversations(self) -> dict[str, Any]:
        """The arguments of `keep_conversations`."""
        if self.unit == "call":
            return {"unit": "call"}
        return {
            "unit": self.unit,
            "run_budget_usd": self.run_budget_usd,
            "run_limit": self.run_limit,
            "ttl_s": self.conversation_ttl_s,
        }


class JudgeBlock(Strict):
    """A model of the proxy that scores a share of the answers, on a budget of its own.

    Attributes
    ----------
    model : str
        A model group of the proxy that WISERouter does not route.
    share : float
        The share of the calls to judge; a larger one at the start of a horizon, and of rarely chosen models.
    budget_usd : float, USD
        The judge's own budget, never part of the group's.
    every : str, optional
        How often it renews.
    weight : float, optional
        Number of observations that one of its scores counts as; by default that of `judge_with`.
    first_scores : int, optional
        Its first scores are learned together, once there are so many; by default as in `judge_with`.
    max_output_tokens : int, optional
        The limit of its replies; by default 1,000, and 4,000 of a model that reasons, at most what the model allows.
    concurrency, max_waiting : int
        Judgements at once, and calls that may wait; further ones are not judged.
    attempts : int
        Attempts per judgement.
    timeout_s : float, seconds
        The time limit of one.
    """

    model: str = Field(min_length=1, max_length=100)
    share: float = Field(0.1, gt=0, le=1)
    budget_usd: float = Field(ge=0)
    every: str | None = None
    weight: float | None = Field(None, gt=0, le=1)
    first_scores: int | None = Field(None, ge=0)
    max_output_tokens: int | None = Field(None, ge=1)
    concurrency: int = Field(4, ge=1)
    max_waiting: int = Field(256, ge=1)
    attempts: int = Field(3, ge=1)
    timeout_s: float = Field(60.0, gt=0)


class AccountSettings(ConversationSettings, NestedSettings):
    """A budget and the router that it belongs to, for one group or for several.

    Attributes
    ----------
    scopes : ScopeSettings, optional
        Budgets of teams, users and other callers.
    values : ValueSettings, optional
        The values of the requests of callers.
    limits : dict
        Limits beside the budget by resource: `latency_s`, of streams `first_token_s`, and those that `uses` names.
    uses : dict
        What calls use of resources that are not measured, such as `energy_wh`, by model and resource.
    max_share, min_share : dict
        The largest and the least share of the requests that a model gets, by model.
    min_quality : float, optional
        The least expected mean score of the requests.
    artifact : str, optional
        A file written by `wiserouter fit`; without one the router starts without any estimates.
    encoder : str, optional
        "litellm/<model>" for an embedding model of LiteLLM; by default the artifact's encoder, and without an artifact
        one that needs no log.
    encoder_params : dict
        Parameters of the embedding call, such as `api_key`.
    contexts : int, optional
        Without an artifact: the largest number of kinds of question that are told apart, as prompts come; 1 tells none
        apart and reads no prompt. By default 16.
    prices : dict
        Prices by model, which come before LiteLLM's.
    arms : dict
        The parameters with which the deployments of a model are called, by model: a model of the pool for each, such as
        "gpt-5@low". By default those of the artifact.
    mode : {"route", "shadow"}
        Whether the router routes, or decides and records while the calls go where they went.
    share : float
        In shadow mode: the share of conversations on which it acts, within the same share of the budget.
    signals : list of str
        The rules that score an answer 0 where it has certainly failed.
    otel_evaluations : bool
        Whether each score is emitted as an event `gen_ai.evaluation.result` of OpenTelemetry.
    otel_decisions : bool
        Whether each decision is a span `wiserouter.decide` of OpenTelemetry, below that of its request.
    priors : str or dict, optional
        Prior qualities: a family of published scores such as "code", a csv file, or scores by model.
    explore_requests : int, optional
        Without an artifact: the number of requests that explore all models in turn, as in the paper, instead of
        learning optimistically.
    store : str
        The URL of the store of budgets and decisions.
    reservation_ttl_s : float, seconds
        The time after which a call that never reported is presumed to have been billed; longer than the longest call.
    feedback_ttl_s : float, seconds
        The time for which an answer can be rated.
    judge : JudgeBlock, optional
        A model that scores a share of the answers.
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
    values: ValueSettings | None = None
    limits: dict[str, LimitSettings] = Field(default_factory=dict)
    uses: dict[str, dict[str, UseSettings]] = Field(default_factory=dict)
    max_share: dict[str, Share] = Field(default_factory=dict)
    min_share: dict[str, Share] = Field(default_factory=dict)
    min_quality: Share | None = None
    artifact: PathText | None = None
    encoder: str | None = Field(None, pattern=r"^litellm/.+")
    encoder_params: dict[str, Any] = Field(default_factory=dict)
    contexts: int | None = Field(None, ge=1, le=1_000)
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    priors: Priors | None = None
    arms: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    mode: Literal["route", "shadow"] = "route"
    share: float = Field(0.0, ge=0, le=1)
    signals: list[Rule] = Field(default_factory=list)
    otel_evaluations: bool = False
    otel_decisions: bool = False
    explore_requests: int | None = Field(None, ge=1)
    store: str = "memory://"
    reservation_ttl_s: float = Field(900.0, gt=0)
    feedback_ttl_s: float = Field(7 * 86_400.0, gt=0)
    judge: JudgeBlock | None = None
    journal: PathText | None = None
    label_share: float | None = Field(None, gt=0, le=1)
    explore_share: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _knows_uses(self) -> AccountSettings:
        check_uses_are_known(self.limits, self.uses)
        return self

    @model_validator(mode="after")
    def _shadows_calls(self) -> AccountSettings:
        if self.mode == "route" and self.share:
            raise ValueError("share needs mode: shadow")
        if self.mode == "shadow" and self.unit != "call":
            raise ValueError(f"mode: shadow decides each call alone: it needs unit: call, got unit: {self.unit}")
        return self

    @model_validator(mode="after")
    def _encodes_for_contexts(self) -> AccountSettings:
        if self.contexts is not None and self.artifact is not None:
            raise ValueError("contexts is for a group without artifact: that one has its own contexts")
        if self.contexts is not None and self.contexts > 1 and self.explore_requests is not None:
            raise ValueError("contexts must be 1 with explore_requests, which explores one context: leave one out")
        if self.encoder is not None and self.artifact is None and not self.grows:
            raise ValueError("encoder needs several contexts: leave out contexts: 1 and explore_requests")
        return self

    @property
    def grows(self) -> bool:
        """Whether the group starts without contexts, and fits them as prompts come."""
        return self.artifact is None and self.contexts != 1 and self.explore_requests is None
