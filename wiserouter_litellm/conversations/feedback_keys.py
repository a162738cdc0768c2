"""The keys by which feedback finds a decision: digests of the ids of its call.

Clients may choose the id of a call, so an id alone proves nothing: a key is a digest of the id and of the caller, and
another caller's call of the same id has another key. Administrators may rate the calls of every caller; for them a call
has a key of its id alone, unless the client chose that id. The keys are stored with the decision, for all workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from json.encoder import encode_basestring_ascii

from litellm.responses.utils import ResponsesAPIRequestUtils as Ids

from wiserouter_litellm.deployments.litellm_compat import issued_id

_RESPONSE = "resp_"


def feedback_key(id_: str, caller: str | None) -> str:
    """Return the key of a call, an answer or a decision for one caller; it reveals neither the id nor the caller."""
    return _digest(caller, id_)


def keys_of_decision(decision_id: str, call_id: str, caller: str | None, *, chosen: bool) -> list[str]:
    """Return all keys of a decision: those of its call, and its own id for the caller."""
    return [*keys_to_store(call_id, caller, chosen=chosen), feedback_key(decision_id, caller)]


def keys_to_store(call_id: str, caller: str | None, *, chosen: bool) -> tuple[str, ...]:
    """Return the keys of a call or an answer: its caller's, and the administrators' where no client chose its id.

    Examples
    --------
    >>> [len(keys_to_store("c", "a-key", chosen=chosen)) for chosen in (False, True)]
    [2, 1]
    """
    own = feedback_key(call_id, caller)
    return (own,) if chosen or caller is None else (own, _digest(call_id))


def id_of_call(call: object) -> str:
    """Return the id by which a call is rated: one that is given, or that of an answer."""
    if isinstance(call, str):
        return call
    hidden = getattr(call, "_hidden_params", None) or {}
    found = hidden.get("litellm_call_id") if isinstance(hidden, Mapping) else None
    return str(found or getattr(call, "id", ""))


def reported_id(id_: str) -> str:
    """Return the id by which LiteLLM reports an answer, of the one that its client has.

    For providers without a responses API it makes the response of a chat, which it reports, and writes the id of that
    chat into that of the response.

    Examples
    --------
    >>> reported_id("resp_bGl0ZWxsbTpjdXN0b21fbGxtX3Byb3ZpZGVyOng7bW9kZWxfaWQ6eTtyZXNwb25zZV9pZDpjaGF0Y21wbC0x")
    'chatcmpl-1'
    """
    issued = issued_id(id_)
    if not issued.startswith(_RESPONSE):
        return issued
    provider_id = Ids.decode_previous_response_id_to_original_previous_response_id(issued)
    return issued if not provider_id or provider_id.startswith(_RESPONSE) else provider_id


def keys_to_try(id_: str, caller: str | None, *, any_caller: bool) -> tuple[str, ...]:
    """Return the keys to look an id up by when a caller asks; administrators may give the id of any decision."""
    id_ = reported_id(id_)
    own = feedback_key(id_, caller)
    return (own, _digest(id_), id_) if any_caller else (own,)


def _digest(*parts: str | None) -> str:
    """Return the digest of some texts or nulls, written as a JSON list."""
    texts = ", ".join(["null" if part is None else encode_basestring_ascii(part) for part in parts])
    return "call " + blake2b(f"[{texts}]".encode(), digest_size=16).hexdigest()
