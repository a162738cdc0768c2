"""The decision on a call, the conversation that it continues, and the scores that come back to it."""
