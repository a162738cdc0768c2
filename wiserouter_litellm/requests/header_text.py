"""The text of headers, which may hold printable ASCII alone."""

from __future__ import annotations

from urllib.parse import quote

_PRINTABLE = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"
"""ASCII that stands for itself in a header, beside letters, digits and `_.-~`."""


def in_header(name: str) -> str:
    """Return the name of a model as a header bears it: percent-encoded but for printable ASCII.

    Examples
    --------
    >>> in_header("modèle (new)")
    'mod%C3%A8le (new)'
    """
    return quote(name, safe=_PRINTABLE, errors="replace")
