"""The candidates of a request: the models that can take it, the bounds on its cost, the ranked copies for LiteLLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from wiserouter.errors import BudgetExhausted
from wiserouter.integration import CallRequest, count_tokens
from wiserouter_litellm.deployments import Deployment, DeploymentInfo
from wiserouter_litellm.errors import too_long
from wiserouter_litellm.limits import ALL_LIMITS, LEAST_OUTPUT_TOKENS


class Candidate(NamedTuple):
    """A healthy deployment, its id, its figures, and whether it failed earlier in this request."""

    deployment: Deployment
    id: str
    info: DeploymentInfo
    failed: bool


Candidates = Sequence[Candidate]


class Length(NamedTuple):
    """The length of a request in tokens.

    Attributes
    ----------
    bound : int
        UTF-8 bytes and overhead: an upper bound for every byte-level tokenizer.
    estimate : int
        The tokens and overhead; the bound where nothing was counted.
    exact : dict of str to int
        Text and overhead by encoding.
    """

    bound: int
    estimate: int
    exact: Mapping[str, int]

    def bound_for(self, info: DeploymentInfo) -> int:
        """Return an upper bound for one deployment."""
        return self.exact.get(info.encoding or "", self.bound)

    def estimate_for(self, info: DeploymentInfo) -> int:
        """Return an estimate for one deployment."""
        return self.exact.get(info.encoding or "", self.estimate)


def is_worth_counting(request: CallRequest, candidates: Candidates, *, hard: bool) -> bool:
    """Return True if tokens must be counted: for a tighter bound, or where a context window may be too small."""
    return _is_worth_counting(request.input_bound_tokens, candidates, hard=hard)


def _length_of(request: CallRequest, candidates: Candidates, *, hard: bool) -> Length:
    """Return the length of a request, counted by each encoding of the candidates where that is worth it."""
    bound = request.input_bound_tokens
    if not _is_worth_counting(bound, candidates, hard=hard):
        return Length(bound, bound, {})
    text, overhead = request.counted, request.overhead_tokens
    models = {one.info.encoding: one.info.encoding_of for one in candidates if one.info.encoding}
    exact = {encoding: count_tokens(text, model).at_most + overhead for encoding, model in models.items()}
    return Length(bound, max(exact.values()) if exact else count_tokens(text).tokens + overhead, exact)


def fitting_models(group: str, request: CallRequest, candidates: Candidates, *, hard: bool) -> tuple[list[str], Length]:
    """Return the models whose context window takes the request, and its length.

    A model that failed in this request counts only where there is no other.

    Raises
    ------
    litellm.ContextWindowExceededError
        If there is none, so that LiteLLM's `context_window_fallbacks` apply.
    """
    length = _length_of(request, candidates, hard=hard)
    infos = {one.info.model: one.info for one in candidates}
    names = list(dict.fromkeys(one.info.model for one in candidates if not one.failed)) or list(infos)
    windows = {name: window for name in names if (window := infos[name].rate_card.max_input_tokens)}
    fitting = [name for name in names if name not in windows or length.estimate_for(infos[name]) <= windows[name]]
    if not fitting:
        raise too_long(group, min(length.estimate_for(info) for info in infos.values()), windows)
    return fitting, length


def worst_cases_usd(
    request: CallRequest, candidates: Candidates, length: Length, cap_output_tokens: int | None
) -> dict[str, float]:
    """Return the most that the request can cost with each model; infinite where nothing bounds it."""
    worst_usd: dict[str, float] = {}
    for one in candidates:
        inputs = length.bound_for(one.info) if request.countable else None
        usd = _worst_case_usd(request, one.info, inputs, cap_output_tokens)
        worst_usd[one.info.model] = max(worst_usd.get(one.info.model, 0.0), usd)
    return worst_usd


def note_fitting_output(error: BudgetExhausted, request: CallRequest, candidates: Candidates, length: Length) -> None:
    """Let a refusal name the largest limit of the output with which the request would fit into what is left."""
    fitting = 0
    for one in candidates:
        inputs = length.bound_for(one.info) if request.countable else None
        within = one.info.rate_card.output_tokens_within(error.left_usd, inputs, request.choices, request.tier)
        fitting = max(fitting, within)
    error.note_fitting_output(fitting)


def sent_limit(request: CallRequest, info: DeploymentInfo, cap_output_tokens: int | None) -> int | None:
    """Return the limit of the output that a deployment receives: the request's, else the lowest one configured."""
    if request.output_tokens is not None:
        return request.output_tokens
    return min((limit for limit in (cap_output_tokens, info.defaults.output_tokens) if limit is not None), default=None)


def bounded_params(request: CallRequest, candidate: Candidate, cap_output_tokens: int | None) -> dict[str, Any]:
    """Return the `litellm_params` of a deployment with one limit of the output at most: the one that was bounded."""
    params = {name: value for name, value in candidate.deployment["litellm_params"].items() if name not in ALL_LIMITS}
    limit = sent_limit(request, candidate.info, cap_output_tokens)
    if request.output_tokens is None and limit is not None:
        params[request.limit_name] = limit
    elif request.limit_name in candidate.info.unknown_limits:  # LiteLLM may drop it
        params["max_tokens"] = limit
    return params


def _worst_case_usd(
    request: CallRequest, info: DeploymentInfo, input_tokens: int | None, cap_output_tokens: int | None
) -> float:
    defaults, card = info.defaults, info.rate_card
    tier = request.tier or defaults.tier
    if defaults.unbounded or (tier and all(rate.tier != tier for rate in card.rates)):
        return float("inf")
    limit = sent_limit(request, info, cap_output_tokens)
    sent = None if limit is None else max(limit, LEAST_OUTPUT_TOKENS)
    return card.worst_case_usd(input_tokens, sent, request.choices * defaults.answers, tier)


def ranked(
    candidates: Candidates,
    ranking: Sequence[str],
    params_of: Callable[[Candidate], Mapping[str, Any]],
    model_info: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return copies of the deployments with the lowest `order` for the first model of the ranking.

    Deployments of one model keep one order, so that LiteLLM's own strategy chooses between them; one that failed in
    this request comes after its equals, and an order that the configuration gives counts within the model.

    Parameters
    ----------
    candidates : sequence of Candidate
        The deployments.
    ranking : sequence of str
        Models, best first; deployments of others are left out.
    params_of : callable
        Returns the `litellm_params` of a candidate, which are sent to the provider.
    model_info : mapping
        Added to `model_info`, and so carried to the log events of the call.
    """
    rank = {name: i for i, name in enumerate(ranking)}
    kept = [one for one in candidates if one.info.model in rank]
    keys = [(rank[one.info.model], one.failed, _configured_order(one)) for one in kept]
    order = {key: place for place, key in enumerate(sorted(set(keys)), start=1)}
    return [
        _copy(one.deployment, {**params_of(one), "order": order[key]}, model_info)
        for one, key in zip(kept, keys, strict=True)
    ]


def _is_worth_counting(bound: int, candidates: Candidates, *, hard: bool) -> bool:
    windows = [one.info.rate_card.max_input_tokens for one in candidates]
    exact = hard and any(one.info.encoding for one in candidates)
    return exact or any(window is not None and window < bound for window in windows)


def _copy(deployment: Deployment, params: Mapping[str, Any], model_info: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **deployment,
        "litellm_params": dict(params),
        "model_info": {**deployment["model_info"], **model_info},
    }


def _configured_order(one: Candidate) -> float:
    order = one.deployment["litellm_params"].get("order")
    return float(order) if isinstance(order, int | float) else 0.0
