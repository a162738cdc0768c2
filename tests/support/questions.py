"""Generated questions of four kinds; two models are good at two of them each, so that a prompt tells which to ask."""

import numpy as np

# fmt: off
COMMON = [
    "please",
    "can",
    "you",
    "tell",
    "me",
    "how",
    "to",
    "the",
    "a",
    "of",
    "in",
    "what",
    "is",
    "for",
    "my",
    "with",
    "and",
    "explain",
    "this",
    "help",
    "write",
]
OF_KIND = [
    [
        "python",
        "function",
        "list",
        "sort",
        "class",
        "error",
        "import",
        "return",
        "loop",
        "array",
        "string",
        "parse",
        "regex",
        "test",
        "bug",
        "method",
        "type",
        "dict",
    ],
    [
        "contract",
        "clause",
        "liability",
        "court",
        "tenant",
        "plaintiff",
        "statute",
        "appeal",
        "damages",
        "breach",
        "lease",
        "evidence",
        "rights",
        "party",
    ],
    [
        "weekend",
        "movie",
        "dinner",
        "friend",
        "holiday",
        "recipe",
        "music",
        "joke",
        "birthday",
        "travel",
        "football",
        "garden",
        "coffee",
        "weather",
    ],
    [
        "integral",
        "matrix",
        "prove",
        "theorem",
        "prime",
        "derivative",
        "equation",
        "polynomial",
        "limit",
        "vector",
        "probability",
        "sum",
        "angle",
    ],
]
# fmt: on
SKILL = np.array([[0.95, 0.60], [0.60, 0.95], [0.92, 0.65], [0.62, 0.93]])
"""Chance of a right answer by kind and model; .782 for the better model of all, .938 for the best of each kind."""


def question(rng: np.random.Generator, kind: int) -> str:
    """Return a question of which a quarter of the words are those of its kind."""
    n = int(rng.integers(6, 14))
    words = [*rng.choice(OF_KIND[kind], size=max(2, n // 3)), *rng.choice(COMMON, size=n)]
    return " ".join(rng.permutation(words))
