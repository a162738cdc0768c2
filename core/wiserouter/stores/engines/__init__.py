"""Engines that keep what a shared store holds: SQLite and Redis."""
