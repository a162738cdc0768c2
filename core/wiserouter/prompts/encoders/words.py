"""Words of a text, for encoders that count them."""

import re

UNSPACED = "\\u3040-\\u30ff\\u3400-\\u9fff\\uf900-\\ufaff"
"""Ranges of kana and Han characters: no blanks between words."""

WORD = re.compile(rf"[^\W{UNSPACED}]+|[{UNSPACED}]")
"""A word; where a script puts no blanks between words (Chinese, Japanese), a character."""

_FOLDED = bytes([ord(one.lower()) if one.isalnum() or one == "_" else ord(" ") for one in map(chr, range(128))] * 2)
"""Of each ASCII character: itself in lower case where it is part of a word, else a blank."""


def words_as_bytes(text: str) -> list[bytes]:
    """Return the words of a text in lower case, as UTF-8.

    Examples
    --------
    >>> words_as_bytes("Is 2 x_1 = y?")
    [b'is', b'2', b'x_1', b'y']
    """
    if text.isascii():  # the same words, in a tenth of the time
        return text.encode("ascii").translate(_FOLDED).split()
    return [word.encode("utf-8", "surrogatepass") for word in WORD.findall(text.lower())]
