"""Texts that LiteLLM keeps from its callbacks, such as with `turn_off_message_logging`: nothing can be said of them."""

REDACTED = "redacted-by-litellm"
"""The text that LiteLLM puts in place of one that must not be logged."""
