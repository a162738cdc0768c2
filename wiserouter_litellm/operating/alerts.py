"""Warnings on the budgets of a proxy, sent to LiteLLM's own alerting and to webhooks."""

from __future__ import annotations

import asyncio
import html
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.integration import BudgetWarnings, DeliveryFailed, Notice, Webhook
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.operating.metrics import by_account
from wiserouter_litellm.settings.alert_settings import AlertSettings

KEY = "callback_settings.wiserouter.alerts"

PROXY = "litellm.proxy.proxy_server"

TIMEOUT_S = 30.0

RUNNING: dict[str, BudgetWarnings] = {}
"""The watch of this process, which ends where a configuration is loaded again."""

_EVENTS: dict[str, Any] = {
    "budget_threshold": "threshold_crossed",
    "budget_exhaustion": "projected_limit_exceeded",
    "budget_pace": "threshold_crossed",
}
"""What LiteLLM calls a warning in its webhook."""


def start_alerts(groups: Mapping[str, Group], settings: AlertSettings | None) -> BudgetWarnings | None:
    """Warn of the budgets of groups from now on, in place of an earlier watch of this process.

    Raises
    ------
    SettingsError
        If the address of a webhook is none.
    """
    if (earlier := RUNNING.pop("alerts", None)) is not None:
        earlier.close()
    if settings is None:
        return None
    receivers = _receivers(settings)
    warnings = RUNNING["alerts"] = BudgetWarnings(receivers, settings.rules(), every_s=settings.every_s)
    for name, members in by_account(groups.values()).items():
        warnings.watch(members[0].router, name)
    return warnings


def _receivers(settings: AlertSettings) -> Sequence[Callable[[Notice], None]]:
    found: list[Callable[[Notice], None]] = [LiteLLMAlerting()] if settings.litellm else []
    for at, one in enumerate(settings.webhooks):
        try:
            secret = None if one.secret is None else one.secret.get_secret_value()
            found.append(Webhook(one.url.get_secret_value(), secret))
        except InvalidInput as error:
            raise SettingsError(f"{KEY}.webhooks.{at}.url", str(error)) from None
    return found


class LiteLLMAlerting:
    """Sends warnings by LiteLLM's own alerting: Slack, Teams and Sentry, and its webhook of budgets.

    LiteLLM's client belongs to the event loop of the proxy, in which this is made.
    """

    def __init__(self) -> None:
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:  # no proxy
            self._loop = None

    def __call__(self, notice: Notice) -> None:
        """Send a warning; do nothing where LiteLLM's alerting is off.

        Raises
        ------
        DeliveryFailed
            If LiteLLM cannot send it.
        """
        alerting = getattr(sys.modules.get(PROXY), "proxy_logging_obj", None)
        if self._loop is None or not getattr(alerting, "alerting", None):
            return
        sending = asyncio.run_coroutine_threadsafe(_send(alerting, notice), self._loop)
        try:
            sending.result(TIMEOUT_S)
        except TimeoutError:
            sending.cancel()
            raise DeliveryFailed(f"LiteLLM's alerting took over {TIMEOUT_S:g} s", passing=True) from None
        except Exception as error:
            passing = isinstance(error, OSError) or "httpx" in type(error).__module__
            raise DeliveryFailed(
                f"LiteLLM's alerting failed: {type(error).__name__}: {error}", passing=passing
            ) from error


async def _send(alerting: Any, notice: Notice) -> None:
    """Send a warning to each receiver of LiteLLM; text is escaped as Slack asks."""
    from litellm.proxy._types import Litellm_EntityType, WebhookEvent  # the proxy has loaded them
    from litellm.types.integrations.slack_alerting import AlertType

    text = html.escape(notice.text, quote=False)
    level = "Medium" if notice.kind == "budget_threshold" and notice.level < 0.95 else "High"
    await alerting.alerting_handler(message=text, level=level, alert_type=AlertType.budget_alerts)
    if "webhook" in alerting.alerting:
        event = WebhookEvent(
            event=_EVENTS[notice.kind],
            event_message=notice.text,
            event_group=Litellm_EntityType.PROXY,
            spend=notice.spent_usd,
            max_budget=notice.amount_usd + notice.carried_usd,
            projected_exceeded_date=notice.as_dict()["ends_at"],
        )
        await alerting.slack_alerting_instance.send_webhook_alert(event)
