"""The bill of a call, read out of what LiteLLM logs of it."""
