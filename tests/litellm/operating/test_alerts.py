"""Warnings by LiteLLM's own alerting and by webhooks: what each gets, and which settings are refused."""

import asyncio
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.webhooks import receiving
from wiserouter.integration import DeliveryFailed, Notice
from wiserouter_litellm import SettingsError
from wiserouter_litellm.operating.alerts import PROXY, LiteLLMAlerting, start_alerts
from wiserouter_litellm.settings.proxy_settings import settings_of

WISE = {"groups": {"wise": {"budget_usd": 5.0, "requests": 100}}}


def notice(scope="default", **fields):
    terms = {"kind": "budget_threshold", "group": "wise", "scope": scope, "window": "day", "level": 0.8}
    figures = {"began_at": 0.0, "at_s": 1.0, "amount_usd": 1.0, "carried_usd": 0.5, "spent_usd": 1.2, "left_usd": 0.3}
    return Notice(**(terms | figures | fields))


class Alerting:
    """Stands in for LiteLLM's."""

    def __init__(self, *names, error=None):
        self.alerting, self.error = list(names), error
        self.messages, self.events = [], []
        self.slack_alerting_instance = SimpleNamespace(send_webhook_alert=self.send_webhook_alert)

    async def alerting_handler(self, message, level, alert_type, request_data=None):
        if self.error is not None:
            raise self.error
        self.messages.append((message, level, alert_type.value))

    async def send_webhook_alert(self, webhook_event):
        self.events.append(webhook_event)


@pytest.fixture
def sent(monkeypatch):
    """Return what sends a warning by an alerting, as the thread of a delivery does."""

    async def send(alerting, one):
        monkeypatch.setitem(sys.modules, PROXY, SimpleNamespace(proxy_logging_obj=alerting))
        await asyncio.to_thread(LiteLLMAlerting(), one)

    return lambda alerting, one: asyncio.run(send(alerting, one))


def test_slack_gets_an_escaped_line(sent):
    alerting = Alerting("slack")
    sent(alerting, notice("team:<https://evil|here>\n& *bold*"))
    ((message, level, kind),) = alerting.messages
    assert "scope team:&lt;https://evil|here&gt; &amp; *bold* (day), has reached 80%: $1.20 of $1.50 spent" in message
    assert (level, kind, alerting.events) == ("Medium", "budget_alerts", [])


@settings(max_examples=50, deadline=None)
@given(scope=st.text(max_size=200))
def test_no_name_opens_a_link_or_a_line_in_slack(scope):
    alerting = Alerting("slack")

    async def send():
        from wiserouter_litellm.operating.alerts import _send

        await _send(alerting, notice(scope))

    asyncio.run(send())
    ((message, _, _),) = alerting.messages
    assert not {"<", ">", "\n", "\r"} & set(message)
    assert len(message.splitlines()) == 1


def test_the_webhook_of_litellm_gets_an_event(sent):
    alerting = Alerting("webhook")
    sent(alerting, notice(kind="budget_exhaustion", level=1.0, ends_at=86_400.0))
    (event,) = alerting.events
    assert (event.event, event.spend, event.max_budget) == ("projected_limit_exceeded", 1.2, 1.5)
    assert event.projected_exceeded_date == "1970-01-02T00:00:00Z"
    assert alerting.messages[0][1] == "High"


def test_nothing_is_sent_where_the_alerting_of_litellm_is_off(sent):
    alerting = Alerting()
    sent(alerting, notice())
    assert not alerting.messages


@pytest.mark.parametrize(("error", "passing"), [(ValueError("Missing SLACK_WEBHOOK_URL"), False), (OSError(), True)])
def test_what_litellm_cannot_send_is_reported(sent, error, passing):
    with pytest.raises(DeliveryFailed) as failed:
        sent(Alerting("slack", error=error), notice())
    assert failed.value.passing is passing


def test_without_a_proxy_litellm_is_left_out():
    LiteLLMAlerting()(notice())


@pytest.mark.parametrize(
    ("alerts", "message"),
    [
        ({"threshold": [0.5]}, "alerts: unknown key 'threshold', did you mean thresholds"),
        ({"thresholds": [0.0]}, "thresholds must be shares above 0"),
        ({"pace": 1}, "pace must be a multiple above 1"),
        ({"litellm": False}, "alerts needs webhooks, or litellm: true"),
        ({"webhooks": [{"secret": "hush"}]}, "alerts.webhooks.0.url: is required"),
        ({"every_s": 0}, "alerts.every_s: Input should be greater than 0"),
        ({"every_s": 1e308}, "alerts.every_s: Input should be less than or equal to 86400"),
    ],
)
def test_settings_are_checked(alerts, message):
    with pytest.raises(SettingsError, match=message) as refused:
        settings_of({**WISE, "alerts": alerts})
    assert "hush" not in str(refused.value)


def test_the_address_of_a_webhook_is_checked_and_not_shown():
    block = {"webhooks": [{"url": "hooks.example/S3CRET", "secret": 12345}]}
    with pytest.raises(SettingsError) as refused:
        settings_of({**WISE, "alerts": block})
    assert "12345" not in str(refused.value)
    given_ = settings_of({**WISE, "alerts": {"webhooks": [{"url": "hooks.example/S3CRET", "secret": "12345"}]}})
    assert "S3CRET" not in repr(given_)
    with pytest.raises(SettingsError, match=r"webhooks\.0\.url") as refused:
        start_alerts({}, given_.alerts)
    assert "S3CRET" not in str(refused.value)


def test_a_new_configuration_ends_the_watch():
    with receiving() as receiver:
        found = settings_of({**WISE, "alerts": {"webhooks": [{"url": receiver.url}]}}).alerts
        first = start_alerts({}, found)
        assert start_alerts({}, found) is not first
        assert first._closing.is_set()
        assert start_alerts({}, None) is None
