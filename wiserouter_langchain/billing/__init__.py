"""What a call costs: its usage, the catalogue's prices, and fees beside the tokens."""
