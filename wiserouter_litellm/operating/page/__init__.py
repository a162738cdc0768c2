"""The operator's page of the proxy: its files, and the read-only routes that it alone needs."""

from __future__ import annotations

from wiserouter_litellm.operating.page.files import page_files
from wiserouter_litellm.operating.page.routes import OperatorPage

__all__ = ["OperatorPage", "page_files"]
