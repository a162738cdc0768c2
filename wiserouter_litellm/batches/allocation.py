"""The allocation of a batch: each line bounded, a model for each under the budget, the decisions and what is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import litellm
import numpy as np
from litellm.constants import DEFAULT_CHAT_COMPLETION_PARAM_VALUES
from litellm.exceptions import BadRequestError

from wiserouter import Decision
from wiserouter.errors import BudgetExhausted, InfeasibleBudget, InvalidInput, StoreUnavailable
from wiserouter.integration import CallRequest, batch_decisions
from wiserouter_litellm.batches.batch_lines import BatchLine
from wiserouter_litellm.batches.batch_prices import batch_factor
from wiserouter_litellm.deployments.registry import Candidate, Deployment
from wiserouter_litellm.errors import BudgetRefused
from wiserouter_litellm.groups.candidates import sent_params
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.selection import RoutingRequest
from wiserouter_litellm.requests.limits import ALL_LIMITS
from wiserouter_litellm.requests.parameters import CHAT
from wiserouter_litellm.requests.request import admitted_request

PROVIDERS = ("openai", "azure", "hosted_vllm", "litellm_proxy")
"""The providers whose batch files have OpenAI's layout, by LiteLLM's names."""

ROUNDING = 1e-9
"""The share by which sums of equal amounts in another order may differ."""


class AllocatedLine(NamedTuple):
    """A line with its decision: the deployment that it is sent to, and the body that is sent."""

    custom_id: str
    decision: Decision
    deployment_id: str
    body: Mapping[str, Any]


class BoundedLine(NamedTuple):
    """A line as it is routed: its body with the limits as numbers, and the most that it can cost by model."""

    body: dict[str, Any]
    request: CallRequest
    worst_usd: Mapping[str, float]


def wire_model(deployment: Deployment) -> tuple[str, str]:
    """Return the model of a deployment as its provider names it, and the provider.

    Examples
    --------
    >>> wire_model({"litellm_params": {"model": "azure/my-mini"}})
    ('my-mini', 'azure')
    """
    params = deployment["litellm_params"]
    model, provider, _, _ = litellm.get_llm_provider(
        str(params["model"]), custom_llm_provider=params.get("custom_llm_provider"), api_base=params.get("api_base")
    )
    return model, provider


def allocate_lines(
    group: Group, deployments: Sequence[Deployment], lines: Sequence[BatchLine], scope: str, price_factor: float
) -> list[AllocatedLine]:
    """Return each line with a decision and the body that is sent; nothing is reserved yet.

    The lines have the share of the budget that as many calls have: what is left, over the requests that are left. Where
    that does not pay for the cheapest models, all that is left counts. Under a hard limit the sum of the worst cases
    fits into what is left.

    Raises
    ------
    InvalidInput
        If no deployment takes batches, a line cannot be sent, or no costs are known yet.
    litellm.BadRequestError
        If a hard limit cannot bound a line.
    BudgetRefused
        If the budget does not pay for all lines at the cheapest models.
    BudgetError, StoreError
        If there is no budget, it is paused, or its store cannot be reached.
    """
    candidates = _candidates(group, deployments)
    factors = {name: batch_factor(one.info.rate_card, price_factor) for name, one in candidates.items()}
    group.scope_resolver.open(scope)
    bounded = [_bounded(group, line, list(candidates.values()), scope, factors) for line in lines]
    decisions = _decisions(group, bounded, scope, factors)
    found = []
    for line, one, decision in zip(lines, bounded, decisions, strict=True):
        candidate = candidates[decision.model]
        body = _sent_body(group, candidate, one, hard=group.router.is_hard(scope))
        found.append(AllocatedLine(line.custom_id, decision, candidate.id, body))
    return found


def _candidates(group: Group, deployments: Sequence[Deployment]) -> dict[str, Candidate]:
    """Return the deployment that takes the lines of each model: the first one with batches in OpenAI's layout."""
    able = [one for one in deployments if wire_model(one)[1] in PROVIDERS]
    candidates, new = group.registry.resolve(able, ())
    group.add_new_models(new)
    found: dict[str, Candidate] = {}
    for one in sorted(candidates, key=lambda one: float(one.deployment["litellm_params"].get("order") or 0.0)):
        if not group.router.pool.by_name[one.info.model].retired:
            found.setdefault(one.info.model, one)
    if not found:
        raise InvalidInput(
            f"group {group.name!r} has no deployment that takes batches: LiteLLM must name its provider "
            f"{', '.join(PROVIDERS)}"
        )
    return found


