"""Changes of the accounts of one process by an administrator, and the answers to them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.changes import (
    AccountTerms,
    BudgetChange,
    ChangeAnswer,
    answer_to,
    changed,
    first_answer,
    nested,
    refusal,
)
from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.nested import Account
from wiserouter.budgets.pauses import Pause

MOST_ANSWERS = 1_000
"""The most answers that are remembered."""

ANSWER_TTL_S = 86_400.0
"""How long an answer is remembered."""


class LocalChanges:
    """The pauses of the scopes of one process, and what was answered to changes; the caller holds a lock.

    Attributes
    ----------
    pauses : dict of str to Pause
        By scope.
    orders : str
        The orders of administrators.
    """

    def __init__(self) -> None:
        self.pauses: dict[str, Pause] = {}
        self.orders = ""
        self._answers: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def pauses_of(self, scopes: Iterable[str]) -> list[tuple[str, Pause]]:
        """Return the pauses of some scopes."""
        return [(scope, self.pauses[scope]) for scope in scopes if scope in self.pauses]

    def change(
        self, account: Account, scope: str, asked: BudgetChange, now_s: float, token: str, request: str
    ) -> ChangeAnswer:
        """Change the account of a scope, once for each token; raises as `Store.change` does."""
        known = self._answers.get(token) if token else None
        if known is not None and now_s < known[0]:
            return first_answer(known[1], request)
        terms = self._terms(account, scope)
        found = changed(asked, terms, account.each, now_s)
        ledger = account.each[found.level]
        why = refusal(found, ledger, terms.pause, now_s)
        if why is not None:
            raise why
        answered = answer_to(scope, terms, found, ledger)
        ledger.take_terms(found.terms.budget.each[found.level], found.amount_usd, found.terms.increases_of(found.level))
        if asked.horizon is not None:
            ledger.amend(horizon=asked.horizon)
        if found.terms.pause is None:
            self.pauses.pop(scope, None)
        else:
            self.pauses[scope] = found.terms.pause
        if token:
            self._answers[token] = now_s + ANSWER_TTL_S, answered.text(request)
            if len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        return answered

    def _terms(self, account: Account, scope: str) -> AccountTerms:
        """Return the terms of an account, with the amounts of later windows."""
        regular = [_regular(ledger) for ledger in account.each]
        increases = tuple([ledger.increases for ledger in account.each])
        return AccountTerms(nested(regular), None, increases if any(increases) else (), self.pauses.get(scope))


def _regular(ledger: Ledger) -> Budget:
    """Return the terms of later windows, without increases."""
    return ledger.budget if ledger.regular_usd is None else replace(ledger.budget, amount_usd=ledger.regular_usd)
