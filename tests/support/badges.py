"""The badges of the README as one picture, made from the files that decide what they say: no service has to answer."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MUTANTS = ROOT / "tests" / "packaging" / "surviving_mutants.toml"
CHAR_PX, PAD_PX, GAP_PX, HEIGHT_PX = 6.7, 7, 6, 20
LEFT, RIGHT = "#444d56", "#1f6391"
"""Colours of the two halves; white on either has a contrast of more than 6."""


def facts() -> list[tuple[str, str]]:
    """Return what the badges say: label and value."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    about, mypy = project["project"], project["tool"]["mypy"]
    measured = tomllib.loads(MUTANTS.read_text(encoding="utf-8"))["measured"]
    return [
        ("version", about["version"]),
        ("Python", re.sub(r"^>=", "", about["requires-python"]) + " or later"),
        ("licence", about["license"]),
        ("types", "mypy strict" if mypy["strict"] else "mypy"),
        ("mutants killed", f"{measured['killed']} of {measured['tried']}"),
    ]


def badges() -> str:
    """Return the picture as SVG."""
    parts, at = [], 0.0
    for label, value in facts():
        widths = [len(text) * CHAR_PX + 2 * PAD_PX for text in (label, value)]
        for text, width, colour in zip((label, value), widths, (LEFT, RIGHT), strict=True):
            parts.append(f'<rect x="{at:.1f}" width="{width:.1f}" height="{HEIGHT_PX}" fill="{colour}"/>')
            parts.append(f'<text x="{at + width / 2:.1f}" y="14" textLength="{len(text) * CHAR_PX:.1f}">{text}</text>')
            at += width
        at += GAP_PX
    said = ", ".join(" ".join(one) for one in facts())
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{at - GAP_PX:.0f}" height="{HEIGHT_PX}" role="img">',
            f"<title>{said}</title>",
            "<style>text { fill: #fff; font: 11px Verdana, DejaVu Sans, sans-serif; text-anchor: middle }</style>",
            *parts,
            "</svg>\n",
        ]
    )
