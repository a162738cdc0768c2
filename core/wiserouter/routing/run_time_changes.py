"""The methods of `WiseRouter` by which an administrator acts while it serves; each change is a line of the journal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from wiserouter.budgets.changes import BudgetChange, ChangeAnswer
from wiserouter.errors import InvalidInput, NotStarted
from wiserouter.routing.observed import ObservedRouter
from wiserouter.routing.shadow import observed_scope, part_of
from wiserouter.validation import check_amount, check_count, check_function

if TYPE_CHECKING:
    from wiserouter.routing.learner import Learner
    from wiserouter.routing.shadow import Shadow
    from wiserouter.stores import Store

logger = logging.getLogger("wiserouter")


class RouterChanges(ObservedRouter):
    """The methods that change a running router by order of an administrator, on all workers of its store."""

    _store: Store
    _learner: Learner
    _shadow: Shadow | None
    _has_observed: bool
    _listeners: tuple[Callable[[], object], ...]

    def set_budget(
        self,
        *,
        amount_usd: float | None = None,
        horizon: int | None = None,
        every: str | None = None,
        scope: str = "default",
    ) -> None:
        """Change the running budget; amount and horizon count from its start. Nothing is refitted.

        Where a scope has several budgets, `every` names one by its period, or by "never".
        """
        if amount_usd is None and horizon is None:
            raise InvalidInput("set_budget needs amount_usd, horizon or both, got neither")
        if amount_usd is not None:
            check_amount("amount_usd", amount_usd)
        if horizon is not None:
            check_count("horizon", horizon, least=1)
        for name, part in self._sides(scope):
            amount = None if amount_usd is None else amount_usd * part
            self._store.amend(name, amount_usd=amount, horizon=part_of(horizon, part), every=every)
        for listener in self._listeners:
            listener()

    def change_budget(
        self, change: BudgetChange, *, scope: str = "default", by: str = "", key: str = ""
    ) -> ChangeAnswer:
        """Change a running budget: every worker of its store follows within a second.

        Unlike what `set_budget` does, the change stays when a worker starts the budget again on the terms that it
        had before; where it is started on other terms, those count, and only a pause stays.

        Parameters
        ----------
        change : BudgetChange
            The change.
        scope : str, default "default"
            The scope of the budget.
        by : str, default ""
            Who ordered it, for the journal: an id or the hash of a key, no secret.
        key : str, default ""
            The idempotency key of the order: a second order with it changes nothing, and has the same answer.

        Returns
        -------
        ChangeAnswer
            The terms before and after, and what is used.

        Raises
        ------
        NotStarted
            If the scope has no budget.
        ChangeRefused
            If a hard limit would be broken; the error has the figures. Nothing is changed.
        InvalidInput, UnknownPrice
            If the change does not fit the budget.
        StoreUnavailable, StoreDamaged
            If the store cannot be reached or read.

        Examples
        --------
        >>> from wiserouter import Budget, Model, Price, WiseRouter
        >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
        >>> router.start(Budget(amount_usd=10.0, every="day"))
        >>> answer = router.change_budget(BudgetChange(add_usd=5.0, windows=3))
        >>> answer.before["amount_usd"], answer.after["amount_usd"], answer.after["later_amount_usd"]
        (10.0, 15.0, 10.0)
        """
        if change.limit == "hard":
            self._learner.pool.check_bounded()
        token, request = hashed(key) if key else "", hashed(repr((scope, change)))
        (own, part), *observed = self._sides(scope)
        answered = self._store.change(own, change.part(part), token=token, request=request)
        for name, share in observed if _has_amounts(change) else ():
            amounts = replace(change, limit=None, paused=None, reason="", pause_s=None).part(share)
            self._store.change(name, amounts, token=f"{token}-observed" if token else "", request=request)
        if not answered.replayed:
            self.audit("budget", by, answered.before, answered.after, scope=scope, account=answered.account)
        for listener in self._listeners:
            listener()
        return answered

    def follow(self, listener: Callable[[Collection[str]], object]) -> None:
        """Call a listener when an administrator has changed a budget, with the known scopes whose limit is hard."""
        check_function("listener", listener, "scopes")
        self._store.follow(listener)

    def _sides(self, scope: str) -> tuple[tuple[str, float], ...]:
        """Return the accounts of a scope with their parts of its budget: two where it was started in shadow mode."""
        whole = ((scope, 1.0),)
        if self._shadow is None:
            return whole
        try:
            self._store.ledger(observed_scope(scope))
        except NotStarted:
            return whole
        return self._shadow.sides(scope)

    def audit(self, what: str, by: str, before: Mapping[str, Any], after: Mapping[str, Any], **figures: object) -> None:
        """Write an order of an administrator into the log and the journal.

        Parameters
        ----------
        what : str
            "budget", "model" or "mode".
        by : str
            Who ordered it.
        before, after : mapping
            What was changed.
        **figures
            Further fields of the line.
        """
        line = change_line(what, self._store.now(), by, before, after, **figures)
        logger.info("%s changed by %r: %s, before %s", what, by, line["after"], line["before"])
        for observer in self._observers:
            observer.note(lambda: line)


def change_line(
    what: str, at_s: float, by: str, before: Mapping[str, Any], after: Mapping[str, Any], **figures: object
) -> dict[str, Any]:
    """Return the line of the journal that says who changed what, from what and to what."""
    line = {"event": "change", "at": at_s, "what": what, "by": by, **figures}
    return {**line, "before": dict(before), "after": dict(after)}


def hashed(text: str) -> str:
    """Return the name of an idempotency key, or of what was asked for with it, in a store."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _has_amounts(change: BudgetChange) -> bool:
    return any(one is not None for one in (change.amount_usd, change.add_usd, change.horizon))
