"""Words of a text, for encoders that count them."""

import re

_UNSPACED = "\\u3040-\\u30ff\\u3400-\\u9fff\\uf900-\\ufaff"  # kana and Han: no blanks between words
WORD = re.compile(rf"[^\W{_UNSPACED}]+|[{_UNSPACED}]")
"""A word; where a script puts no blanks between words (Chinese, Japanese), a character."""
