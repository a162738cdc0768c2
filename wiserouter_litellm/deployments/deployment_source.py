"""What the figures of a deployment were read from, so that they are read again once LiteLLM changes it.

LiteLLM puts other objects in place of those of a changed deployment, and another price map in place of its own: in the
background where it could not fetch that at first, and where an administrator reloads it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import litellm

from wiserouter import WiseRouter
from wiserouter.integration import RateCard

logger = logging.getLogger("wiserouter.litellm")


class DeploymentSource(NamedTuple):
    """The parameters and the `model_info` of a deployment, and LiteLLM's price map, when its figures were read."""

    params: Mapping[str, Any]
    info: Mapping[str, Any] | None
    price_map: Mapping[str, Any]

    def is_of(self, deployment: Mapping[str, Any]) -> bool:
        """Return True if a deployment still is as it was."""
        return self.is_current() and (self == source_of(deployment) or self == source_of(unexpanded(deployment, self)))

    def is_current(self) -> bool:
        """Return True if LiteLLM still has the price map."""
        return self.price_map is litellm.model_cost


def source_of(deployment: Mapping[str, Any]) -> DeploymentSource:
    """Return the parameters and the `model_info` of a deployment, and LiteLLM's price map, as they are now."""
    return DeploymentSource(deployment["litellm_params"], deployment.get("model_info"), litellm.model_cost)


def unexpanded(deployment: Mapping[str, Any], source: DeploymentSource | None) -> Mapping[str, Any]:
    """Return a deployment of a pattern under the model that was read: LiteLLM hands out a copy for each name.

    One that came later may have been read from such a copy.
    """
    model = None if source is None else source.params.get("model")
    if not model or "*" not in str(deployment.get("model_name")):
        return deployment
    return {**deployment, "litellm_params": {**deployment["litellm_params"], "model": model}}


def follow_figures(router: WiseRouter, name: str, card: RateCard) -> None:
    """Give a model of the pool the prices and limits of its deployment, if it has others."""
    present, model = router.pool.by_name[name], card.model(name)
    following = replace(
        present,
        price=model.price,
        max_output_tokens=model.max_output_tokens,
        max_input_tokens=model.max_input_tokens,
        max_cost_usd=model.max_cost_usd,
        batch_price=model.batch_price,
    )
    if following != present:
        router.update_model(following)
        logger.info("model %r has the prices and limits of its deployment", name)
