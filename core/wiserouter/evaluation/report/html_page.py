"""The report as one self-contained HTML page: inline pictures, sortable tables, no network.

The page's content security policy allows its one script and its one style sheet by their hashes, and inline pictures.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from wiserouter.errors import MissingExtra
from wiserouter.evaluation.plots import svg_of
from wiserouter.evaluation.report.section import ReportSection

_BOLD, _CODE = re.compile(r"\*\*(.+?)\*\*"), re.compile(r"`(.+?)`")


def page_of(
    title: str, terms: str, sections: Sequence[ReportSection], notes: Mapping[str, str], origin: Mapping[str, str]
) -> str:
    """Return the page.

    Parameters
    ----------
    title, terms : str
        A heading, and a paragraph that describes the bench.
    sections : sequence of ReportSection
        Tables and pictures; their names are the anchors of the page.
    notes : mapping of str to str
        A remark on each method.
    origin : mapping of str to str
        Versions, seeds, the hash of the data and the command.
    """
    script, style = (
        files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("html_page.js", "html_page.css")
    )
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script, style)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{style}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n<p>{_inline(terms)}</p>",
        _contents(sections),
        "<main>",
        *map(_section, sections),
        _notes(notes),
        _origin(origin),
        f"</main>\n<script>{script}</script>\n</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _policy(script: str, style: str) -> str:
    return f"default-src 'none'; img-src data:; script-src '{_hash(script)}'; style-src '{_hash(style)}'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _contents(sections: Iterable[ReportSection]) -> str:
    links = "".join(f'<li><a href="#{escape(each.name)}">{_inline(each.title)}</a></li>' for each in sections)
    return f'<nav aria-label="Contents"><ul>{links}<li><a href="#origin">Origin</a></li></ul></nav>'


def _section(section: ReportSection) -> str:
    name = escape(section.name)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{_inline(section.title)}</h2>\n'
        f"<p>{_inline(section.text.strip())}</p>\n{_picture(section)}{_table(section)}\n</section>"
    )


def _table(section: ReportSection) -> str:
    if not section.head:
        return ""
    head = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{_inline(name)}</button></th>' for name in section.head
    )
    rows = "\n".join(f"<tr>{_row(row)}</tr>" for row in section.rows)
    label = f'aria-labelledby="{escape(section.name)}-title"'
    return (
        f'<div class="wide" role="region" tabindex="0" {label}><table {label}>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _row(cells: Sequence[str]) -> str:
    name, *others = map(_inline, cells)
    return f'<th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in others)


def _picture(section: ReportSection) -> str:
    """Return the picture of a section, or, without matplotlib, how to install it."""
    if section.draw is None:
        return ""
    try:
        svg = svg_of(section.draw())
    except MissingExtra as error:
        return f"<p>{escape(str(error))}</p>\n"
    below = "the figures of the table below" if section.head else section.text
    alt = escape(f"{section.title}: {below}.")
    return f'<img alt="{alt}" src="data:image/svg+xml;base64,{b64encode(svg).decode()}">\n'


def _notes(notes: Mapping[str, str]) -> str:
    listed = "".join(f"<li><code>{escape(name)}</code> {_inline(note)}.</li>" for name, note in notes.items() if note)
    return f'<section id="notes">\n<h2>Notes</h2>\n<ul>{listed}</ul>\n</section>' if listed else ""


def _origin(origin: Mapping[str, str]) -> str:
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in origin.items())
    return f'<section id="origin">\n<h2>Origin</h2>\n<dl>{listed}</dl>\n</section>'


def _inline(text: str) -> str:
    """Return a text as HTML: **bold** and `code` are marked up, everything else is escaped.

    Examples
    --------
    >>> _inline("**0.5** of `zero` <b>")
    '<strong>0.5</strong> of <code>zero</code> &lt;b&gt;'
    """
    return _CODE.sub(r"<code>\1</code>", _BOLD.sub(r"<strong>\1</strong>", escape(text)))
