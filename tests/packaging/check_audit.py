"""Ask PyPI for known vulnerabilities of the versions that the project is tested with, extras included.

Run as `uv run poe audit`; needs the network. A package that could not be asked about fails the audit as a
vulnerability does: without an answer of the service nothing is known.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXPORT = "uv export --quiet --no-hashes --no-emit-project --no-default-groups --all-extras --output-file"
AUDIT = (
    "uvx --no-config --quiet pip-audit==2.10.1 --strict --disable-pip --no-deps --progress-spinner=off --requirement"
)
UNANSWERED = ("could not be audited", "ConnectionError", "Could not connect", "ServiceError")


def main() -> None:
    """Export the versions, audit them, and end with an error where one is vulnerable or unknown."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        subprocess.run([*EXPORT.split(), str(file)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([*AUDIT.split(), str(file)], cwd=folder, capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode and any(sign in done.stderr for sign in UNANSWERED):
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        sys.exit(
            f"Nothing is known about vulnerabilities: the index of Python packages did not answer. pip-audit: {last}"
        )
    if done.returncode:
        sys.exit(done.stderr[-4_000:])
    print("No known vulnerabilities.")


if __name__ == "__main__":
    main()
