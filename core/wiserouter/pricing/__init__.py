"""The cost of a call: prices, the bounds of the pool and token counts."""
