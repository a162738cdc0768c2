"""A look at every page of the built site in a browser: two widths, light and dark, the console, and axe-core.

Run as `uv run poe docs-visit`, after `uv run poe docs`; `uv run poe docs-visit 2/3` visits the second third of it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

from support.browser import Page, opened_page
from support.docs_site.build import BUILD
from support.operator_browser import violations

WIDTHS = (360, 1_280)
SCHEMES = {"light": "default", "dark": "slate"}  # by the name that Zensical gives them


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Log nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a folder on this machine, and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def faults(site: Path, pages: Iterable[Path], profile: Path) -> Iterator[str]:
    """Yield what is wrong with pages, at each width, light and dark."""
    with served(site.parent) as address, opened_page(profile) as tab:
        for page in pages:
            name = page.relative_to(site).as_posix()
            tab.events.clear()
            tab.open(f"{address}/{site.name}/{name}")
            for width, (scheme, own_name) in product(WIDTHS, SCHEMES.items()):
                look(tab, width, scheme)
                yield from (f"{name} at {width} px, {scheme}: {one}" for one in seen(tab, width, own_name))
            yield from (f"{name}: {one}" for one in reported(tab))


def look(tab: Page, width: int, scheme: str) -> None:
    """Give the tab a width and a colour scheme, and two frames to draw them."""
    tab.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    preferred = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    tab.send("Emulation.setEmulatedMedia", features=preferred)
    tab.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 300))))")


def seen(tab: Page, width: int, own_name: str) -> Iterator[str]:
    """Yield the serious findings of axe-core, and whether the page has another scheme or is wider than the screen."""
    yield from (" ".join(one.split())[:400] for one in violations(tab))
    if (scheme := tab.run("document.body.dataset.mdColorScheme")) != own_name:
        yield f"the colour scheme is {scheme}"
    if (needed := tab.run("document.documentElement.scrollWidth")) > width:
        yield f"the page is {needed} px wide"


def reported(tab: Page) -> Iterator[str]:
    """Yield the errors of the console of a page, and its requests that failed."""
    yield from (event["entry"]["text"] for event in tab.met("Log.entryAdded") if event["entry"]["level"] == "error")
    yield from (str(event["exceptionDetails"])[:300] for event in tab.met("Runtime.exceptionThrown"))
    answers = (event["response"] for event in tab.met("Network.responseReceived"))
    yield from (f"{one['status']} {one['url']}" for one in answers if one["status"] >= 400)


def main() -> None:
    """Visit every page, or those of a part, and end with an error where something is wrong."""
    site = max(path for path in (BUILD / "site").iterdir() if path.is_dir())
    part, n_parts = map(int, (sys.argv[1:] or ["1/1"])[0].split("/"))
    pages = sorted(path for path in site.rglob("*.html") if path.name != "404.html")[part - 1 :: n_parts]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        found = list(faults(site, pages, Path(profile)))
    if found:
        sys.exit("\n".join(found))
    print(f"{len(pages)} pages at {WIDTHS} px, light and dark: no error on the console, no serious finding of axe-core")


if __name__ == "__main__":
    main()
