"""Rounds of a batch at the services of their providers: files sent, once each, and their results fetched.

Each step is written down before the next one. A run that was stopped between asking for a batch and hearing its id
finds the batch by its mark, the custom id of the first request, or by its results, and creates no second one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.folder import BatchFolder
from wiserouter.integration.batches.layouts import custom_ids
from wiserouter.integration.batches.provider_batch import ENDED, refusal_of, result_files
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
    provider, model : str
        Its provider, and the model that takes it, by the provider's name.
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
    provider: str = "openai"
    model: str = ""
    file_id: str = ""
    batch_id: str = ""
    asked: bool = False
    status: str = ""
    fetched: tuple[str, ...] = ()
    error: str = ""


Services = Mapping[str, BatchService]
"""The services by provider; files of other providers are left."""


def submit(folder: BatchFolder, services: Services) -> list[Job]:
    """Send the files of all complete rounds that are not sent yet; return their jobs.

    Raises
    ------
    InvalidInput
        If no round has a file for one of the services, or it cannot be told yet whether a file was sent.
    HttpRefused, OSError
        If a service refuses a file or cannot be reached; the next run goes on there.
    """
    found: list[Job] = []
    for number in _complete(folder):
        jobs = _jobs(folder, number)
        mine = [job for job in jobs if job.provider in services]
        for job in mine:
            if not job.batch_id:
                _send(folder, services[job.provider], job, jobs)
        found += mine
    if not found:
        raise InvalidInput(f"{folder.path} has no file for {' or '.join(services)}: set the keys of its providers")
    return found


def fetch(folder: BatchFolder, services: Services) -> tuple[list[Job], list[Path]]:
    """Fetch the results of batches that have ended; return their jobs, and all files of results that are there.

    Files of earlier runs are among them, since settling a result twice changes nothing.
    """
    results = folder.path / "results"
    results.mkdir(exist_ok=True)
    found: list[Job] = []
    for number in _complete(folder):
        jobs = _jobs(folder, number)
        mine = [job for job in jobs if job.provider in services]
        for job in mine:
            if job.batch_id and job.status not in ENDED:
                _fetch(services[job.provider], job, results)
                _keep(folder, number, jobs)
        found += mine
    return found, [results / name for job in found for name in job.fetched]


def left_files(folder: BatchFolder, services: Services) -> dict[str, int]:
    """Return the number of files of each other provider, which are not sent."""
    files = (one for number in _complete(folder) for one in written_files(folder, number))
    return dict(Counter(one.provider for one in files if one.provider not in services))


def _complete(folder: BatchFolder) -> Iterator[int]:
    return (number for number in range(1, folder.rounds + 1) if folder.is_complete(number))


def _send(folder: BatchFolder, service: BatchService, job: Job, jobs: list[Job]) -> None:
    path = folder.files(job.round) / job.file
    mark = custom_ids(path)[0]
    batch = service.find(path, mark) if job.asked else None
    if batch is None:
        if not job.file_id:
            job.file_id = service.upload(path)
            _keep(folder, job.round, jobs)
        job.asked = True
        _keep(folder, job.round, jobs)
        batch = service.create(job.file_id, path, job.model, mark)
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
    """Yield the custom ids, and why, of the requests of files that have ended without results."""
    for job in jobs:
        if job.status in ENDED and job.status != "completed" and not job.fetched:
            for custom_id in custom_ids(folder.files(job.round) / job.file):
                yield custom_id, job.error or ("the file was refused" if job.status == "failed" else job.status)


def _jobs(folder: BatchFolder, number: int) -> list[Job]:
    """Return a job for each file of a round, as far as it has come."""
    path = folder.files(number) / JOBS
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else ()
    kept = {row["file"]: Job(**{**row, "fetched": tuple(row["fetched"])}) for row in rows}
    files = written_files(folder, number)
    return [kept.get(one.file) or Job(number, one.file, one.provider, one.sent_as) for one in files]


def _keep(folder: BatchFolder, number: int, jobs: list[Job]) -> None:
    path = folder.files(number) / JOBS
    unfinished = path.with_name(f"{JOBS}.unfinished")
    unfinished.write_text(json.dumps([asdict(one) for one in jobs], indent=1), encoding="utf-8")
    unfinished.replace(path)
