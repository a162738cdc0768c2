"""Install the wheel into a clean environment of each Python that is here, and run what a newcomer runs from it.

Run as `uv run poe pythons`, or for some as `uv run poe pythons 3.12 /opt/python3.13/bin/python`: the demo, also by
LiteLLM, `fit`, `replay`, the example of a LangChain chain, and the proxy of LiteLLM with 200 requests.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
EXTRAS = "litellm,langchain,bench"
QUIET = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "UV_PYTHON_DOWNLOADS": "never"}
QUIET.pop("PYTHONDONTWRITEBYTECODE", None)  # every process would compile LiteLLM again, a proxy for half a minute

WRITE_LOG = """
import polars as pl
rows = [{"prompt": f"{kind} {n}",
         "score|small": float(kind[0] == "s"), "cost|small": 1e-4, "score|large": 1.0, "cost|large": 3e-3}
        for n in range(60) for kind in ("fix this function", "say hello")]
pl.DataFrame(rows).write_parquet("calls.parquet")
"""


def main() -> None:
    """Check each version, and end with an error where one fails."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run("uv", "build", "--quiet", "--out-dir", work / "dist", cwd=ROOT)
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        (work / "pins.txt").write_text("\n".join(settings["tool"]["uv"]["constraint-dependencies"]))
        for version in sys.argv[1:] or VERSIONS:
            check(version, work)


def check(version: str, work: Path) -> None:
    """Install the wheel for one version and run the commands, unless that Python is not here."""
    name = version.replace(os.sep, "-").strip("-")
    venv, here = work / f"python-{name}", work / f"run-{name}"
    if run("uv", "venv", "--quiet", "--no-project", "--python", version, venv, cwd=work, may_fail=True):
        print(f"Python {version}: not here, not checked")
        return
    here.mkdir()
    python = venv / "bin" / "python"
    wheel = next((work / "dist").glob("*.whl"))
    install = ("uv", "pip", "install", "--quiet", "--python", python, "--constraints", work / "pins.txt")
    run(*install, f"{wheel}[{EXTRAS}]", "litellm[proxy]", cwd=work)
    command = venv / "bin" / "wiserouter"
    run(command, "--version", cwd=here)
    run(command, "demo", "--queries", "300", cwd=here)
    run(python, "-c", WRITE_LOG, cwd=here)
    run(command, "fit", "calls.parquet", "-o", "calls.wise", cwd=here)
    run(command, "replay", "calls.parquet", "--budget", "0.05", cwd=here)
    run(python, ROOT / "examples" / "06_langchain_chain.py", cwd=here)
    run(command, "demo", "--via", "litellm", "--queries", "50", cwd=here)
    run(python, ROOT / "examples" / "litellm_proxy" / "try_it.py", cwd=here)
    n_packages = len(
        subprocess.check_output(["uv", "pip", "list", "--quiet", "--python", python], text=True).splitlines()
    )
    print(
        f"Python {version}: demo, fit, replay, LangChain, LiteLLM and its proxy run from the wheel, "
        f"{n_packages - 2} packages",
        flush=True,
    )


def run(*command: str | Path, cwd: Path, may_fail: bool = False) -> int:
    """Run a command without its output, or stop with it."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=QUIET, capture_output=True, text=True, check=False
    )
    if done.returncode and not may_fail:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}")
    return done.returncode


if __name__ == "__main__":
    main()
