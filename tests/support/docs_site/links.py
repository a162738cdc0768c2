"""The links of a built site: each must lead to a file of the site, and its anchor to an element with that id."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_TARGETS = {"a": "href", "link": "href", "img": "src", "script": "src"}


class PageLinks(HTMLParser):
    """The ids of a page, the addresses that it names, and the text of its paragraphs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the id and the address of an element."""
        given = dict(attrs)
        if name := given.get("id") or (given.get("name") if tag == "a" else None):
            self.ids.add(name)
        if (address := given.get(_TARGETS.get(tag, ""))) is not None:
            self.addresses.append(address)


def broken(site: Path) -> list[str]:
    """Return the links of a site that lead nowhere, each with its page; addresses of other hosts are not looked at."""
    pages = {path: PageLinks(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    return [
        f"{path.relative_to(site)}: {address}"
        for path, page in pages.items()
        if path.name != "404.html"  # its addresses are those of the root of a host
        for address in page.addresses
        if not leads_somewhere(path, address, pages)
    ]


def leads_somewhere(path: Path, address: str, pages: dict[Path, PageLinks]) -> bool:
    """Return whether an address of a page names a file, and an element of it."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return False
    return not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].ids


def other_hosts(site: Path) -> Iterator[str]:
    """Yield what pages load from other hosts: scripts, styles and pictures."""
    for path in sorted(site.rglob("*.html")):
        page = _Loaded(path.read_text(encoding="utf-8"))
        yield from (f"{path.relative_to(site)}: {one}" for one in page.addresses if urlsplit(one).netloc)


class _Loaded(PageLinks):
    """What a page loads by itself."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the address of an element, unless it is only a link to follow."""
        if tag != "a" and dict(attrs).get("rel") not in {"canonical", "prev", "next"}:
            super().handle_starttag(tag, attrs)
