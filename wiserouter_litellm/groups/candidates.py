"""The candidates of a request: the models that can take it, the bounds on its cost, the ranked copies for LiteLLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wiserouter.errors import BudgetExhausted
from wiserouter.integration import SHORT_TEXT_CHARS, CallRequest, count_tokens, template_tokens
from wiserouter_litellm.deployments.registry import Candidate, Candidates, DeploymentInfo
from wiserouter_litellm.errors import too_long, unbounded
from wiserouter_litellm.groups.arm_candidates import arm_note
from wiserouter_litellm.requests.limits import ALL_LIMITS, CHAT_LIMITS, LEAST_OUTPUT_TOKENS, LIMIT_NAMES
from wiserouter_litellm.requests.surcharges import most_margin


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
    overhead : int
        The tokens around its messages and its tools.
    """

    bound: int
    estimate: int
    exact: Mapping[str, int]
    overhead: int = 0

    def bound_for(self, info: DeploymentInfo) -> int:
        """Return an upper bound for one deployment, with what its own parameters and its model's template add.

        A message that LiteLLM puts between two others ("Please continue.") has at most twice the tokens around one.
        """
        between = 2 * self.overhead if info.defaults.alternates else 0
        added = info.defaults.input_tokens + template_tokens(info.encoding_of)
        return self.exact.get(info.encoding or "", self.bound) + added + between

    def estimate_for(self, info: DeploymentInfo) -> int:
        """Return an estimate for one deployment."""
        return self.exact.get(info.encoding or "", self.estimate)


class Bounds(NamedTuple):
    """The models that take a request, its length, and the bounds on its cost, where a limit is hard."""

    models: list[str]
    length: Length
    worst_usd: dict[str, float] | None


NOT_READ = Length(0, 0, {})
"""The length of a request that nothing depends on."""


def bounds_of(
    group: str,
    request: CallRequest,
    candidates: Candidates,
    cap_output_tokens: int | None,
    *,
    exact: bool,
    hard: bool,
) -> Bounds:
    """Return the models that take a request, and the most that it can cost with each under a hard limit.

    A model that failed in this request counts only where there is no other.

    Parameters
    ----------
    group : str
        The model group, for errors.
    request : CallRequest
        The request.
    candidates : sequence of Candidate
        The deployments that can serve it.
    cap_output_tokens : int or None
        The limit of the output where the request sets none.
    exact : bool
        Whether its tokens are counted where a candidate's encoding is known.
    hard : bool
        Whether its cost must be bounded.

    Raises
    ------
    litellm.ContextWindowExceededError
        If no context window takes it, so that LiteLLM's `context_window_fallbacks` apply.
    litellm.BadRequestError
        If nothing bounds its cost.
    """
    models, windows = _models_of(candidates)
    length = _length_of(request, candidates, exact=exact) if hard or windows else NOT_READ
    if windows:
        models = _fitting(group, models, windows, candidates, length)
    if not hard:
        return Bounds(models, length, None)
    worst_usd = worst_cases_usd(request, candidates, length, cap_output_tokens)
    if min([worst_usd[name] for name in models]) == float("inf"):
        raise unbounded(group, models, {one.info.defaults.unbounded for one in candidates})
    return Bounds(models, length, worst_usd)


def is_slow_to_read(request: CallRequest, candidates: Candidates, *, exact: bool) -> bool:
    """Return True if counting the tokens of a request takes too long for an event loop."""
    is_long = len(request.counted) >= SHORT_TEXT_CHARS
    return is_long and is_worth_counting(request.input_bound_tokens, candidates, exact=exact)


def is_worth_counting(bound: int, candidates: Candidates, *, exact: bool) -> bool:
    """Return True if tokens must be counted: for a tighter bound, or where a context window may be too small."""
    if exact and any(one.info.encoding for one in candidates):
        return True
    windows = [one.info.rate_card.max_input_tokens for one in candidates]
    return any(window is not None and window < bound for window in windows)


def _models_of(candidates: Candidates) -> tuple[list[str], dict[str, int]]:
    """Return the models that have not failed, all where each has, and those of their context windows that are known."""
    names = list(dict.fromkeys([one.info.model for one in candidates if not one.failed]))
    names = names or list(dict.fromkeys([one.info.model for one in candidates]))
    found = {one.info.model: one.info.rate_card.max_input_tokens for one in candidates}
    return names, {name: window for name in names if (window := found[name])}


def _length_of(request: CallRequest, candidates: Candidates, *, exact: bool) -> Length:
    """Return the length of a request, counted by each encoding of the candidates where that is worth it."""
    bound = request.input_bound_tokens
    if not is_worth_counting(bound, candidates, exact=exact):
        return Length(bound, bound, {}, request.overhead_tokens)
    text, overhead = request.counted, request.overhead_tokens
    models = {one.info.encoding: one.info.encoding_of for one in candidates if one.info.encoding}
    counts = {encoding: count_tokens(text, model).at_most + overhead for encoding, model in models.items()}
    estimate = max(counts.values()) if counts else count_tokens(text).tokens + overhead
    return Length(bound, estimate, counts, overhead)


def _fitting(
    group: str, names: Sequence[str], windows: dict[str, int], candidates: Candidates, length: Length
) -> list[str]:
    """Return the models whose context window takes a request of some length."""
    lengths = {one.info.model: length.estimate_for(one.info) for one in candidates}
    fitting = [name for name in names if name not in windows or lengths[name] <= windows[name]]
    if not fitting:
        raise too_long(group, min(lengths.values()), windows)
    return fitting


