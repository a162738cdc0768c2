"""Budgets: their terms, the ledgers that account for them, calendar windows and the traffic forecast."""

from __future__ import annotations

from wiserouter.budgets.budget import Budget
from wiserouter.budgets.funds import Funds
from wiserouter.budgets.ledger import Ledger
from wiserouter.budgets.nested import Account, NestedLedger, open_account

__all__ = ["Account", "Budget", "Funds", "Ledger", "NestedLedger", "open_account"]
