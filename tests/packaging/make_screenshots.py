"""Take the pictures of the operator's page in docs: desktop, phone and dark, of a real proxy in a real Chromium.

Run as `uv run poe screenshots`.
"""

import io
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from support.browser import opened_page
from support.operated_proxy import TEAMS, seed, write_config
from support.operator_browser import picture, show, wait_for
from support.proxies import running_proxy
from support.questions import question

ROOT = Path(__file__).parents[2]

PICTURES = {"page": (1_000, False, "kinds"), "page-phone": (360, False, "plan"), "page-dark": (1_000, True, "savings")}
"""Width of the window, whether it is dark, and the last card in the picture, by the name of the file."""

READY = "document.querySelectorAll('#decisions tbody tr').length && document.querySelectorAll('canvas').length == 4"
COLOURS = 64


def main() -> None:
    """Run a proxy that is three weeks into a month, and take its pictures."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        seed(folder, time.time())
        with running_proxy(write_config(folder), folder / "proxy.log") as (base_url, key, _):
            call(base_url, 20)
            for picture_name, (width, dark, last) in PICTURES.items():
                with opened_page(folder / picture_name) as tab:
                    show(tab, base_url, key, width=width, dark=dark)
                    wait_for(tab, READY)
                    path = ROOT / "docs" / f"{picture_name}.png"
                    path.write_bytes(compressed(picture(tab, width, last)))
                    print(path.relative_to(ROOT), f"{path.stat().st_size / 1_000:.0f} kB")


def call(base_url: str, n: int) -> None:
    """Ask questions of the teams, and rate some of the answers."""
    rng = np.random.default_rng(0)
    with httpx.Client(base_url=base_url, timeout=30) as client:
        for i in range(n):
            head = {"authorization": f"Bearer sk-of-{[*TEAMS][i % len(TEAMS)]}"}
            message = {"role": "user", "content": question(rng, i % 4)}
            answer = client.post("/v1/chat/completions", json={"model": "support", "messages": [message]}, headers=head)
            rating = {"id": answer.raise_for_status().headers["x-wiserouter-decision"], "score": float(i % 5 > 0)}
            if i % 2:
                client.post("/wiserouter/feedback", json=rating, headers=head).raise_for_status()


def compressed(png: bytes) -> bytes:
    """Return a picture with few colours, which text and lines need no more of."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main()
