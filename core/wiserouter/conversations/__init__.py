"""Conversations and runs: their kept state, their settings, and what their next calls cost."""
