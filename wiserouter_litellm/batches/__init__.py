"""Batches of groups in the proxy: files and batches with OpenAI's routes, under the budget of the group.

`front.py` stands in front of LiteLLM's own routes, `routes.py` answers, `group_batches.py` creates, `progress.py`
sends, polls and settles.
"""
