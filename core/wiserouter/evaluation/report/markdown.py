"""The report in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from wiserouter.evaluation.report.section import ReportSection


def markdown_of(title: str, terms: str, sections: Iterable[ReportSection], notes: Mapping[str, str]) -> str:
    """Return a report as Markdown.

    Parameters
    ----------
    title, terms : str
        A heading, and a paragraph that describes the bench.
    sections : iterable of ReportSection
        The tables.
    notes : mapping of str to str
        A remark on each method.
    """
    listed = "\n".join(f"- `{name}` {note}." for name, note in notes.items() if note)
    parts = [f"# {title}", terms, *map(section_markdown, sections)]
    return "\n\n".join([*parts, f"## Notes\n\n{listed}"] if listed else parts) + "\n"


def section_markdown(section: ReportSection) -> str:
    """Return one section under its heading."""
    parts = [
        f"## {section.title}",
        section.text.strip(),
        *([table_of(section.head, section.rows)] if section.head else []),
    ]
    return "\n\n".join(parts)


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    Examples
    --------
    >>> print(table_of(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
