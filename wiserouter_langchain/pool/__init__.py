"""The chat models of the pool, as they are wrapped, named and sent to once."""
