"""WISERouter for LiteLLM: one budget for a model group of the proxy or of a `litellm.Router`.

In the proxy's configuration: `litellm_settings: {callbacks: ["wiserouter_litellm.callback"]}`. In Python: `attach`.
Needs the extra `litellm`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from wiserouter.errors import MissingExtra

if find_spec("litellm") is None:
    raise MissingExtra("wiserouter_litellm", "LiteLLM", "litellm")

if TYPE_CHECKING:
    from wiserouter_litellm.attachment import attach as attach
    from wiserouter_litellm.attachment import detach as detach
    from wiserouter_litellm.encoder import LiteLLMEncoder as LiteLLMEncoder
    from wiserouter_litellm.errors import BudgetRefused as BudgetRefused
    from wiserouter_litellm.errors import BudgetUncertain as BudgetUncertain
    from wiserouter_litellm.errors import SettingsError as SettingsError
    from wiserouter_litellm.errors import UnknownCall as UnknownCall
    from wiserouter_litellm.hooks.wise_callback import WiseCallback as WiseCallback
    from wiserouter_litellm.strategy import WiseRoutingStrategy as WiseRoutingStrategy

_HOMES = {
    "BudgetRefused": "errors",
    "BudgetUncertain": "errors",
    "LiteLLMEncoder": "encoder",
    "SettingsError": "errors",
    "UnknownCall": "errors",
    "WiseCallback": "hooks.wise_callback",
    "WiseRoutingStrategy": "strategy",
    "attach": "attachment",
    "detach": "attachment",
}

if not TYPE_CHECKING:  # a type checker takes the names that it finds above: of a computed list it would read none
    __all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Load a public name when it is asked for; `callback` is built from the proxy's configuration, once."""
    if name == "callback":
        from wiserouter_litellm.proxy import build_callback

        globals()[name] = callback = build_callback()
        return callback
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
