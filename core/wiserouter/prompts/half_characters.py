"""Lone surrogates: halves of a character, such as of an emoji cut in two, which JSON can hold and UTF-8 cannot."""

from __future__ import annotations


def without_halves(text: str) -> str:
    r"""Return a text that has UTF-8: as it is, else with a question mark for each lone surrogate.

    Examples
    --------
    >>> without_halves("cut \ud83d"), without_halves("whole")
    ('cut ?', 'whole')
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
