"""One routed call, by each of the ways in which a chain can make it."""
