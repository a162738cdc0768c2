"""The bodies of the routes by which administrators act while the proxy serves; no key is ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from wiserouter.integration import BudgetChange
from wiserouter_litellm.groups.scopes import OWN
from wiserouter_litellm.settings.budget_settings import MOST_REQUESTS, PriceSettings

Name = Annotated[str, Field(min_length=1, max_length=512)]

MOST_USD = 1e12
"""The largest amount of a budget."""

MOST_PAUSE_S = 366 * 86_400.0
"""The longest pause that ends by itself."""

Amount = Annotated[float, Field(ge=0, le=MOST_USD, strict=True)]


class Order(BaseModel):
    """An order of an administrator for one group; no key is ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    group: Name = Field(description="a group, or a budget that several groups share")


class BudgetOrder(Order):
    """A change of one budget; what is left out stays as it is."""

    scope: Name = Field(OWN, description="default for the group's own budget, or that of a caller: team:research")
    every: Annotated[str, Field(max_length=16)] | None = Field(
        None, description="the period of the budget, where the scope has several"
    )
    amount_usd: Amount | None = Field(None, description="the amount from now on; ends increases")
    add_usd: Annotated[float, Field(gt=0, le=MOST_USD, strict=True)] | None = Field(None, description="an increase")
    windows: Annotated[int, Field(ge=1, le=366, strict=True)] | None = Field(
        None, description="windows that the increase lasts, the running one included"
    )
    requests: Annotated[int, Field(ge=1, le=MOST_REQUESTS, strict=True)] | None = Field(
        None, description="the number of requests that the budget is for"
    )
    limit: Literal["expected", "hard"] | None = Field(
        None, description="hard only while paused, with no call in flight"
    )
    paused: Annotated[bool, Field(strict=True)] | None = Field(None, description="true refuses all calls")
    reason: str = Field("", max_length=200, description="why, for those who are refused")
    pause_s: Annotated[float, Field(gt=0, le=MOST_PAUSE_S, strict=True)] | None = Field(
        None, description="seconds after which the pause ends by itself"
    )
    end: Annotated[bool, Field(strict=True)] = Field(False, description="end the budget for good")

    def change(self) -> BudgetChange:
        """Return the core's change; raises `InvalidInput` where the terms exclude each other."""
        return BudgetChange(
            amount_usd=self.amount_usd,
            add_usd=self.add_usd,
            windows=self.windows,
            horizon=self.requests,
            limit=self.limit,
            paused=self.paused,
            reason=self.reason,
            pause_s=self.pause_s,
            ended=self.end,
            every=self.every,
        )


class ModelOrderBody(Order):
    """An order for one model; what is left out stays as it is, and null takes an order back."""

    model: Name = Field(description="a model of the group, as /wiserouter/status names it")
    price: PriceSettings | None = Field(None, description="USD per token")
    retired: Annotated[bool, Field(strict=True)] | None = Field(None, description="true sends it no more queries")
    max_share: Annotated[float, Field(ge=0, le=1, strict=True)] | None = Field(
        None, description="the most of the decisions that it receives"
    )

    def given(self) -> dict[str, Any]:
        """Return the terms that the body names."""
        terms = {
            name: getattr(self, name) for name in ("price", "retired", "max_share") if name in self.model_fields_set
        }
        return {name: one.price() if isinstance(one, PriceSettings) else one for name, one in terms.items()}


class ModeOrder(Order):
    """An order for the mode of a group; null takes it back."""

    mode: Literal["route", "shadow"] | None = Field(description="route, or shadow, which only observes")
    share: Annotated[float, Field(ge=0, le=1, strict=True)] = Field(
        0.0, description="in shadow mode: the share of the traffic that the router acts on"
    )
