"""Rounds of a batch at a service with OpenAI's routes: files sent, once each, and their results fetched.

Each step is written down before the next one. A run that was stopped between asking for a batch and hearing its id
finds the batch by its mark, the custom id of the first request, and creates no second one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.folder import BatchFolder
from wiserouter.integration.batches.layouts import custom_ids
from wiserouter.integration.batches.provider_batch import ENDED, mark_of, refusal_of, result_files
from wiserouter.integration.batches.route import written_files
from wiserouter.integration.batches.service import BatchService

JOBS = "jobs.json"
"""In the folder of a round: its files at the service."""


@dataclass
class Job:
    """A batch file at a service.

    Attributes
    ----------
    round : int
        The round of the file.
    file : str
        Its name.
    file_id, batch_id : str
        Its ids at the service; "" until they are known.
    asked : bool
        Whether a batch was asked for, so that there may be one without a known id.
    status : str
        The state of the batch.
    fetched : tuple of str
        Files of results that are complete, in the folder of results.
    error : str
        Why the service refused the file.
    """

    round: int
    file: str
    file_id: str = ""
    batch_id: str = ""
    asked: bool = False
    status: str = ""
    fetched: tuple[str, ...] = ()
    error: str = ""


def submit(folder: BatchFolder, service: BatchService) -> list[Job]:
    """Send the files of all complete rounds that have OpenAI's layout and are not sent yet; return all jobs.

    Raises
    ------
    InvalidInput
        If no round has such a file.
    HttpRefused, OSError
        If the service refuses a file or cannot be reached; the next run goes on there.
    """
    found: list[Job] = []
    for number in _complete(folder):
        jobs = _jobs(folder, number)
        for job in jobs:
            if not job.batch_id:
                _send(folder, service, job, jobs)
        found += jobs
    if not found:
        raise InvalidInput(f"{folder.path} has no file in OpenAI's layout: send its files by their providers' clients")
    return found


def fetch(folder: BatchFolder, service: BatchService) -> tuple[list[Job], list[Path]]:
    """Fetch the results of batches that have ended; return all jobs, and all files of results that are there.

    Files of earlier runs are among them, since settling a result twice changes nothing.
    """
    results = folder.path / "results"
    results.mkdir(exist_ok=True)
    found: list[Job] = []
    for number in _complete(folder):
        jobs = _jobs(folder, number)
        for job in jobs:
            if job.batch_id and job.status not in ENDED:
                _fetch(service, job, results)
                _keep(folder, number, jobs)
        found += jobs
    return found, [results / name for job in found for name in job.fetched]


def _complete(folder: BatchFolder) -> Iterator[int]:
    return (number for number in range(1, folder.rounds + 1) if folder.is_complete(number))


def _send(folder: BatchFolder, service: BatchService, job: Job, jobs: list[Job]) -> None:
    path = folder.files(job.round) / job.file
    mark = mark_of(path)
    batch = service.find(mark) if job.asked else None
    if batch is None:
        if not job.file_id:
            job.file_id = service.upload(path)
            _keep(folder, job.round, jobs)
        job.asked = True
        _keep(folder, job.round, jobs)
        batch = service.create(job.file_id, mark)
    job.batch_id, job.status = str(batch["id"]), str(batch.get("status", ""))
    job.status = "" if job.status in ENDED else job.status  # its results are still to be fetched
    _keep(folder, job.round, jobs)


def _fetch(service: BatchService, job: Job, results: Path) -> None:
    batch = service.batch(job.batch_id)
    status = str(batch["status"])
    if status in ENDED:
        for file_id, name in result_files(batch, f"round-{job.round}-{Path(job.file).stem}"):
            service.download(file_id, results / name)
            job.fetched = (*(one for one in job.fetched if one != name), name)
        job.error = refusal_of(batch)
    job.status = status


def refused_requests(folder: BatchFolder, jobs: list[Job]) -> Iterator[tuple[str, str]]:
    """Yield the custom ids, and why, of the requests of files that a service has refused as a whole."""
    for job in jobs:
        if job.status == "failed" and not job.fetched:
            for custom_id in custom_ids(folder.files(job.round) / job.file):
                yield custom_id, job.error or "the file was refused"


def _jobs(folder: BatchFolder, number: int) -> list[Job]:
    path = folder.files(number) / JOBS
    if path.exists():
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [Job(**{**row, "fetched": tuple(row["fetched"])}) for row in rows]
    return [Job(number, one.file) for one in written_files(folder, number) if one.provider == "openai"]


def _keep(folder: BatchFolder, number: int, jobs: list[Job]) -> None:
    path = folder.files(number) / JOBS
    unfinished = path.with_name(f"{JOBS}.unfinished")
    unfinished.write_text(json.dumps([asdict(one) for one in jobs], indent=1), encoding="utf-8")
    unfinished.replace(path)
