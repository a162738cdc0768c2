"""Files that are written whole, and what is no such file."""

import os
import subprocess
import sys

import pytest

from wiserouter.validation import write_whole

WRITES = "from pathlib import Path; from wiserouter.validation import write_whole; write_whole(Path({!r}), 'a page')"


@pytest.mark.skipif(sys.platform == "win32", reason="has no such names")
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_a_pipe_is_written_under_its_name_in_dev(name):
    ran = subprocess.run([sys.executable, "-c", WRITES.format(name)], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("a page", "")


@pytest.mark.skipif(sys.platform == "win32", reason="has no such names")
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_file_that_the_output_goes_to_is_written_where_the_output_is(tmp_path, name):
    page = tmp_path / "page.html"
    page.write_text("earlier, ")
    inode, program = page.stat().st_ino, f"print('before', end=', '); {WRITES.format(name)}; print(', after', end='')"
    with page.open("a") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
    assert (page.read_text(), page.stat().st_ino) == ("earlier, before, a page, after", inode)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such permissions")
def test_a_file_keeps_its_permissions_and_its_links(tmp_path):
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("earlier")
    page.chmod(0o600)
    link.symlink_to(page)
    write_whole(link, "a page")
    assert (page.read_text(), page.stat().st_mode & 0o777, link.is_symlink()) == ("a page", 0o600, True)
    assert sorted(tmp_path.iterdir()) == [link, page]


@pytest.mark.parametrize("closed", ["folder", "page.html"])
def test_a_file_that_cannot_be_replaced_is_written_and_named(tmp_path, monkeypatch, closed):
    page = tmp_path / "folder" / "page.html"
    page.parent.mkdir()
    page.write_text("earlier")
    inode = page.stat().st_ino
    monkeypatch.setattr(os, "access", lambda place, _: place.name != closed)  # no folder is closed to root
    write_whole(page, "a page")
    assert (page.read_text(), page.stat().st_ino) == ("a page", inode)
    missing = tmp_path / "nowhere" / "page.html"
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError) as refused:
        write_whole(missing, "a page")
    assert refused.value.filename == str(missing)
