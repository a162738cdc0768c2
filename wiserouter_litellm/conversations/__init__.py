"""Which conversation a request continues, and the keys by which feedback finds its calls."""
