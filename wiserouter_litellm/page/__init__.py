"""The operator's page of the proxy: its files, and the read-only routes that it alone needs."""

from __future__ import annotations

from wiserouter_litellm.page.files import page_files
from wiserouter_litellm.page.history import SpendHistory, keep_reading
from wiserouter_litellm.page.routes import page_data

__all__ = ["SpendHistory", "keep_reading", "page_data", "page_files"]
