"""Changes of a running account: by an administrator, which the engine checks as it applies them, or by its workers."""

from __future__ import annotations

from collections.abc import Mapping

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.changes import (
    AccountTerms,
    BudgetChange,
    ChangeAnswer,
    answer_to,
    changed,
    first_answer,
    refusal,
)
from wiserouter.budgets.nested import Account, amended, with_present_limits
from wiserouter.errors import NotStarted, StoreUnavailable
from wiserouter.stores.engines.changes import Change
from wiserouter.stores.engines.events import Amend
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.shared.codec import terms_of_text, text_of_account, text_of_terms
from wiserouter.stores.shared.exchange import PendingEvent
from wiserouter.stores.shared.replica import AccountView
from wiserouter.stores.shared.worker import Worker

MOST_ATTEMPTS = 20
"""How often a change is computed again because others have changed the account meanwhile."""

QUIET_S = 2.0
"""How long a pause has to hold before no worker decides any more, twice the greatest age of a replica."""


def change(worker: Worker, scope: str, asked: BudgetChange, token: str, request: str) -> ChangeAnswer:
    """Change a running budget, once for each token; raises as `Store.change` does."""
    if token:
        result = worker.client.request(PendingEvent(Change(scope, "", "", "", 0.0, False, token), scope))
        if isinstance(result, str) and result.startswith("{"):
            return first_answer(result, request)
    name = token or fresh_id()  # an engine whose first answer was lost is asked again, and must not change it twice
    for _ in range(MOST_ATTEMPTS):
        worker.refresh_account(scope)
        event, answered = _event(worker, scope, asked, name, request)
        result = worker.client.request(PendingEvent(event, scope))
        if result == "ok" or (result == event.answer and not token):
            return answered
        if isinstance(result, str) and result.startswith("{"):
            return first_answer(result, request)
    why = "others change this budget at the same time"
    raise StoreUnavailable(f"{worker.name} cannot make the change, {why}: try again later", store=worker.name)


def amend(worker: Worker, scope: str, amount_usd: float | None, horizon: int | None, every: str | None) -> None:
    """Change the amount, which ends its increases, or the horizon of the budget that renews `every` so often."""
    account, view = _present(worker, scope)
    budget, configured = amended(view.budget, amount_usd, horizon, every), view.terms.configured
    whole = view.terms.whole or configured or text_of_terms(view.budget, view.parent)
    if configured:
        given = terms_of_text(configured, worker.name).budget
        configured = text_of_terms(amended(given, amount_usd, horizon, every), view.parent)
    level = next(at for at, one in enumerate(view.budget.each) if every is None or one.renews(every))
    increases = [view.terms.increases_of(at) for at in range(len(view.windows))]
    present_usd = account.each[level].budget.amount_usd
    if amount_usd is not None:
        increases[level], present_usd = (), amount_usd
    pause = view.terms.pause
    terms = AccountTerms(budget, view.parent, tuple(increases) if any(increases) else (), pause, configured, whole)
    _amend(worker, scope, terms, {level: present_usd})


def started(budget: Budget, parent: str | None, whole: Budget | None) -> AccountTerms:
    """Return the terms of a start, on all of its budget or on a part of the whole."""
    divided = "" if whole in (None, budget) else text_of_terms(whole, parent)
    return AccountTerms(budget, parent, whole=divided)


def begins_again(running: AccountTerms, given: str) -> bool:
    """Return True if an administrator has ended the running budget, and it is started on other terms, as text."""
    former = running.whole or running.configured
    return running.pause is not None and running.pause.ended and former not in ("", given)


def start_with(worker: Worker, scope: str, terms: AccountTerms) -> None:
    """Change the amounts and horizons of the running budgets to those of a start; a pause stays."""
    account, view = _present(worker, scope)
    pause, budget = view.terms.pause, terms.budget
    departs = (pause is not None and pause.ended) or terms.configured != text_of_terms(budget, terms.parent)
    terms = terms._replace(pause=pause, configured=terms.configured if departs else "")
    former = view.budget.each
    amounts_usd = {
        level: one.amount_usd
        for level, (one, ledger) in enumerate(zip(budget.each, account.each, strict=False))  # its parents come after it
        if one != former[level] or one.amount_usd != ledger.budget.amount_usd  # of this window alone
    }
    _amend(worker, scope, terms, amounts_usd)


def joined(view: AccountView, budget: Budget, store: str) -> Budget:
    """Return the terms of a start with the limits that an administrator has given the running budgets."""
    if not view.terms.configured:
        return budget
    return with_present_limits(budget, terms_of_text(view.terms.configured, store).budget, view.budget)


def _present(worker: Worker, scope: str) -> tuple[Account, AccountView]:
    """Return an account as it is now, in windows that have not ended, and its view; raises `NotStarted`."""
    worker.refresh_account(scope)
    account = worker.account(scope)
    with worker.lock:
        return account, worker.replica.views[scope]


def _amend(worker: Worker, scope: str, terms: AccountTerms, amounts_usd: Mapping[int, float]) -> None:
    """Give an account other terms, and the running windows of some of its budgets other amounts."""
    text, former = text_of_account(terms), worker.replica.views[scope]
    for level, amount_usd in amounts_usd.items():
        worker.client.request(PendingEvent(Amend(scope, text, former.windows[level], amount_usd), scope))


def _event(worker: Worker, scope: str, asked: BudgetChange, token: str, request: str) -> tuple[Change, ChangeAnswer]:
    """Return the event of a change that the account bears as it was read just now, and the answer to it."""
    account = worker.account(scope)  # renews windows that have ended
    with worker.lock:
        view, now_s = worker.replica.views.get(scope), worker.now()
        if view is None:
            raise NotStarted(scope)
        ledgers = account.each[: len(view.windows)]
        found = changed(asked, view.terms, ledgers, now_s)
        ledger = ledgers[found.level]
        why = refusal(found, ledger, view.terms.pause, now_s, quiet_s=QUIET_S)
        if why is not None:
            raise why
        terms = _named(found.terms, view)
        answered = answer_to(scope, view.terms, found, ledger)
        text = answered.text(request)
        hard = terms.budget.each[found.level].limit == "hard"
        former, window = view.state.terms, view.windows[found.level]
        return Change(scope, former, text_of_account(terms), window, found.amount_usd, hard, token, text), answered


def _named(terms: AccountTerms, view: AccountView) -> AccountTerms:
    """Return new terms with the configuration that they depart from, where they do."""
    configured = view.terms.configured or text_of_terms(view.budget, view.parent)
    ended = terms.pause is not None and terms.pause.ended
    departs = ended or terms.increases or text_of_terms(terms.budget, terms.parent) != configured
    return terms._replace(configured=configured if departs else "")
