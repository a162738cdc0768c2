"""A recording of a terminal as one SVG that moves: commands are typed, their output appears line by line, and again.

It is drawn by rich and moved by CSS alone, so that it plays where a README is shown, without a script. Where no motion
is wanted or none is supported, the first command stands there with its output.
"""

import re
import sys
from typing import NamedTuple

from wiserouter.cli import main
from wiserouter.cli.output import out

WIDTH = 88
"""Characters of a line."""

SCREEN_S = 10.0
"""How long one command is shown."""

TYPED_S, LINE_S, BEFORE_S = 0.05, 0.15, 0.6
"""Seconds of a typed character, of a line of output, and from the command to its output."""

_LINE_PX, _CHAR_PX, _MARGIN_PX = 24.4, 12.2, 41
_TEXT = re.compile(r"<text [^>]*?clip-path=\"url\(#(?P<id>\w+)-line-(?P<line>\d+)\)\">.*?</text>", re.DOTALL)
_STYLE = re.compile(r"^\s*(\.\w+-r\d+ \{.*\})$", re.MULTILINE)
_FRAME = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
text {{ font-family: Fira Code, monospace; font-size: 20px; white-space: pre }}
.title {{ font: bold 18px arial; text-anchor: middle }}
.later {{ opacity: 0 }}
{styles}
@media (prefers-reduced-motion: no-preference) {{
{motion}
}}
</style>
<rect fill="#292929" x="1" y="1" width="{inner}" height="{below}" rx="8"/>
<text class="title" fill="#c5c8c6" x="{middle}" y="27">{title}</text>
<g transform="translate(26,22)">
<circle r="7" fill="#ff5f57"/><circle cx="22" r="7" fill="#febc2e"/><circle cx="44" r="7" fill="#28c840"/>
</g>
<g transform="translate(9,{margin})">
{screens}
</g>
</svg>
"""


class Screen(NamedTuple):
    """A command with its output, as the elements of each line, and the styles that they use."""

    command: str
    lines: list[str]
    styles: list[str]


def screen(name: str, command: str) -> Screen:
    """Run a command of `wiserouter` in this process and return what it prints."""
    width, record, arguments = out.width, out.record, sys.argv
    out.width, out.record = WIDTH, True
    sys.argv = command[command.index("wiserouter") :].split()
    try:
        out.print(f"$ {command}", style="bold")
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
        drawn = out.export_svg(title="", unique_id=name)
    finally:
        out.width, out.record, sys.argv = width, record, arguments
    lines: dict[int, list[str]] = {}
    for found in _TEXT.finditer(drawn):
        if (
            found[0].rpartition(">")[0].rpartition(">")[2].strip(" \n\N{NO-BREAK SPACE}").replace("&#160;", "")
            != "</text"
        ):
            lines.setdefault(int(found["line"]), []).append(re.sub(r' clip-path="[^"]*"', "", found[0]))
    count = max(lines) + 1
    return Screen(command, ["".join(lines.get(n, [])) for n in range(count)], _STYLE.findall(drawn))


def animated(screens: list[Screen], title: str) -> str:
    """Return the screens as one SVG that shows them in turn, for ever."""
    total_s = SCREEN_S * len(screens)
    motion, groups = [], []
    for at, one in enumerate(screens):
        begin_s, name = at * SCREEN_S, f"s{at}"
        typed_s = begin_s + TYPED_S * (len(one.command) + 2)
        shown = [_percent(begin_s, total_s), _percent(begin_s + SCREEN_S, total_s)]
        motion.append(_appears(name, shown[0], shown[1], total_s))
        width = _CHAR_PX * (len(one.command) + 2)
        motion.append(
            f"@keyframes {name}-typed {{ 0%, {shown[0]}% {{ clip-path: inset(0 {width:.1f}px 0 0); "
            f"animation-timing-function: steps({len(one.command) + 2}) }} "
            f"{_percent(typed_s, total_s)}%, 100% {{ clip-path: inset(0 0 0 0) }} }}\n"
            f".{name}-typed {{ animation: {name}-typed {total_s:g}s infinite }}"
        )
        lines = [f'<g class="{name}-typed">{one.lines[0]}</g>']
        for n, line in enumerate(one.lines[1:]):
            if line:
                from_s = typed_s + BEFORE_S + n * LINE_S
                motion.append(_appears(f"{name}-{n}", _percent(from_s, total_s), 100.0, total_s))
                lines.append(f'<g class="{name}-{n}">{line}</g>')
        later = "" if at == 0 else " later"
        groups.append(f'<g class="{name}{later}">\n' + "\n".join(lines) + "\n</g>")
    width_px = WIDTH * _CHAR_PX + 18
    height_px = max(len(one.lines) for one in screens) * _LINE_PX + _MARGIN_PX + 14
    return _FRAME.format(
        width=f"{width_px:.0f}",
        height=f"{height_px:.0f}",
        inner=f"{width_px - 2:.0f}",
        below=f"{height_px - 2:.0f}",
        middle=f"{width_px / 2:.0f}",
        margin=_MARGIN_PX,
        title=title,
        styles="\n".join(style for one in screens for style in one.styles),
        motion="\n".join(motion),
        screens="\n".join(groups),
    )


def _appears(name: str, begin: float, end: float, total_s: float) -> str:
    """Return the rule of a class that is visible from one part of the recording to another, in percent."""
    before = f"0% {{ opacity: {int(begin == 0.0)} }} " + (f"{begin}% {{ opacity: 1 }} " if begin else "")
    after = f"{end}%, 100% {{ opacity: 0 }} " if end < 100.0 else "100% { opacity: 1 } "
    return f"@keyframes {name} {{ {before}{after}}}\n.{name} {{ animation: {name} {total_s:g}s step-end infinite }}"


def _percent(at_s: float, total_s: float) -> float:
    return round(100.0 * at_s / total_s, 2)
