"""Records of a store as one worker has them: workers may have other models, in another order, and other contexts.

A record has the index of its model in the pool of the worker that decided, and names it. A worker learns of the model
that has this name in its own pool, and in its own contexts only: a record with a model or contexts that it does not
have is one without a context, which teaches nothing. An early version of WISERouter named neither the contexts nor the
incumbent of shadow mode: its records are read as those of a worker with the same models and contexts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from wiserouter.planning.envelope import SKIP
from wiserouter.routing.shadow import is_observed
from wiserouter.stores.day_buckets import name_of
from wiserouter.stores.shared.shared_contexts import root_name
from wiserouter.types import NO_CONTEXT

if TYPE_CHECKING:
    from wiserouter.prompts.contexts import Contexts
    from wiserouter.prompts.encoders import Encoder
    from wiserouter.routing.learner import Learner
    from wiserouter.stores.base import Record


class ContextNames(NamedTuple):
    """The names by which workers with the same contexts agree.

    Attributes
    ----------
    first : str
        That of the contexts that a router began with.
    later : str
        That of all contexts which follow from them; "" where none do.
    """

    first: str
    later: str

    def of(self, version: int) -> str:
        """Return the name of the contexts of a version."""
        return self.later if version else self.first

    def has(self, name: str, version: int) -> bool:
        """Return True if contexts of a version have this name, or none, as an early WISERouter left them."""
        return name == self.of(version) if name else not version or bool(self.later)


def context_names(contexts: Contexts, encoder: Encoder | None, *, grow: bool) -> ContextNames:
    """Return the names of the contexts that a router begins with, and of those that follow where they `grow`.

    Examples
    --------
    >>> from wiserouter import Contexts
    >>> context_names(Contexts.single(), None, grow=False)
    ContextNames(first='1', later='')
    """
    first = name_of(contexts) if contexts.n_contexts > 1 else "1"
    return ContextNames(first, root_name(contexts, encoder).partition("|")[2] if grow else "")


def has_contexts_of(learner: Learner, record: Record) -> bool:
    """Return True if the context of a record is one of a worker's own, or of those that these followed from."""
    is_named = learner.context_names.has(record.contexts, record.contexts_version)
    return is_named and (bool(record.contexts) or record.decision.context < learner.contexts.n_contexts)


def teaches(learner: Learner, record: Record) -> bool:
    """Return True if a worker has the model and the contexts of a record that `own_record` has returned."""
    return record.model != SKIP and has_contexts_of(learner, record)


def with_names(learner: Learner, record: Record) -> Record:
    """Return a record with the name of the model that its index says, where an early WISERouter kept the index alone.

    It has that of the model that answered where this is another one than decided, which may be of any pool.
    """
    names, model = learner.pool.names, record.model
    if record.contexts or record.incumbent or not 0 <= model < len(names):
        return record
    answered = "" if record.answered == f"model {model}" else record.answered
    if is_observed(record.decision.scope):
        return replace(record, incumbent=names[model], answered=answered)
    return replace(record, answered=answered) if names[model] == record.decision.model else record


def own_record(learner: Learner, record: Record) -> Record:
    """Return a record with the index of its model in a worker's pool; the record of the store stays as it is.

    It is `SKIP`, and the record without a context, where the pool has no such model.
    """
    record = with_names(learner, record)
    name, positions, known = record.name, learner.pool.positions, has_contexts_of(learner, record)
    model = positions.get(name, SKIP)
    if known and model == record.model:
        return record
    decision, deviations = record.decision, record.deviations
    if positions.get(record.taken_by, SKIP) != record.model:
        deviations = None  # those of models in another order
    if not known or (name and model == SKIP):
        decision = decision._replace(context=NO_CONTEXT)
    return replace(record, decision=decision, model=model, deviations=deviations)
