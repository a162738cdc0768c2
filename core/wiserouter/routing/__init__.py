"""The inside of `WiseRouter`."""
