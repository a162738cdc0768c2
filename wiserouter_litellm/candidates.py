"""What a request can be served by, what it can cost, and the ranked copies that LiteLLM gets. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wiserouter.pricing.tokens import count_tokens
from wiserouter_litellm.deployments import Deployment, DeploymentInfo
from wiserouter_litellm.errors import too_long
from wiserouter_litellm.request import Request


class Candidate(NamedTuple):
    """A healthy deployment, what it is, and whether it failed earlier in this request."""

    deployment: Deployment
    info: DeploymentInfo
    failed: bool


Candidates = Sequence[Candidate]


class Length(NamedTuple):
    """How long a request is, in tokens.

    Attributes
    ----------
    n_bytes : int
        UTF-8 bytes and overhead: an upper bound for every byte-level tokenizer.
    about : int
        An estimate; the bytes where nothing was counted.
    exact : dict of str to int
        By encoding, text and overhead.
    """

    n_bytes: int
    about: int
    exact: Mapping[str, int]

    def at_most(self, info: DeploymentInfo) -> int:
        """Return an upper bound for one model."""
        return self.exact.get(info.encoding or "", self.n_bytes)


def fresh_models(offer: Candidates) -> list[str]:
    """Return the models on offer; those that failed in this request only where there is no other.

    Examples
    --------
    >>> fresh_models([])
    []
    """
    fresh = [one.info.model for one in offer if not one.failed]
    return list(dict.fromkeys(fresh or [one.info.model for one in offer]))


def is_worth_counting(request: Request, offer: Candidates, *, hard: bool) -> bool:
    """Return whether tokens must be counted: for a tighter bound, or where a context window may be too small."""
    n_bytes = _n_bytes(request)
    windows = [one.info.tariff.max_input_tokens for one in offer]
    exact = hard and any(one.info.encoding for one in offer)
    return exact or any(window is not None and window < n_bytes for window in windows)


def uncounted(request: Request) -> Length:
    """Return the length of a request in bytes alone."""
    n_bytes = _n_bytes(request)
    return Length(n_bytes, n_bytes, {})


def counted(request: Request, offer: Candidates) -> Length:
    """Return the length of a request, counted by each encoding that the offer's models are known to use."""
    examples = {one.info.encoding: one.info.counted_as for one in offer if one.info.encoding}
    text, overhead = request.counted, request.overhead_tokens
    exact = {encoding: count_tokens(text, model).at_most + overhead for encoding, model in examples.items()}
    about = max(exact.values()) if exact else count_tokens(text).tokens + overhead
    return Length(_n_bytes(request), about, exact)


def fitting(group: str, models: Iterable[str], offer: Candidates, length: Length) -> list[str]:
    """Return the models whose context window takes the request.

    Raises
    ------
    litellm.ContextWindowExceededError
        If there is none, so that LiteLLM's `context_window_fallbacks` apply.
    """
    windows = {one.info.model: one.info.tariff.max_input_tokens for one in offer}
    about = {one.info.model: length.exact.get(one.info.encoding or "", length.about) for one in offer}
    names = list(models)
    kept = [name for name in names if (window := windows[name]) is None or about[name] <= window]
    if not kept:
        raise too_long(group, min(about.values()), {name: window for name in names if (window := windows[name])})
    return kept


def worst_cases_usd(
    request: Request, offer: Candidates, length: Length, cap_output_tokens: int | None
) -> dict[str, float]:
    """Return the most that the request can cost with each model on offer; infinite where nothing bounds it."""
    asked = request.output_tokens if request.output_tokens is not None else cap_output_tokens
    worst: dict[str, float] = {}
    for one in offer:
        tariff, inputs = one.info.tariff, length.at_most(one.info) if request.countable else None
        usd = tariff.worst_case_usd(inputs, asked, request.choices, request.tier)
        worst[one.info.model] = max(worst.get(one.info.model, 0.0), usd)
    return worst


def ranked(
    offer: Candidates, ranking: Sequence[str], params: Mapping[str, Any], mark: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return copies of the deployments with the lowest `order` for the first model of the ranking.

    Deployments of one model keep one order, so that LiteLLM's own strategy chooses between them; one that failed in
    this request comes after its equals, and an order that the configuration gives counts within the model.

    Parameters
    ----------
    offer : sequence of Candidate
        The deployments.
    ranking : sequence of str
        Models, best first; deployments of others are left out.
    params : mapping
        What to send to the provider besides.
    mark : mapping
        What `model_info` carries to the log events of the call.
    """
    rank = {name: i for i, name in enumerate(ranking)}
    keys = [(rank[one.info.model], one.failed, _own_order(one)) for one in offer if one.info.model in rank]
    order = {key: place for place, key in enumerate(sorted(set(keys)), start=1)}
    kept = [one.deployment for one in offer if one.info.model in rank]
    return [_copy(each, {**params, "order": order[key]}, mark) for each, key in zip(kept, keys, strict=True)]


def _copy(deployment: Deployment, params: Mapping[str, Any], mark: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **deployment,
        "litellm_params": {**deployment["litellm_params"], **params},
        "model_info": {**deployment["model_info"], **mark},
    }


def _own_order(one: Candidate) -> float:
    order = one.deployment["litellm_params"].get("order")
    return float(order) if isinstance(order, int | float) else 0.0


def _n_bytes(request: Request) -> int:
    return len(request.counted.encode("utf-8", "surrogatepass")) + request.overhead_tokens
