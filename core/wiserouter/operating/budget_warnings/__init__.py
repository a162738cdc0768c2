"""Warnings on budgets, pushed to webhooks and to the alerting of an adapter."""

from wiserouter.operating.budget_warnings.delivery import Delivery, DeliveryFailed
from wiserouter.operating.budget_warnings.notice import Notice
from wiserouter.operating.budget_warnings.rules import WarningRules
from wiserouter.operating.budget_warnings.watch import BudgetWarnings
from wiserouter.operating.budget_warnings.webhook import SIGNATURE, Webhook, is_signed

__all__ = [
    "SIGNATURE",
    "BudgetWarnings",
    "Delivery",
    "DeliveryFailed",
    "Notice",
    "WarningRules",
    "Webhook",
    "is_signed",
]
