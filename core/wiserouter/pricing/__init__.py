"""What a call costs: prices, the bounds of the pool and token counts."""
