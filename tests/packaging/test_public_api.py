"""No accidental change of the public API: names, signatures and types are those on record."""

import importlib

from support import public_api
from support.docs_site import api


def test_the_public_api_is_the_recorded_one():
    assert public_api.differences() == [], public_api.REMEDY


def test_the_record_has_every_public_name():
    recorded = public_api.RECORD.read_text(encoding="utf-8").splitlines()
    names = {line.split("(")[0].split(":")[0] for line in recorded}
    for package in api.PACKAGES:
        public = importlib.import_module(package).__all__
        assert {f"{package}.{name}" for name in public if not name.startswith("__")} <= names


def test_a_changed_default_is_a_difference(tmp_path, monkeypatch):
    changed = tmp_path / "record.txt"
    text = public_api.RECORD.read_text(encoding="utf-8")
    changed.write_text(text.replace("timezone: str = 'UTC'", "timezone: str = 'CET'"), encoding="utf-8")
    monkeypatch.setattr(public_api, "RECORD", changed)
    assert {line[0] for line in public_api.differences()} == {"+", "-"}
