"""Calls that are not routed by their text, such as embeddings, images, audio and files: charged after the answer.

Nothing bounds such a call beforehand, so a hard budget refuses it. Under an expected limit it goes to the deployment
that LiteLLM picks, with a mark by which its log event is found, and its cost is paid from the same budget, as long as
that is neither paused nor used up.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from wiserouter.integration import offload
from wiserouter_litellm.billing.bill import bill_of, reported_usd
from wiserouter_litellm.billing.cached_answers import is_of_cache
from wiserouter_litellm.deployments.registry import Deployment, DeploymentInfo
from wiserouter_litellm.groups.attempts import handled_error, started_by
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.outcome import outcome_of, shows_sent
from wiserouter_litellm.requests.origin import metadata_of
from wiserouter_litellm.requests.parameters import is_kept
from wiserouter_litellm.settlement.unpaid_costs import UnpaidCosts

UNROUTED_KEY = "wiserouter_unrouted"
"""Key of `model_info` under which the deployment of a call that is not routed carries the budget that pays."""


_ROUTED = frozenset({"completion", "text_completion", "responses", "anthropic_messages"})
_ONLY_READS = re.compile(r"(^|_)(retrieve|list|get|cancel|delete|status)(_|$)|^(file|video)_content$")


_MADE = frozenset({"response_id", "batch_id", "file_id", "video_id"})
_CONTENT = frozenset({"metadata", "input", "prompt", "query", "contents", "document", "image"})
"""Arguments of calls that make something; LiteLLM gives `metadata` to those of which it does not show the content."""

_READING = _MADE | {"model", "after", "before", "include", "limit", "order", "stream", "starting_after", "timeout"}
"""Arguments of calls that read, cancel or delete; under a hard limit they have no others but LiteLLM's own."""


def asked_groups(groups: Mapping[str, Group], data: Mapping[str, Any], call_type: str) -> list[Group]:
    """Return the groups whose deployments a request to the proxy uses without being routed by its text.

    LiteLLM selects no deployment for some of these calls, such as batches: it takes the group's credentials.

    Parameters
    ----------
    groups : mapping of str to Group
        The groups by name.
    data : mapping
        The request, as the proxy hands it to its hooks.
    call_type : str
        LiteLLM's name for the kind of call.
    """
    kind = call_type.removeprefix("a")
    if call_type in _ROUTED or kind in _ROUTED or _ONLY_READS.search(kind):
        return []
    names = _named_models(data)
    return [group for name, group in groups.items() if name in names or any(map(group.registry.find, names))]


def _named_models(data: Mapping[str, Any]) -> set[str]:
    """Return the models that a request names: in its body, its headers, its URL, or the ids of its files."""
    request = data.get("proxy_server_request")
    request = request if isinstance(request, Mapping) else {}
    headers, url = request.get("headers"), str(request.get("url") or "")
    named = [data.get("model"), data.get("target_model_names"), *parse_qs(urlsplit(url).query).get("model", ())]
    if isinstance(headers, Mapping):
        named += [value for name, value in headers.items() if str(name).lower() == "x-litellm-model"]
    named += [_model_of_file(data.get(key)) for key in ("input_file_id", "training_file")]
    texts = [text for value in named for text in (value if isinstance(value, list) else [value])]
    return {part.strip() for text in texts if isinstance(text, str) for part in text.split(",")}


def _model_of_file(file_id: object) -> str:
    """Return the models in an id that LiteLLM gave a file; an id that says none gives an empty text."""
    encoded = file_id.removeprefix("file-") if isinstance(file_id, str) else ""
    try:
        text = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        return ""
    found = re.search(r";(?:model|target_model_names),([^;]+)", text)
    return "" if found is None else found[1]


class RecentIds:
    """The last ids that were seen, so that several log events of one call charge it once.

    Parameters
    ----------
    most : int
        The number of ids that are kept.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._ids: dict[str, None] = {}
        self._most, self._lock = most, Lock()

    def is_new(self, id_: str) -> bool:
        """Return True if the id was not seen before."""
        with self._lock:
            if id_ in self._ids:
                return False
            self._ids[id_] = None
            if len(self._ids) > self._most:
                del self._ids[next(iter(self._ids))]
            return True


def marked_deployments(
    deployments: Iterable[Deployment], owner: str, group: str, scope: str, log: object = None
) -> list[dict[str, Any]]:
    """Return copies of deployments whose calls are charged after the answer.

    Parameters
    ----------
    deployments : iterable of mapping
        The deployments that LiteLLM may pick.
    owner : str
        The recorder whose log events charge the call.
    group, scope : str
        The group and the scope whose budget pays.
    log : object
        LiteLLM's log of the call, where there is one already.
    """
    attempt = {"owner": owner, "group": group, "scope": scope, "earlier": handled_error()[0]}
    attempt["started"] = str(started_by(log))
    return [
        {
            **one,
            "model_info": {**(one.get("model_info") or {}), UNROUTED_KEY: {**attempt, "id": uuid.uuid4().hex}},
        }
        for one in deployments
    ]


def unrouted_mark(model_info: object, owner: str) -> Mapping[str, Any] | None:
    """Return the mark in a deployment's `model_info`, if this owner made it."""
    mark = model_info.get(UNROUTED_KEY) if isinstance(model_info, Mapping) else None
    return mark if isinstance(mark, Mapping) and mark.get("owner") == owner else None


