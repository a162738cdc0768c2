"""Which deployments serve a group, which model of the pool each one is, and what it asks.

Several deployments may be one model (regions, keys); which of them answers is LiteLLM's own choice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wiserouter import Price
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter.pricing.tokens import count_tokens
from wiserouter_litellm.price_map import Tariff, tariff_of

logger = logging.getLogger("wiserouter.litellm")

Deployment = Mapping[str, Any]


class DeploymentInfo(NamedTuple):
    """One deployment: the model that it is, its prices, and what counts its tokens.

    Attributes
    ----------
    model : str
        Its name in the pool.
    tariff : Tariff
        Prices and limits.
    encoding : str or None
        The encoding that counts its tokens exactly, if any does.
    counted_as : str
        The model whose encoding that is.
    """

    model: str
    tariff: Tariff
    encoding: str | None
    counted_as: str


class DeploymentRegistry:
    """The deployments of one group, learned of as they appear.

    Parameters
    ----------
    group : str
        The group's name.
    known : collection of str
        Models of the pool that was fitted, whose names deployments are matched with.
    prices : mapping of str to Price
        Prices by model, deployment id or LiteLLM model, instead of LiteLLM's.
    """

    def __init__(self, group: str, known: Collection[str] = (), prices: Mapping[str, Price] | None = None) -> None:
        self._group, self._known, self._prices = group, set(known), dict(prices or {})
        self._berths: dict[str, DeploymentInfo] = {}
        self._left_out: set[str] = set()

    @property
    def infos(self) -> dict[str, DeploymentInfo]:
        """All deployments seen so far, by id."""
        return dict(self._berths)

    def find(self, deployment_id: object) -> DeploymentInfo | None:
        """Return the deployment of this id, if it is one of the group's."""
        return self._berths.get(str(deployment_id)) if deployment_id else None

    def register(self, deployments: Iterable[Deployment], *, strict: bool = False) -> list[DeploymentInfo]:
        """Learn of deployments, and return those that were new; one without an id yet is only looked at.

        One without a price, or at odds with another, is refused where `strict`, else left out and reported once: it is
        never counted as free.

        Raises
        ------
        UnknownPrice
            If a deployment has no price.
        InvalidInput
            If two deployments of one model differ in price.
        """
        new: list[DeploymentInfo] = []
        for deployment in deployments:
            key = id_of(deployment)
            if key in self._berths or key in self._left_out:
                continue
            try:
                info = self._berth(deployment, new)
            except (UnknownPrice, InvalidInput) as error:
                if strict:
                    raise
                self._left_out.add(key)
                logger.error("group %r: %s; the deployment gets no traffic", self._group, error)
                continue
            new.append(info)
            if key:
                self._berths[key] = info
        return new

    def _berth(self, deployment: Deployment, new: Sequence[DeploymentInfo]) -> DeploymentInfo:
        name = self._name(deployment)
        litellm_model = str(deployment["litellm_params"].get("model"))
        own = next((self._prices[key] for key in (name, id_of(deployment), litellm_model) if key in self._prices), None)
        tariff = tariff_of(deployment, own)
        for other in [*self._berths.values(), *new]:
            if other.model == name and other.tariff.price != tariff.price:
                raise InvalidInput(
                    f"group {self._group!r}: deployments of one model must have one price, got {other.tariff.price} "
                    f"and {tariff.price} for {name!r}: tell them apart by model_info.wiserouter_model",
                    value=name,
                )
        counting = str((deployment.get("model_info") or {}).get("base_model") or litellm_model).removeprefix("azure/")
        return DeploymentInfo(name, tariff, _encoding(counting), counting)

    def _name(self, deployment: Deployment) -> str:
        """Return which model of the pool a deployment is: as told, else as fitted, else by LiteLLM's names."""
        info, params = deployment.get("model_info") or {}, deployment["litellm_params"]
        told = info.get("wiserouter_model")
        if told:
            return str(told)
        model, public = str(params.get("model")), str(deployment.get("model_name"))
        own_names = [public] if public != self._group else []
        names = [*own_names, str(info.get("id")), model, model.partition("/")[2]]
        fallback = own_names[0] if own_names else model
        return next((name for name in names if name in self._known), fallback)


def id_of(deployment: Deployment) -> str:
    """Return the id of a deployment, empty where a configuration file gives none: the router makes it later."""
    info = deployment.get("model_info")
    return str(info.get("id") or "") if info else ""


def _encoding(litellm_model: str) -> str | None:
    """Return the encoding that counts the tokens of a model exactly, or None where there is only a bound."""
    probe = count_tokens("naïve", litellm_model)
    return probe.encoding if probe.at_most < len("naïve".encode()) else None
