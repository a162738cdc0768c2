"""The text form of budgets and decisions, for engines that store them without knowing what they mean."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.changes import AccountTerms
from wiserouter.budgets.increases import Increase
from wiserouter.budgets.pauses import Pause
from wiserouter.budgets.run_caps import RunCap
from wiserouter.conversations.conversation import Conversation
from wiserouter.errors import InvalidInput, StoreDamaged
from wiserouter.stores.base import Record
from wiserouter.types import Decision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wiserouter.learning.residuals import Deviations


def text_of_terms(budget: Budget, parent: str | None) -> str:
    """Return nested budgets, and the scope whose budgets enclose them, as text."""
    return json.dumps(_fields_of_terms(budget, parent))


def text_of_account(terms: AccountTerms) -> str:
    """Return the terms of an account as text; that of `text_of_terms` where nothing has changed or divided them."""
    fields = _fields_of_terms(terms.budget, terms.parent)
    if terms.increases:
        fields["increases"] = terms.increases
    if terms.pause is not None:
        fields["pause"] = terms.pause
    if terms.configured:
        fields["configured"] = terms.configured
    if terms.whole:
        fields["whole"] = terms.whole
    return json.dumps(fields)


def terms_of_text(text: str, store: str) -> AccountTerms:
    """Return the terms that `text_of_account` was called on; raises `StoreDamaged`."""
    try:
        return _terms(text)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreDamaged(f"{store} holds terms of a budget that cannot be read: {error}", store=store) from error


def _fields_of_terms(budget: Budget, parent: str | None) -> dict[str, Any]:
    each = [asdict(replace(one, within=None)) for one in budget.each]
    for one in each:
        del one["within"]
    return {"budgets": each, "parent": parent}


@lru_cache(maxsize=1024)  # every reply repeats the terms of its accounts
def _terms(text: str) -> AccountTerms:
    terms = json.loads(text)
    budget: Budget | None = None
    for fields in reversed(terms["budgets"]):
        budget = Budget(**fields, within=budget)
    if budget is None:
        raise ValueError("no budget")
    increases = tuple([tuple([Increase(*one) for one in each]) for each in terms.get("increases", ())])
    pause = Pause(*terms["pause"]) if terms.get("pause") else None
    return AccountTerms(budget, terms["parent"], increases, pause, terms.get("configured", ""), terms.get("whole", ""))


def text_of_record(record: Record) -> str:
    """Return a decision and the deviations of its query as text, without its trace."""
    deviations = None if record.deviations is None else _of_deviations(record.deviations)
    run: tuple[Any, ...] = () if record.counts and not record.caps else (record.caps, record.counts)
    if record.contexts or record.incumbent:
        run = (record.caps, record.counts, record.contexts_version, record.contexts, record.incumbent)
    elif record.contexts_version:
        run = (record.caps, record.counts, record.contexts_version)
    return json.dumps([_given(record.decision), record.model, record.debit, deviations, *run], separators=(",", ":"))


def record_of_text(text: str, store: str) -> Record:
    """Return the record that `text_of_record` was called on; raises `StoreDamaged`."""
    try:
        fields, model, debit, of_query, *run = json.loads(text)
        deviations = None if of_query is None else _deviations(of_query)
        record = Record(Decision(*fields), model, debit, deviations=deviations)
        if run:
            record.caps, record.counts = tuple([RunCap(*cap) for cap in run[0]]), run[1]
            record.contexts_version = run[2] if len(run) > 2 else 0
            record.contexts, record.incumbent = run[3:] or ("", "")
        return record
    except (ValueError, TypeError) as error:
        raise StoreDamaged(f"{store} holds a decision that cannot be read: {error}", store=store) from error


def text_of_name(model: str) -> str:
    """Return the name of the model that answered as text, in quotes: early stores have its index in one pool."""
    return json.dumps(model)


def answered_of_text(text: str, record: Record) -> str:
    """Return the name that `text_of_name` was called on; for an index, "" where it is that of the record's model."""
    if text.startswith('"'):
        return str(json.loads(text))
    if record.contexts and text == str(record.model):  # an early record may have the index of the one that answered
        return ""
    return f"model {text}"  # of a pool that is not known


def conversation_of_text(text: str, store: str) -> Conversation:
    """Return the conversation that `Conversation.to_text` was called on; raises `StoreDamaged`."""
    try:
        return Conversation.from_text(text)
    except InvalidInput as error:
        raise StoreDamaged(f"{store} holds a conversation that cannot be read: {error}", store=store) from error


def _given(decision: Decision) -> list[Any]:
    """Return the fields of a decision up to the last that differs from its default."""
    fields, defaults = list(decision), list(Decision._field_defaults.values())
    while defaults and fields[-1] == defaults[-1]:
        fields.pop()
        defaults.pop()
    return fields


def _of_deviations(deviations: Deviations) -> list[Any]:
    return [None, *(None if one is None else np.asarray(one).tolist() for one in deviations)]


def _deviations(fields: list[Any]) -> Deviations:
    from wiserouter.learning.residuals import Deviations  # few routers estimate single queries

    _, reward, cost_usd = fields  # the first is the length of the query in early records
    return Deviations(reward, cost_usd)


def text_of_array(array: NDArray[Any] | None) -> list[str] | None:
    """Return an array as JSON values."""
    return None if array is None else [array.dtype.str, base64.b64encode(array.tobytes()).decode()]


def array_of(fields: list[str]) -> NDArray[Any]:
    """Return the array that `text_of_array` was called on."""
    kind, data = fields
    return np.frombuffer(base64.b64decode(data), dtype=np.dtype(kind)).copy()
