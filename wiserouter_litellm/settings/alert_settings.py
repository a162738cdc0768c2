"""The settings `alerts`: when to warn of budgets, and whom."""

from __future__ import annotations

from pydantic import Field, SecretStr, model_validator

from wiserouter.integration import WarningRules
from wiserouter_litellm.settings.strict_settings import Strict


class WebhookBlock(Strict):
    """A webhook.

    Attributes
    ----------
    url : str
        Its address, such as os.environ/WISE_ALERTS_URL.
    secret : str, optional
        Signs each warning.
    """

    url: SecretStr
    secret: SecretStr | None = None


class AlertSettings(Strict):
    """When to warn of budgets, and whom.

    Attributes
    ----------
    thresholds : list of float
        Shares of the amount.
    exhaustion : bool
        Whether to warn where the forecast says that a budget ends early.
    pace : float, optional
        The multiple of the planned spend per hour beyond which to warn.
    litellm : bool
        Whether LiteLLM's own alerting sends the warnings, where `general_settings.alerting` is set.
    webhooks : list of WebhookBlock
        Further receivers.
    every_s : float, seconds
        How often budgets are read.
    """

    thresholds: list[float] = Field(default_factory=lambda: [0.5, 0.8, 0.95])
    exhaustion: bool = True
    pace: float | None = None
    litellm: bool = True
    webhooks: list[WebhookBlock] = Field(default_factory=list)
    every_s: float = Field(10.0, gt=0, le=86_400)

    @model_validator(mode="after")
    def _reaches_a_receiver(self) -> AlertSettings:
        self.rules()
        if not self.litellm and not self.webhooks:
            raise ValueError("alerts needs webhooks, or litellm: true")
        return self

    def rules(self) -> WarningRules:
        """Return when to warn."""
        return WarningRules(tuple(self.thresholds), self.exhaustion, self.pace)
