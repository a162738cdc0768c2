"""The operator's page in a browser: signing in, waiting for its figures, and axe-core on it."""

from __future__ import annotations

import base64
import gzip
import json
import time
from pathlib import Path

from support.browser import Page

AXE = Path(__file__).parent / "axe-core" / "axe.min.js.gz"


def show(tab: Page, base_url: str, key: str, *, width: int = 1_000, height: int = 900, dark: bool = False) -> None:
    """Open the page and sign in with a key."""
    tab.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    tab.send("Emulation.setTimezoneOverride", timezoneId="UTC")
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.send("Emulation.setEmulatedMedia", features=[scheme, {"name": "prefers-reduced-motion", "value": "reduce"}])
    tab.open(f"{base_url}/wiserouter/")
    wait_for(tab, "document.getElementById('key')")
    tab.run(f"document.getElementById('key').value = {json.dumps(key)}")
    tab.run("document.querySelector('form button').click()")


def wait_for(tab: Page, condition: str, timeout_s: float = 20.0) -> None:
    """Wait until an expression of the page is true."""
    deadline = time.monotonic() + timeout_s
    while not tab.run(f"Boolean({condition})"):
        assert time.monotonic() < deadline, f"{condition} never held: {tab.run('document.body.innerText')[:2_000]}"
        tab.run("new Promise(done => setTimeout(done, 50))")


def put(tab: Page, selector: str, value: object, event: str = "input") -> None:
    """Give a field a value, as one who types or chooses does."""
    field = f"document.querySelector({json.dumps(selector)})"
    tab.run(f"{field}.value = {json.dumps(value)}")
    tab.run(f"{field}.dispatchEvent(new Event({json.dumps(event)}, {{bubbles: true}}))")


def violations(tab: Page) -> list[str]:
    """Return the serious findings of axe-core."""
    if not tab.run("Boolean(window.axe)"):
        tab.run(f"{gzip.decompress(AXE.read_bytes()).decode()}; true")
    found = tab.run("axe.run(document).then(({passes, violations}) => JSON.stringify([passes.length, violations]))")
    n_passes, met = json.loads(found)
    assert n_passes > 10, "axe-core has looked at next to nothing"
    serious = [one for one in met if one["impact"] in {"serious", "critical"}]
    return [f"{one['id']}: {node['html']} {node['failureSummary']}" for one in serious for node in one["nodes"]]


def picture(tab: Page, width: int, last: str) -> bytes:
    """Return the page down to the end of a card as a PNG."""
    height = tab.run("document.documentElement.scrollHeight")
    tab.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    tab.run("new Promise(done => setTimeout(done, 400))")
    end = tab.run(f"Math.ceil(document.getElementById({json.dumps(last)}).getBoundingClientRect().bottom)") + 14
    clip = {"x": 0, "y": 0, "width": width, "height": end, "scale": 1}
    return base64.b64decode(tab.send("Page.captureScreenshot", format="png", clip=clip)["data"])
