"""The deployments of a group: the model of the pool that each one is, its prices and its limits.

Several deployments may be one model (regions, keys); LiteLLM itself chooses between them. One deployment may be several
models: arms, which differ in the parameters of its calls.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple

from wiserouter import Model, Price
from wiserouter.errors import InvalidInput, UnknownPrice
from wiserouter.integration import Params, PriorScores, RateCard, exact_encoding, rates_of
from wiserouter_litellm.deployments.arms import EFFORTS, Arms, ArmSettings, arms_of_pool, with_arm
from wiserouter_litellm.deployments.deployment_defaults import Defaults, defaults_of, is_unsent, unknown_limits
from wiserouter_litellm.deployments.deployment_source import DeploymentSource, source_of, unexpanded
from wiserouter_litellm.deployments.price_map import rate_card_of, states_its_prices, unbounded_price

logger = logging.getLogger("wiserouter.litellm")

Deployment = Mapping[str, Any]


class DeploymentInfo(NamedTuple):
    """One deployment: the model that it is, its prices and limits, and the encoding of its tokens.

    Attributes
    ----------
    model : str
        Its name in the pool.
    rate_card : RateCard
        Prices and limits.
    encoding : str or None
        The encoding that counts its tokens exactly, if any does.
    encoding_of : str
        The model whose encoding that is.
    defaults : Defaults
        The parameters that it adds to requests.
    unknown_limits : frozenset of str
        The limits of a chat that its provider does not know.
    has_own_prices : bool
        Whether it states its prices itself, so that no call costs less than its tokens at these.
    changed_at_s : float
        When LiteLLM was found to have changed it, since 1970; calls that started before have its former prices.
    """

    model: str
    rate_card: RateCard
    encoding: str | None
    encoding_of: str
    defaults: Defaults = Defaults()
    unknown_limits: frozenset[str] = frozenset()
    has_own_prices: bool = False
    changed_at_s: float = 0.0

    @property
    def params(self) -> Params:
        """The parameters that its calls add, where it is an arm."""
        return self.rate_card.params

    @property
    def family(self) -> str:
        """The model that it is an arm of, or is."""
        return self.rate_card.family or self.model


class Candidate(NamedTuple):
    """A healthy deployment, its id, its figures, and whether it failed earlier in this request."""

    deployment: Deployment
    id: str
    info: DeploymentInfo
    failed: bool

    @property
    def litellm_params(self) -> Mapping[str, Any]:
        """The parameters of its calls: its own, and those of its arm in place of these."""
        params: Mapping[str, Any] = self.deployment["litellm_params"]
        return with_arm(params, self.info.params) if self.info.params else params


Candidates = Sequence[Candidate]


class DeploymentRegistry:
    """The deployments of one group, registered as they appear, and read again when LiteLLM changes them.

    Parameters
    ----------
    group : str
        The group's name.
    fitted_models : sequence of Model
        Models of a fitted pool; deployments are matched with them by name, and have their arms.
    prices : mapping of str to Price
        Prices by model, deployment id or LiteLLM model, which come before LiteLLM's.
    priors : PriorScores, optional
        Prior qualities by model, deployment id or LiteLLM model.
    arms : mapping of str to sequence of ArmSettings
        Arms by the same names, which come before those of the fitted pool.

    Attributes
    ----------
    has_arms : bool
        Whether a deployment is several models.
    unused_arms : set of str
        The `arms` of no deployment yet.
    is_served : callable
        Returns False for the id of a deployment that LiteLLM has removed.
    call_defaults : mapping of str to object
        What LiteLLM's Router adds to each call, before what its deployment has (`default_litellm_params`).
    """

    def __init__(
        self,
        group: str,
        fitted_models: Sequence[Model] = (),
        prices: Mapping[str, Price] | None = None,
        priors: PriorScores | None = None,
        arms: Arms | None = None,
    ) -> None:
        self._priors = priors or PriorScores([])
        self._group, self._prices = group, dict(prices or {})
        self._fitted_models = {model.name for model in fitted_models}
        self._fitted_arms, self._stated_arms = arms_of_pool(fitted_models), dict(arms or {})
        self.has_arms, self.unused_arms = False, set(arms or {})
        self.is_served: Callable[[str], bool] = lambda _: True
        self.call_defaults: Mapping[str, Any] = {}
        self._infos: dict[str, DeploymentInfo] = {}
        self._arms: dict[str, list[DeploymentInfo]] = {}
        self._configured: dict[tuple[str, str], RateCard] = {}
        self._ordered: Mapping[str, Price] = {}
        self._sources: dict[str, DeploymentSource] = {}
        self._refused: set[str] = set()
        self._removed: set[str] = set()
        self._changing: set[str] = set()
        self._registering = Lock()

    @property
    def infos(self) -> list[DeploymentInfo]:
        """All deployments registered so far, each as often as it has arms."""
        return [info for _, info in self._served()]

    def n_deployments(self, model: str) -> int:
        """Return the number of deployments of a model."""
        return sum(info.model == model for info in self.infos)

    def price(self, prices: Mapping[str, Price]) -> None:
        """Take the prices that administrators have set for models, and those of the configuration for the others.

        A call is still bounded by the price of the configuration where that is higher, since LiteLLM bills by it.
        """
        with self._registering:
            self._ordered = prices
            for id_, info in self._infos.items():
                self._infos[id_] = self._priced(id_, info)
            for id_, arms in self._arms.items():
                self._arms[id_] = [self._priced(id_, arm) for arm in arms]

    def _priced(self, id_: str, info: DeploymentInfo) -> DeploymentInfo:
        configured = self._configured.setdefault((id_, info.model), info.rate_card)
        price = self._ordered.get(info.model)
        if price is None:
            return info._replace(rate_card=configured)
        rates = (*configured.rates, *rates_of(price))
        return info._replace(rate_card=replace(configured, price=price, rates=rates, source="administrator"))

    def find(self, *deployment_ids: object, arm: object = None) -> DeploymentInfo | None:
        """Return the deployment of one of these ids, or an arm of it, if it is one of the group's."""
        for id_ in deployment_ids:
            if id_ and (info := self._infos.get(str(id_))) is not None:
                arms = self._arms.get(str(id_), ()) if arm else ()
                return next((one for one in arms if one.model == arm), info)
        return None

    def resolve(
        self,
        deployments: Sequence[Deployment],
        failed_ids: Collection[str],
        model_group: str = "",
        *,
        are_calls: bool = False,
    ) -> tuple[Candidates, list[DeploymentInfo]]:
        """Return the deployments that can serve, and the infos that are new or changed.

        Parameters
        ----------
        deployments : sequence of mapping
            The healthy deployments.
        failed_ids : collection of str
            Those that failed earlier in the request.
        model_group : str
            The model group that they serve, where it is another one: that of a fallback.
        are_calls : bool, default False
            Whether their parameters hold those of a request as well; what is known is then not read again.
        """
        if self._refused:  # what they are at odds with may have been removed
            with self._registering:
                self._leave_out_removed()
        with_ids = [(deployment, id_of(deployment)) for deployment in deployments]
        read = self._sources
        unread = [one for one, id_ in with_ids if id_ not in read or not (are_calls or read[id_].is_of(one))]
        new = self.register(unread, model_group) if unread else []
        known = self._infos
        if self._refused:
            with_ids = [(one, id_) for one, id_ in with_ids if id_ not in self._refused]
        if not self.has_arms:
            return [Candidate(one, id_, known[id_], id_ in failed_ids) for one, id_ in with_ids if id_ in known], new
        served = [(one, id_, self._arms.get(id_) or [known[id_]]) for one, id_ in with_ids if id_ in known]
        return [Candidate(one, id_, arm, id_ in failed_ids) for one, id_, arms in served for arm in arms], new

    def register(
        self, deployments: Iterable[Deployment], model_group: str = "", *, strict: bool = False
    ) -> list[DeploymentInfo]:
        """Register deployments, and return those that are new or have changed, each as often as it has arms.

        One without an id yet is returned, but not kept.

        One without a price, or at odds with another, is refused: with an error where `strict`, else it is left out and
        reported once, until it or another changes. It is never counted as free. A deployment of another `model_group`,
        to which a request fell back, is a model of its own if its price differs from that of a model of the same name.

        Raises
        ------
        UnknownPrice
            If a deployment has no price.
        InvalidInput
            If two deployments of one model differ in price.
        """
        with self._registering:
            self._leave_out_removed()
            known = [(one, self._sources.get(id_of(one))) for one in deployments]
            unread = [unexpanded(one, source) for one, source in known if source is None or not source.is_of(one)]
            changed = {id_of(one) for one in unread}
            self._changing = {id_ for id_, one in self._sources.items() if id_ in changed or not one.is_current()}
            if self._changing:  # what a refused one was at odds with may be gone
                self._sources = {id_: one for id_, one in self._sources.items() if id_ not in self._refused}
            try:
                return self._register(unread, model_group, strict=strict)
            finally:
                self._changing = set()

    def _leave_out_removed(self) -> None:
        """Read again what was at odds with deployments that LiteLLM has removed; they only settle their calls now."""
        removed = {id_ for id_, _ in self._served() if not self.is_served(id_)}
        if removed:
            self._removed |= removed
            outdated = removed | self._refused
            self._sources = {id_: one for id_, one in self._sources.items() if id_ not in outdated}

    def _register(self, deployments: Iterable[Deployment], model_group: str, *, strict: bool) -> list[DeploymentInfo]:
        new: list[DeploymentInfo] = []
        found: list[DeploymentInfo] = []
        for deployment in deployments:
            key, source = id_of(deployment), source_of(deployment)  # as it was before its figures are read
            try:
                info = self._info_of(deployment, new, model_group)
                if key in self._changing:
                    info = info._replace(changed_at_s=time.time())
                arms = self._arms_of(deployment, info, new)
            except (UnknownPrice, InvalidInput) as error:
                if strict:
                    raise
                self._refused.add(key)
                self._sources[key] = source
                logger.error("group %r: %s; the deployment gets no traffic", self._group, error)
                continue
            new += arms or [info]
            found += self._keep(key, source, info, arms) if key else arms or [info]
        return found

    def _keep(
        self, key: str, source: DeploymentSource, info: DeploymentInfo, arms: Sequence[DeploymentInfo]
    ) -> list[DeploymentInfo]:
        """Keep a deployment in place of what was known of it, and return it at the prices that hold."""
        self._configured = {place: card for place, card in self._configured.items() if place[0] != key}
        self._infos[key] = self._priced(key, info)
        self._arms.pop(key, None)
        if arms:
            self._arms[key] = [self._priced(key, arm) for arm in arms]
        self.has_arms = bool(self._arms)
        self._refused.discard(key)
        self._removed.discard(key)
        self._sources[key] = source
        return self._arms.get(key) or [self._infos[key]]

    def _arms_of(
        self, deployment: Deployment, plain: DeploymentInfo, new: Sequence[DeploymentInfo]
    ) -> list[DeploymentInfo]:
        """Return the arms of a deployment; none where it is one model."""
        params = deployment["litellm_params"]
        names = (plain.model, id_of(deployment), str(params.get("model")))
        key = next((name for name in names if name in self._stated_arms), "")
        self.unused_arms.discard(key)
        stated: Sequence[ArmSettings] = self._stated_arms.get(key, ())
        if not key and plain.model not in self._fitted_models:
            stated = self._fitted_arms.get(plain.model, ())
        if any(EFFORTS[0] in arm.params for arm in stated) and is_unsent(EFFORTS[0], params):
            logger.warning(
                "group %r: LiteLLM does not know that %s takes %s: add it to its allowed_openai_params",
                self._group,
                names[-1],
                EFFORTS[0],
            )
        arms = [self._arm(params, plain, one, unbounded_price(deployment)) for one in stated]
        for one in arms:
            self._check_one_price(one, new)
        return arms

    def _arm(
        self, params: Deployment, plain: DeploymentInfo, arm: ArmSettings, unbounded: str | None
    ) -> DeploymentInfo:
        """Return a deployment with the parameters of an arm."""
        name = arm.named(plain.model)
        card, own, prior = plain.rate_card, self._prices.get(name), self._priors.find(name)
        if own is not None:
            rates = tuple(rates_of(own))
            card = replace(card, price=own, rates=rates, source="settings", long_prompt_prices=(), tier_prices=())
        card = replace(card, prior=prior or card.prior, params=arm.params, family=plain.model)
        return plain._replace(
            model=name,
            rate_card=card,
            defaults=defaults_of(with_arm(params, arm.params), unbounded, plain.encoding_of),
            has_own_prices=plain.has_own_prices and own is None,
        )

    def _check_one_price(self, info: DeploymentInfo, new: Sequence[DeploymentInfo]) -> None:
        for other in self._known(new):
            if other.model == info.model and other.rate_card.price != info.rate_card.price:
                raise InvalidInput(
                    f"group {self._group!r}: deployments of one model must have one price, got "
                    f"{other.rate_card.price} and {info.rate_card.price} for {info.model!r}: tell them apart by "
                    f"model_info.wiserouter_model",
                    value=info.model,
                )

    def _info_of(self, deployment: Deployment, new: Sequence[DeploymentInfo], model_group: str) -> DeploymentInfo:
        name = self._model_of(deployment, model_group)
        litellm_model = str(deployment["litellm_params"].get("model"))
        own = next((self._prices[key] for key in (name, id_of(deployment), litellm_model) if key in self._prices), None)
        base_model = str((deployment.get("model_info") or {}).get("base_model") or litellm_model)
        prior = self._priors.find(name, id_of(deployment), litellm_model, base_model)
        rate_card = replace(rate_card_of(deployment, own), prior=prior)
        if model_group and self._price_differs(name, rate_card, new):
            name = f"{name} ({model_group})"
        encoding_of = base_model.removeprefix("azure/")
        params = deployment["litellm_params"]
        encoding = exact_encoding(encoding_of)
        info = DeploymentInfo(
            name,
            rate_card,
            encoding,
            encoding_of,
            defaults_of(params, unbounded_price(deployment), encoding_of),
            unknown_limits(params),
            has_own_prices=own is None and states_its_prices(deployment),
        )
        self._check_one_price(info, new)
        return info

    def _price_differs(self, name: str, rate_card: RateCard, new: Sequence[DeploymentInfo]) -> bool:
        return any(info.model == name and info.rate_card.price != rate_card.price for info in self._known(new))

    def _known(self, new: Sequence[DeploymentInfo]) -> Iterable[DeploymentInfo]:
        """Return all deployments that stay as they are, at the prices of the configuration, and new ones."""
        for id_, info in self._served():
            if id_ not in self._changing:
                yield info._replace(rate_card=self._configured.get((id_, info.model), info.rate_card))
        yield from new

    def _served(self) -> list[tuple[str, DeploymentInfo]]:
        """Return the deployments that get traffic with their ids, each as often as it has arms."""
        left_out = self._refused | self._removed
        served = [(id_, plain) for id_, plain in self._infos.items() if id_ not in left_out]
        return [(id_, info) for id_, plain in served for info in self._arms.get(id_) or [plain]]

    def _model_of(self, deployment: Deployment, model_group: str) -> str:
        """Return the name of a deployment's model: as the configuration states, else as fitted, else LiteLLM's."""
        info, params = deployment.get("model_info") or {}, deployment["litellm_params"]
        stated = info.get("wiserouter_model")
        if stated:
            return str(stated)
        model, public = str(params.get("model")), str(deployment.get("model_name"))
        own_names = [public] if public not in {self._group, model_group} else []
        names = [*own_names, str(info.get("id")), model, model.partition("/")[2]]
        fallback = own_names[0] if own_names else model
        known = (name for fitted in (self._fitted_models, self._fitted_arms) for name in names if name in fitted)
        return next(known, fallback)


def id_of(deployment: Deployment) -> str:
    """Return the id of a deployment; empty where a configuration file gives none, since the router makes it later."""
    info = deployment.get("model_info")
    return str(info.get("id") or "") if info else ""
