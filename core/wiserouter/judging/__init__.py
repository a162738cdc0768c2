"""Judges: they score a share of the answers off the path of the requests; and their agreement with people."""
