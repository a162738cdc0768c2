"""Importers: past calls and their scores, from the systems that recorded them, to one log in the long layout."""
