"""The settings of limits beside the budget: their bounds, and the uses of calls that LiteLLM does not measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from wiserouter import Limit
from wiserouter_litellm.settings.strict_settings import Strict

MEASURED = ("latency_s", "first_token_s")
"""The resources that LiteLLM measures."""

Share = Annotated[float, Field(ge=0, le=1)]


class LimitSettings(Strict):
    """The limit of a resource: a mean per request, a sum, or a threshold and the largest share of requests above it."""

    mean: float | None = Field(None, gt=0)
    share_above: tuple[float, float] | None = None
    total: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _is_a_limit(self) -> LimitSettings:
        Limit(**self.model_dump())
        return self


class UseSettings(Strict):
    """What a call of a model uses of a resource: each call, and each token of its prompt and answer."""

    call: float = Field(0.0, ge=0)
    input_token: float = Field(0.0, ge=0)
    output_token: float = Field(0.0, ge=0)


def check_uses_are_known(limits: Mapping[str, LimitSettings], uses: Mapping[str, Mapping[str, UseSettings]]) -> None:
    """Raise `ValueError` if a limited resource is neither measured nor stated, or one is both."""
    stated = {resource for row in uses.values() for resource in row}
    if both := stated.intersection(MEASURED):
        raise ValueError(f"uses must not name what LiteLLM measures, got {min(both)}")
    for resource in limits:
        if resource not in stated.union(MEASURED):
            raise ValueError(f"limits of {resource} need its uses by model: LiteLLM measures {' and '.join(MEASURED)}")