def check_left(group: Group, kwargs: Mapping[str, Any]) -> None:
    """Refuse a call that nothing bounds where its budget is paused or used up: it would be charged all the same.

    Raises
    ------
    BudgetError
        If nothing is left to pay for it.
    ScopeRefused
        If no budget pays for this caller.
    """
    if not kwargs or _names_what_was_made(kwargs):  # without arguments LiteLLM counts tokens, and no call follows
        return
    scope = group.scope_resolver.scope_of(metadata_of(kwargs))
    group.scope_resolver.open(scope)
    group.router.check_left(scope=scope)


def _names_what_was_made(kwargs: Mapping[str, Any]) -> bool:
    """Return True if a call reads, cancels or deletes what was paid for before; LiteLLM does not say so itself."""
    return not _MADE.isdisjoint(kwargs) and _CONTENT.isdisjoint(kwargs)


def makes_nothing(messages: object, kwargs: Mapping[str, Any], given: Collection[str] | None = None) -> bool:
    """Return True if a call costs nothing: LiteLLM counts tokens, or what was made is read, cancelled or deleted.

    Parameters
    ----------
    messages, kwargs : object, mapping
        As LiteLLM passes them.
    given : collection of str, optional
        The arguments that are the request's own, where others are those of its deployment; all by default.
    """
    if not kwargs:  # no call follows
        return messages is None
    names = kwargs if given is None else kwargs.keys() & given
    return _names_what_was_made(kwargs) and all(name in _READING or is_kept(name) for name in names)


def reads_response(kwargs: Mapping[str, Any]) -> bool:
    """Return True if a call reads, cancels or deletes a response: LiteLLM reports the cost of that one again."""
    return "response_id" in kwargs and _names_what_was_made(kwargs)


async def acheck_left(group: Group, kwargs: Mapping[str, Any]) -> None:
    """Do what `check_left` does, off the event loop where the store is waited for."""
    if group.durable and group.router.waits():
        await offload(partial(check_left, group, kwargs))
    else:
        check_left(group, kwargs)


def charge_unrouted(
    group: Group, mark: Mapping[str, Any], kwargs: Mapping[str, Any], response: object, unpaid: UnpaidCosts
) -> None:
    """Charge the call of a log event to the budget that its mark names, now or when its store answers again."""
    if is_of_cache(kwargs):
        return
    info = group.registry.find(_deployment_id(kwargs))
    cost_usd = float(kwargs.get("response_cost") or 0.0) if info is None else _cost_usd(group, kwargs, response, info)
    if cost_usd > 0:
        unpaid.pay(group, cost_usd, mark["scope"])
    elif info is None:
        group.fault("uncounted_calls", "a deployment without a price answered a call")


def note_failed(
    groups: Mapping[str, Group],
    owner: str,
    seen: RecentIds,
    model_info: object,
    error: BaseException | None,
    started: object,
) -> None:
    """Count a call that has failed as uncounted, unless it is none of these or was certainly not billed.

    It was not where its error proves that, or where LiteLLM failed before it called a provider.

    Parameters
    ----------
    groups, owner : mapping of str to Group, str
        The groups by name, and the recorder whose mark says that a call is one of theirs.
    seen : RecentIds
        The ids of calls that were charged, or counted here.
    model_info : object
        That of the deployment that failed.
    error : BaseException or None
        The error.
    started : object
        When LiteLLM last called a provider for the request, as its log says.
    """
    mark = unrouted_mark(model_info, owner)
    if mark is None or outcome_of(error, earlier=mark["earlier"]) == "unbilled":
        return
    may_be_billed = str(started) != mark["started"] or shows_sent(error, earlier=mark["earlier"])
    if may_be_billed and seen.is_new(f"{mark['id']} failed"):
        groups[mark["group"]].fault("uncounted_calls", "a call that is not routed failed, and may have been billed")


def _cost_usd(group: Group, kwargs: Mapping[str, Any], response: object, info: DeploymentInfo) -> float:
    try:
        bill, charge_usd = bill_of(kwargs, response, info), reported_usd(kwargs)
    except Exception as error:  # an answer that cannot be read was paid for all the same
        group.fault("unpriced_calls", "the bill of a call that is not routed cannot be read", error=error)
        return 0.0
    if bill is None and charge_usd > 0:  # an answer without tokens and text, such as an image
        return charge_usd
    if bill is None or bill.estimated:
        group.fault(
            "unpriced_calls",
            f"{info.model} answered without a usage block, and LiteLLM has no price for this kind of call: set it in "
            f"litellm_params, such as output_cost_per_image",
        )
    return 0.0 if bill is None else bill.cost_usd


def _deployment_id(kwargs: Mapping[str, Any]) -> object:
    info = (kwargs.get("litellm_params") or {}).get("model_info")
    return info.get("id") if isinstance(info, Mapping) else None
