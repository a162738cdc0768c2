"""Resolve every dependency anew and write the exact versions into `[tool.uv] constraint-dependencies`.

Run as `uv run poe pin`. No lock file is kept: it would name the registry it was made with.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYPROJECT = ROOT / "pyproject.toml"
PINNED = re.compile(r"constraint-dependencies = \[.*?\]\n", re.DOTALL)


def resolve() -> list[str]:
    """Return one `name==version ; marker` per package that the project, its extras and its tests need."""
    command = "uv export --no-hashes --no-annotate --no-header --no-emit-project --all-extras --all-groups --upgrade"
    lines = subprocess.run(command.split(), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [line.strip() for line in lines if "==" in line]


def main() -> None:
    """Replace the pins; they stay where there is no resolution."""
    before = PYPROJECT.read_text()
    text = PINNED.sub("constraint-dependencies = []\n", before)
    PYPROJECT.write_text(text)
    try:
        pins = "".join(f"    {quoted(line)},\n" for line in resolve())
    except BaseException:
        PYPROJECT.write_text(before)
        raise
    PYPROJECT.write_text(text.replace("constraint-dependencies = []\n", f"constraint-dependencies = [\n{pins}]\n"))


def quoted(line: str) -> str:
    """Return a TOML string."""
    return '"' + line.replace('"', "'") + '"'


if __name__ == "__main__":
    main()
