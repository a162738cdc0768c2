"""The arms of deployments as candidates of a request: those that agree with it, and the best one of each deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wiserouter_litellm.deployments.arms import ARM_KEY, agrees, drop_null_parameters, is_said
from wiserouter_litellm.deployments.registry import Candidate, Candidates, DeploymentInfo, DeploymentRegistry


def agreeing(registry: DeploymentRegistry, candidates: Candidates, kwargs: dict[str, Any] | None) -> Candidates:
    """Return the candidates whose arms say nothing else than a request does.

    A deployment of which no arm does so is a candidate as the plain model that it is.

    Parameters
    ----------
    registry : DeploymentRegistry
        The deployments of the group.
    candidates : sequence of Candidate
        Each deployment as often as it has arms.
    kwargs : dict or None
        The request's keyword arguments, from which parameters that are null are removed; None for a request whose own
        parameters cannot be told from those of its deployment, which gets no arm.
    """
    kept: dict[str, list[Candidate]] = {one.id: [] for one in candidates}
    if kwargs is not None:
        drop_null_parameters(kwargs)
        for one in candidates:
            if agrees(one.info.params, kwargs):
                kept[one.id].append(one)
    first = {one.id: one for one in reversed(candidates)}
    return [one for id_, arms in kept.items() for one in arms or [_plain(registry, first[id_])]]


def as_called(
    registry: DeploymentRegistry, candidates: Candidates, kwargs: Mapping[str, Any]
) -> dict[str, DeploymentInfo]:
    """Return the model that each deployment is, by id, where nothing is added to the request's own parameters."""
    called: dict[str, DeploymentInfo] = {}
    for one in candidates:
        if is_said(one.info.params, {**one.deployment["litellm_params"], **kwargs}):
            called.setdefault(one.id, one.info)
    return {one.id: _plain(registry, one).info for one in candidates} | called


def one_arm_each(candidates: Candidates, ranking: Sequence[str]) -> Candidates:
    """Return the candidates with the best ranked arm of each deployment only.

    LiteLLM leaves deployments out by their ids, so that a further arm of one would never be sent.
    """
    rank = {name: i for i, name in enumerate(ranking)}
    best: dict[str, Candidate] = {}
    for one in sorted(candidates, key=lambda one: rank.get(one.info.model, len(rank))):
        best.setdefault(one.id, one)
    return list(best.values())


def arm_note(info: DeploymentInfo) -> Mapping[str, str]:
    """Return the entry of `model_info` by which the log event of a call finds its arm; empty for a plain model."""
    return {ARM_KEY: info.model} if info.params else {}


def _plain(registry: DeploymentRegistry, candidate: Candidate) -> Candidate:
    return candidate._replace(info=registry.find(candidate.id) or candidate.info)