def worst_cases_usd(
    request: CallRequest, candidates: Candidates, length: Length, cap_output_tokens: int | None
) -> dict[str, float]:
    """Return the most that the request can cost with each model; infinite where nothing bounds it."""
    worst_usd: dict[str, float] = {}
    for one in candidates:
        inputs = length.bound_for(one.info) if request.countable else None
        tokens_usd = _worst_case_usd(request, one.info, inputs, cap_output_tokens)
        usd = most_margin(one.deployment["litellm_params"]).added_to(tokens_usd)
        worst_usd[one.info.model] = max(worst_usd.get(one.info.model, 0.0), usd)
    return worst_usd


def note_fitting_output(error: BudgetExhausted, request: CallRequest, candidates: Candidates, length: Length) -> None:
    """Let a refusal name the largest limit of the output with which the request would fit into what is left."""
    fitting = 0
    for one in candidates:
        inputs = length.bound_for(one.info) if request.countable else None
        left_usd = most_margin(one.deployment["litellm_params"]).taken_from(error.left_usd)
        if one.info.unknown_limits.issuperset(CHAT_LIMITS):
            continue
        within = one.info.rate_card.output_tokens_within(left_usd, inputs, _answers(request, one.info), request.tier)
        fitting = max(fitting, within)
    error.note_fitting_output(fitting)


def sent_limit(request: CallRequest, info: DeploymentInfo, cap_output_tokens: int | None) -> int | None:
    """Return the limit of the output that a deployment receives: the request's, else the lowest one configured.

    It is None where there is none, or LiteLLM drops all limits for its provider, so that the model's own bounds a call.
    """
    if info.unknown_limits.issuperset(CHAT_LIMITS):
        return None
    if request.output_tokens is not None:
        return request.output_tokens
    own = info.defaults.output_tokens
    if own is None or cap_output_tokens is None:
        return cap_output_tokens if own is None else own
    return min(own, cap_output_tokens)


def bounded_params(request: CallRequest, candidate: Candidate, cap_output_tokens: int | None) -> Mapping[str, Any]:
    """Return the `litellm_params` of a deployment with one limit of the output at most: the one that was bounded."""
    params = candidate.litellm_params
    if not LIMIT_NAMES.isdisjoint(params):
        params = {name: value for name, value in params.items() if name not in ALL_LIMITS}
    limit = sent_limit(request, candidate.info, cap_output_tokens)
    if request.output_tokens is None and limit is not None:
        return {**params, request.limit_name: limit}
    if request.limit_name in candidate.info.unknown_limits and limit is not None:  # LiteLLM may drop it
        return {**params, "max_tokens": limit}
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
    return card.worst_case_usd(input_tokens, sent, _answers(request, info), tier)


def _answers(request: CallRequest, info: DeploymentInfo) -> int:
    """Return the number of answers that are billed: to each prompt of a text completion, those that are asked for."""
    prompts = request.messages if info.defaults.splits else 1
    return request.choices * info.defaults.answers * prompts


def ranked(
    request: CallRequest,
    candidates: Candidates,
    ranking: Sequence[str],
    model_info: Mapping[str, Any],
    cap_output_tokens: int | None,
    *,
    hard: bool,
) -> list[dict[str, Any]]:
    """Return copies of the deployments with the lowest `order` for the first model of the ranking.

    Deployments of one model keep one order, so that LiteLLM's own strategy chooses between them; one that failed in
    this request comes after its equals, and an order that the configuration gives counts within the model.

    Parameters
    ----------
    request : CallRequest
        The request.
    candidates : sequence of Candidate
        The deployments.
    ranking : sequence of str
        Models, best first; deployments of others are left out.
    model_info : mapping
        Added to `model_info`, and so carried to the log events of the call.
    cap_output_tokens : int or None
        The limit of the output that is sent where the request sets none.
    hard : bool
        Whether the limits that are sent must be those that bound the cost.
    """
    rank = {name: i for i, name in enumerate(ranking)}
    kept = [one for one in candidates if one.info.model in rank]
    keys = [(rank[one.info.model], one.failed, _configured_order(one)) for one in kept]
    order = {key: place for place, key in enumerate(sorted(set(keys)), start=1)}
    copies = [
        {
            **one.deployment,
            "litellm_params": {**sent_params(request, one, cap_output_tokens, hard=hard), "order": order[key]},
            "model_info": {**one.deployment["model_info"], **model_info},
        }
        for one, key in zip(kept, keys, strict=True)
    ]
    for copy, one in zip(copies, kept, strict=True):
        if one.info.rate_card.params:
            copy["model_info"] |= arm_note(one.info)
    return copies


def sent_params(
    request: CallRequest, candidate: Candidate, cap_output_tokens: int | None, *, hard: bool
) -> Mapping[str, Any]:
    """Return the `litellm_params` of a deployment with the limits that its call is sent with."""
    arm = candidate.info.rate_card.params
    if hard or not arm.keys().isdisjoint(ALL_LIMITS):
        return bounded_params(request, candidate, cap_output_tokens)
    params = candidate.litellm_params if arm else candidate.deployment["litellm_params"]
    unlimited = request.output_tokens is None and cap_output_tokens is not None
    return {**params, request.limit_name: cap_output_tokens} if unlimited else params


def _configured_order(one: Candidate) -> float:
    order = one.deployment["litellm_params"].get("order")
    return float(order) if isinstance(order, int | float) else 0.0
