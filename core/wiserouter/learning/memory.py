"""How long what was seen counts, where it may change and no test for a change is made."""

MEMORY = 0.9998
"""Weight of what was seen so far at each further observation: about the last 5,000 are counted."""
