"""The image of the proxy is built and has the packages, where Docker runs."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def docker(*arguments, timeout_s):
    command = ["docker", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.mark.slow
def test_the_image_is_built_and_knows_its_command():
    if not shutil.which("docker"):
        pytest.skip("needs Docker, which is not installed")
    if docker("info", timeout_s=30).returncode:
        pytest.skip("needs Docker, whose daemon does not run")
    name = "wiserouter-proxy:built-by-a-test"
    built = docker("build", "--file", "docs/deploy/Dockerfile", "--tag", name, ".", timeout_s=900)
    assert built.returncode == 0, built.stderr[-4_000:]
    try:
        ran = docker("run", "--rm", "--entrypoint", "wiserouter", name, "--version", timeout_s=60)
        assert ran.returncode == 0, ran.stderr
    finally:
        docker("image", "rm", "--force", name, timeout_s=60)
