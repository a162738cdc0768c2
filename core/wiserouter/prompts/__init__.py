"""From a text to its context: encoders, contexts and the reader of queries."""
