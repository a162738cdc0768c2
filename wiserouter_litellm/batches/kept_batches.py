"""The batches of a proxy as they are kept: a folder for each, with its lines, the files sent, and its state."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from wiserouter.integration.batches.provider_batch import ENDED
from wiserouter_litellm.batches.kept_files import UnknownBatch, make_private, write_whole

BATCH_ID = re.compile(r"batch_wise_[0-9a-f]{32}")
"""The ids of batches, by which a request for one is told from those that LiteLLM answers."""

LEFT_S = 600.0
"""Time after which a folder without a description belongs to no worker any more."""

State = Literal["planned", "accepted", "ended"]


@dataclass
class ProviderJob:
    """The batch of one deployment.

    Attributes
    ----------
    file : str
        Its file in the folder of the batch.
    model, deployment_id : str
        The model, and the deployment that it is sent to.
    requests : int
        The lines of the file.
    file_id, batch_id : str
        Its ids at the provider; "" until they are known.
    asked : bool
        Whether a batch was asked for, so that there may be one without a known id.
    status : str
        Its state at the provider; "" before it is sent.
    completed, failed : int
        Lines that the provider has answered, and that failed, as far as it says.
    fetched : tuple of str
        Files of results in the folder of the batch.
    error : str
        Why the provider refused the file.
    """

    file: str
    model: str
    deployment_id: str
    requests: int
    file_id: str = ""
    batch_id: str = ""
    asked: bool = False
    status: str = ""
    completed: int = 0
    failed: int = 0
    fetched: tuple[str, ...] = ()
    error: str = ""


@dataclass
class ProxyBatch:
    """A batch of a group, as its caller sees it, and the jobs that it was split into.

    Attributes
    ----------
    id, owner : str
        Its id, and a digest of the key that it belongs to.
    group, scope : str
        The group, and the scope whose budget pays.
    input_file_id, endpoint, completion_window : str
        As the caller gave them.
    metadata : mapping of str to str
        As the caller gave it.
    created_at : int
        Seconds since 1970.
    total : int
        Its lines.
    state : {"planned", "accepted", "ended"}
        Planned until its costs are reserved, ended when all its lines are settled.
    cancelling : bool
        Whether its caller has cancelled it.
    status : str
        Its state, once it has ended.
    times : dict of str to int
        When it reached the states that OpenAI names, such as `completed_at`.
    completed, failed : int
        Lines that were answered, and that were not, once it has ended.
    output_file_id, error_file_id : str
        Its results; "" where there are none.
    jobs : list of ProviderJob
        The jobs.
    """

    id: str
    owner: str
    group: str
    scope: str
    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: Mapping[str, str]
    created_at: int
    total: int
    state: State = "planned"
    cancelling: bool = False
    status: str = ""
    times: dict[str, int] = field(default_factory=dict)
    completed: int = 0
    failed: int = 0
    output_file_id: str = ""
    error_file_id: str = ""
    jobs: list[ProviderJob] = field(default_factory=list)

    def shown_status(self) -> str:
        """Return its state in OpenAI's words."""
        if self.status:
            return self.status
        if self.cancelling:
            return "cancelling"
        if all(job.status in ENDED for job in self.jobs):
            return "finalizing"
        return "in_progress" if all(job.status for job in self.jobs) else "validating"

    def shown(self) -> dict[str, Any]:
        """Return the batch as OpenAI's routes show it."""
        ended = self.state == "ended"
        completed = self.completed if ended else sum(job.completed for job in self.jobs)
        failed = self.failed if ended else sum(job.failed for job in self.jobs)
        refused = [{"code": "job_failed", "message": job.error, "line": None, "param": None} for job in self._refused()]
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "input_file_id": self.input_file_id,
            "completion_window": self.completion_window,
            "status": self.shown_status(),
            "created_at": self.created_at,
            "expires_at": self.created_at + 86_400,
            "errors": {"object": "list", "data": refused} if refused else None,
            "output_file_id": self.output_file_id or None,
            "error_file_id": self.error_file_id or None,
            "request_counts": {"total": self.total, "completed": completed, "failed": failed},
            "metadata": dict(self.metadata) or None,
            "model": self.group,
            **self.times,
        }

    def _refused(self) -> Iterator[ProviderJob]:
        return (job for job in self.jobs if job.error)


class PlannedLine(NamedTuple):
    """A line of a batch: the caller's id, the decision, and the model that it was given."""

    custom_id: str
    decision_id: str
    model: str
    deployment_id: str


class KeptBatches:
    """A folder of batches.

    Parameters
    ----------
    folder : Path
        The folder, which is made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_private(folder)

    def path(self, id_: str) -> Path:
        """Return the folder of a batch."""
        return self._folder / id_

    def ids(self) -> list[str]:
        """Return the ids of all batches, in no order."""
        return [one.name for one in self._folder.iterdir() if BATCH_ID.fullmatch(one.name)]

    def find(self, id_: str, owner: str | None) -> ProxyBatch:
        """Return a batch that was accepted; None for the owner finds those of all callers.

        Raises
        ------
        UnknownBatch
            If there is none of this owner.
        """
        found = self.read(id_) if BATCH_ID.fullmatch(id_) else None
        if found is None or found.state == "planned" or (owner is not None and found.owner != owner):
            raise UnknownBatch("batch", id_)
        return found

    def read(self, id_: str) -> ProxyBatch | None:
        """Return a batch; None where its folder has none yet, or is gone."""
        try:
            fields = json.loads((self.path(id_) / "batch.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        jobs = [ProviderJob(**{**job, "fetched": tuple(job["fetched"])}) for job in fields.pop("jobs")]
        return ProxyBatch(**fields, jobs=jobs)

    def write(self, batch: ProxyBatch) -> None:
        """Write how far a batch has come."""
        write_whole(self.path(batch.id) / "batch.json", json.dumps(asdict(batch), indent=1))

    def write_lines(self, id_: str, lines: Iterable[PlannedLine]) -> None:
        """Write the lines of a batch, in the order of its input."""
        write_whole(self.path(id_) / "lines.jsonl", "".join(json.dumps(one) + "\n" for one in lines))

    def lines(self, id_: str) -> list[PlannedLine]:
        """Return the lines of a batch, in the order of its input; none where they are not written yet."""
        path = self.path(id_) / "lines.jsonl"
        if not path.exists():
            return []
        with path.open(encoding="utf-8") as rows:
            return [PlannedLine(*json.loads(row)) for row in rows]

    def is_left(self, id_: str) -> bool:
        """Return True if a batch has had no description for so long that no worker is about to write one."""
        path = self.path(id_)
        return path.exists() and time.time() - path.stat().st_mtime > LEFT_S

    def delete(self, id_: str) -> None:
        """Delete a batch."""
        shutil.rmtree(self.path(id_), ignore_errors=True)

    @contextmanager
    def held(self, id_: str, *, wait: bool = False) -> Iterator[bool]:
        """Hold a batch, so that no other worker or thread of this machine changes it.

        Yields
        ------
        bool
            False if another one holds it, and `wait` is False; or if it is gone.
        """
        try:
            descriptor = os.open(self.path(id_) / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            yield False
            return
        try:
            yield _locked(descriptor, wait=wait)
        finally:
            os.close(descriptor)


def _locked(descriptor: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
