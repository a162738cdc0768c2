"""The download of a published file, on the user's explicit command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wiserouter.errors import MissingExtra
from wiserouter.evaluation.errors import MissingTable

Fetch = Callable[[str, str, str], Path]
"""Downloads a file by repository, file name and revision, and returns its path."""


def from_hub(repository: str, filename: str, revision: str) -> Path:
    """Return a file of a data set on the Hugging Face Hub, from the local cache if present.

    Raises
    ------
    MissingExtra
        If huggingface_hub is not installed.
    MissingTable
        If the file cannot be fetched.
    """
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise MissingExtra("downloading a data set", "huggingface_hub", "bench") from error
    try:
        return Path(hf_hub_download(repository, filename, repo_type="dataset", revision=revision))
    except (HfHubHTTPError, OSError) as error:
        first = str(error).strip().split("\n", maxsplit=1)[0]
        command = f"hf download {repository} {filename} --repo-type dataset --revision {revision}"
        raise MissingTable(filename, command, f"could not be fetched ({first})") from error
