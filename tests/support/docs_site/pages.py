"""The pages of the site: each Markdown file of the project, and each file that one of them links to."""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

ROOT = Path(__file__).parents[3]

AT_THE_ROOT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
PICTURES = {".png", ".svg"}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_BLOCK = re.compile(r"(^[ ]*```.*?^[ ]*```)", re.DOTALL | re.MULTILINE)


def stage(folder: Path) -> None:
    """Write the pages into a folder, with their pictures and the files that they link to as pages of code."""
    sources = [*AT_THE_ROOT, *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
    linked: set[str] = set()
    for source in sources:
        text = (ROOT / source).read_text(encoding="utf-8")
        write(folder / place(source), rewritten(text, source, linked))
    for source in sorted(linked - set(sources)):
        stage_linked(source, folder)


def place(source: str) -> str:
    """Return the place in the site of a path of the project."""
    path = ROOT / source
    inside = source.removeprefix("docs/")
    if source == "README.md":
        return "index.md"
    if path.is_dir():
        return f"{inside}/index.md"
    return inside if path.suffix == ".md" or path.suffix in PICTURES else f"{inside}.md"


def rewritten(text: str, source: str, linked: set[str]) -> str:
    """Return the text of a page with its links moved to their places; the paths that it links to are added."""

    def moved(link: re.Match[str]) -> str:
        target = normpath((PurePosixPath(source).parent / link[1]).as_posix())
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"a link must lead to a file of the project, got {link[1]} in {source}")
        linked.add(target)
        return relpath(place(target), str(PurePosixPath(place(source)).parent)) + (link[2] or "")

    parts = _BLOCK.split(text)  # prose and blocks of code by turns
    return "".join(part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts))


def stage_linked(source: str, folder: Path) -> None:
    """Write a picture, a folder's list of files, or a file of code as a page."""
    path = ROOT / source
    if path.is_dir():
        stage_folder(path, folder)
    elif path.suffix in PICTURES:
        (folder / place(source)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / place(source))
    else:
        write(folder / place(source), code_page(path))


def stage_folder(path: Path, folder: Path) -> None:
    """Write the list of the files of a folder, and the files of code that no page links to."""
    source = path.relative_to(ROOT).as_posix()
    files = [one for one in sorted(path.rglob("*")) if one.suffix in {".md", *LANGUAGES}]
    lines = []
    for file in files:
        inside = file.relative_to(ROOT).as_posix()
        if file.suffix != ".md":
            write(folder / place(inside), code_page(file))
        lines.append(f"- [{title(file)}]({relpath(place(inside), str(PurePosixPath(place(source)).parent))})")
    name = {"adr": "Decisions", "examples": "Examples"}.get(path.name, path.name)
    write(folder / place(source), f"# {name}\n\n" + "\n".join(lines) + "\n")


def title(file: Path) -> str:
    """Return the first heading of a page of Markdown, the name of another file."""
    if file.suffix != ".md":
        return file.name
    return file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def code_page(path: Path) -> str:
    """Return a page that shows a file of code."""
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {path.name}\n\n````{language}\n{path.read_text(encoding='utf-8').rstrip()}\n````\n"


def write(path: Path, text: str) -> None:
    """Write a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