def _bounded(
    group: Group, line: BatchLine, candidates: Sequence[Candidate], scope: str, factors: Mapping[str, float]
) -> BoundedLine:
    body = {key: value for key, value in line.body.items() if key not in ("model", "messages", "stream")}
    try:
        request = admitted_request(
            group.name, line.body["messages"], body, CHAT, hard=_is_hard(group, scope), reads_question=True
        )
        if request is None:
            raise InvalidInput("body.messages must hold text, got none")
        bounds = group.bounds_of(RoutingRequest(candidates, request, scope, "", None, False, ""))
    except InvalidInput as error:
        raise InvalidInput(f"request {line.custom_id!r:.80}: {error}") from error
    except BadRequestError as error:
        error.message = f"request {line.custom_id!r:.80}: {error.message}"
        raise
    worst = dict.fromkeys(bounds.models, 0.0) if bounds.worst_usd is None else bounds.worst_usd
    return BoundedLine(
        {"messages": line.body["messages"], **body},
        request,
        {name: factors[name] * worst[name] for name in bounds.models},
    )


def _is_hard(group: Group, scope: str) -> bool:
    return group.hard or group.router.is_hard(scope)


def _decisions(group: Group, lines: Sequence[BoundedLine], scope: str, factors: Mapping[str, float]) -> list[Decision]:
    """Return the decision of each line, within its share of the budget, and under a hard limit within the room left."""
    router, texts = group.router, [one.request.question for one in lines]
    names, snapshot = router.pool.names, router.snapshot(scope)
    worst = np.array([[one.worst_usd.get(name, np.inf) for name in names] for one in lines])
    terms: dict[str, Any] = {"price_factor": factors, "worst_case_usd": worst}
    requests, left_usd = snapshot.funds.requests, max(snapshot.funds.left_usd, 0.0)
    share_usd = left_usd * min(1.0, len(lines) / requests) if requests > 0 else 0.0
    allocation, needed_usd = None, share_usd
    while allocation is None:
        try:
            allocation = router.allocate(texts, needed_usd, **terms)
        except InfeasibleBudget as error:  # again where other calls have raised the costs meanwhile
            needed_usd = error.floor_usd * len(lines) * (1.0 + ROUNDING)
            refusal = None
            if needed_usd > left_usd or requests <= 0:
                refusal = snapshot.account.refusal(needed_usd)
            if refusal is not None:
                raise BudgetRefused(group.name, refusal, scope) from error
    if snapshot.hard:
        held = [one.worst_usd[model] for one, model in zip(lines, allocation.models, strict=True)]
        if sum(held) > snapshot.room_usd:
            try:
                allocation = router.allocate(texts, max(snapshot.room_usd, 0.0), **terms, hard=True)
            except InfeasibleBudget as error:
                refused = snapshot.account.exhausted(error.floor_usd * len(lines))
                raise _refusal(group, refused, scope) from error
    decisions = batch_decisions(allocation, share_usd, scope, router.now())
    return [_holding(one, line, hard=snapshot.hard) for one, line in zip(decisions, lines, strict=True)]


def _refusal(group: Group, error: BudgetExhausted | StoreUnavailable, scope: str) -> Exception:
    """Return the error of a batch that the budget, or a store that is away, does not admit."""
    return error if isinstance(error, StoreUnavailable) else BudgetRefused(group.name, error, scope)


def _holding(decision: Decision, line: BoundedLine, *, hard: bool) -> Decision:
    """Return a decision that reserves its worst case under a hard limit."""
    if not hard:
        return decision
    held_usd = line.worst_usd[decision.model]
    return decision._replace(reserved_usd=held_usd, expected_cost_usd=min(decision.expected_cost_usd, held_usd))


def _sent_body(group: Group, candidate: Candidate, line: BoundedLine, *, hard: bool) -> dict[str, Any]:
    """Return the body for a deployment: the caller's parameters, then those of the deployment; its arm comes first."""
    params = sent_params(line.request, candidate, group.cap_output_tokens, hard=hard)
    own = {name: value for name, value in params.items() if name in DEFAULT_CHAT_COMPLETION_PARAM_VALUES}
    limits = [name for name in ALL_LIMITS if name in own]
    if limits and not any(name in line.body for name in ALL_LIMITS):  # the name that all of OpenAI's models take
        own = {name: value for name, value in own.items() if name not in limits}
        own["max_completion_tokens"] = params[limits[0]]
    model, _ = wire_model(candidate.deployment)
    return {**own, **line.body, **candidate.info.params, "model": model}
