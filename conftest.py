"""The packages of the tests: where the environment of the project lacks them, pytest starts again with them."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent
GROUP = "dev"
STARTED = "WISEROUTER_TEST_GROUP"


def in_the_project_environment() -> bool:
    """Return whether uv made the running environment from pyproject.toml; others hold what their makers chose."""
    return Path(sys.prefix) == ROOT / os.environ.get("UV_PROJECT_ENVIRONMENT", ".venv")


def to_install() -> list[str]:
    """Return the requirements of the group that are missing, or installed in another version than the pinned one."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [Requirement(line) for line in settings["dependency-groups"][GROUP] if isinstance(line, str)]
    pins = {
        pin.name: pin for pin in map(Requirement, settings["tool"]["uv"]["constraint-dependencies"]) if applies(pin)
    }
    return [str(one) for one in wanted if applies(one) and not installed(pins.get(one.name, one))]


def applies(requirement: Requirement) -> bool:
    """Return whether the markers of a requirement hold here."""
    return requirement.marker is None or requirement.marker.evaluate()


def installed(requirement: Requirement) -> bool:
    """Return whether a version that meets the requirement is installed."""
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Run pytest again by `uv run --group dev`, before the first test file is imported, if packages are missing."""
    if not in_the_project_environment() or "PYTEST_XDIST_WORKER" in os.environ or not (missing := to_install()):
        return
    if STARTED in os.environ:
        raise pytest.UsageError(
            f"the group {GROUP} must be installed, got no {', '.join(missing)}: uv sync --group dev"
        )
    if capture := pluginmanager.getplugin("capturemanager"):
        capture.suspend_global_capture(in_=True)
    uv = os.environ.get("UV", "uv")
    command = [uv, "run", "--group", GROUP, "python", "-m", "pytest", *sys.argv[1:]]
    sys.stderr.write(
        f"{len(missing)} packages of the group {GROUP} are installed for the tests: uv run --group {GROUP}\n"
    )
    raise SystemExit(subprocess.run(command, env=os.environ | {STARTED: "1"}, check=False).returncode)
