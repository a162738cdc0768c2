"""The engines of shared stores: SQLite and Redis."""
