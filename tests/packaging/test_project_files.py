"""The files that a repository's host and its citers read."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from support.badges import badges

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
FIELDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_citation_names_this_version_and_the_paper():
    citation = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what its schema requires
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]
    paper = citation["preferred-citation"]
    assert {"type", "title", "authors"} <= paper.keys()
    assert [one["family-names"] for one in paper["authors"]] == ["Li", "Gao", "Lakshmanan"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_fields_of_its_schema(path):
    form = read(path)
    assert form["name"]
    assert form["description"]
    assert {field["type"] for field in form["body"]} <= FIELDS
    ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert ids
    assert len(ids) == len(set(ids))
    assert all(field["attributes"].get("label") for field in form["body"] if field["type"] != "markdown")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_few_rights_and_an_end(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert set(job.get("needs", "build").split()) <= workflow["jobs"].keys() | {"build"}
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.search(r"@[0-9a-f]{40}$", step.get("uses", "@" + "0" * 40))  # a tag can be moved
            assert "${{ github.event" not in step.get("run", "")  # text of others, run as a command
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_tasks_and_files_that_are_there(path):
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"poe ([\w-]+)", text)) <= PROJECT["tool"]["poe"]["tasks"].keys()
    paths = re.findall(r"(?:tests/[\w/.]+|\.ci/run)", text)
    assert paths
    assert all((ROOT / one).exists() for one in paths)


def test_only_the_job_that_publishes_may_prove_its_identity():
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert not any("run" in step for step in jobs["publish"]["steps"])  # no code of the repository has that right


def test_the_readme_is_a_first_screen():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_badges_say_what_the_files_say():
    assert (ROOT / "docs" / "badges.svg").read_text(encoding="utf-8") == badges()  # else: uv run poe pictures


@pytest.mark.skipif(not shutil.which("uv") or not (ROOT / "uv.lock").exists(), reason="needs uv and its lock file")
def test_the_bill_of_materials_lists_what_the_wheel_needs(tmp_path):
    file = tmp_path / "bill.json"
    task = PROJECT["tool"]["poe"]["tasks"]["sbom"]["cmd"].replace("wiserouter.cdx.json", str(file))
    subprocess.run([*task.split(), "--frozen"], cwd=ROOT, check=True, capture_output=True)
    bill = json.loads(file.read_text(encoding="utf-8"))
    assert bill["bomFormat"] == "CycloneDX"
    names = {part["name"] for part in bill["components"]}
    needed = {re.match(r"[\w-]+", line).group() for line in PROJECT["project"]["dependencies"]}
    assert needed <= names
    assert "pytest" not in names
