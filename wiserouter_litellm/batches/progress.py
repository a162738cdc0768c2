"""The way of an accepted batch: its files sent, its jobs polled, their results settled and merged.

Each step is written down before the next one, so that a worker that is killed is followed by another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from wiserouter.errors import AlreadySettled, StoreError, UnknownDecision
from wiserouter.integration.batches.provider_batch import ENDED, mark_of, refusal_of, result_files
from wiserouter_litellm.batches.kept_batches import KeptBatches, ProviderJob, ProxyBatch
from wiserouter_litellm.batches.kept_files import KeptFiles
from wiserouter_litellm.batches.provider_batches import ProviderBatches
from wiserouter_litellm.batches.settled_lines import SettledLine, settled_lines
from wiserouter_litellm.deployments.registry import Deployment
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.groups.outcome import UNBILLED_STATUSES

FindDeployment = Callable[[str, str], Deployment | None]
"""From a group and the id of a deployment to the deployment, if LiteLLM's router still has it."""

_LATER = frozenset({401, 402, 403, 429})
"""Refusals that an operator, or time, can put right: the file is sent again."""


class Progress:
    """Moves accepted batches on.

    Parameters
    ----------
    batches, files : KeptBatches, KeptFiles
        Where they are kept.
    group : callable
        From a name to the group, or None.
    deployment : callable
        Finds a deployment.
    price_factor : float
        What a call costs in a batch over its plain price, where no batch price is known.
    """

    def __init__(
        self,
        batches: KeptBatches,
        files: KeptFiles,
        group: Callable[[str], Group | None],
        deployment: FindDeployment,
        price_factor: float,
    ) -> None:
        self._batches, self._files, self._group = batches, files, group
        self._deployment, self._price_factor = deployment, price_factor

    def advance(self, id_: str) -> None:
        """Take the steps of a batch that can be taken now; do nothing where another worker takes them."""
        with self._batches.held(id_) as mine:
            batch = self._batches.read(id_) if mine else None
            if not mine or (batch is not None and batch.state == "ended"):
                return
            if batch is None and not self._batches.is_left(id_):
                return
            if batch is None or batch.state == "planned":  # the worker that planned it was killed
                self.undo(id_, None if batch is None else self._group(batch.group))
                return
            group = self._group(batch.group)
            if group is not None:
                self._advance(batch, group)

    def undo(self, id_: str, group: Group | None) -> None:
        """Release what a batch has reserved, and delete it: its caller has not heard of it."""
        if group is not None:
            for line in self._batches.lines(id_):
                with suppress(AlreadySettled, UnknownDecision):
                    group.router.release(line.decision_id)
        self._batches.delete(id_)

    def cancel(self, id_: str) -> None:
        """Ask for the end of a batch that runs; files that are not sent yet are not sent."""
        with self._batches.held(id_, wait=True) as mine:
            batch = self._batches.read(id_) if mine else None
            if batch is None or batch.state != "accepted" or batch.cancelling:
                return
            batch.cancelling = True
            batch.times["cancelling_at"] = int(time.time())
            self._batches.write(batch)
        self.advance(id_)

    def _advance(self, batch: ProxyBatch, group: Group) -> None:
        for job in batch.jobs:
            if job.status in ENDED:
                continue
            try:
                self._advance_job(batch, job)
            except Exception as error:  # the services of several providers, each with errors of its own
                self._note(batch, job, group, error)
        if all(job.status in ENDED for job in batch.jobs):
            try:
                self._end(batch, group)
            except StoreError as error:
                group.fault("store", f"{batch.id} is settled later", error=error)

    def _advance_job(self, batch: ProxyBatch, job: ProviderJob) -> None:
        deployment = self._deployment(batch.group, job.deployment_id)
        if deployment is None:
            raise LookupError(f"deployment {job.deployment_id} of {batch.id} is gone: put it back into the model_list")
        provider, folder = ProviderBatches(deployment), self._batches.path(batch.id)
        if not job.batch_id:
            if batch.cancelling and not job.asked:
                job.status = "cancelled"
                self._batches.write(batch)
                return
            self._send(batch, job, provider, folder)
        self._poll(batch, job, provider, folder)
        if batch.cancelling and job.status not in {*ENDED, "cancelling"}:
            provider.cancel(job.batch_id)

    def _send(self, batch: ProxyBatch, job: ProviderJob, provider: ProviderBatches, folder: Path) -> None:
        """Send the file of a job once, also where a worker was killed before it heard the id of the batch."""
        path = folder / job.file
        mark = mark_of(path)
        found = provider.find(mark) if job.asked else None
        if found is None:
            if not job.file_id:
                job.file_id = provider.upload(path)
                self._batches.write(batch)
            job.asked = True
            self._batches.write(batch)
            found = provider.create(job.file_id, mark, "24h")
        job.batch_id, job.status = str(found["id"]), "in_progress"
        batch.times.setdefault("in_progress_at", int(time.time()))
        self._batches.write(batch)

    def _poll(self, batch: ProxyBatch, job: ProviderJob, provider: ProviderBatches, folder: Path) -> None:
        """Read the state of a job, and fetch its results where it has ended."""
        found = provider.batch(job.batch_id)
        counts, status = found.get("request_counts") or {}, str(found["status"])
        job.completed, job.failed = int(counts.get("completed") or 0), int(counts.get("failed") or 0)
        if status in ENDED:
            for file_id, name in result_files(found, job.file.removesuffix(".jsonl")):
                provider.download(file_id, folder / name)
                job.fetched = (*(one for one in job.fetched if one != name), name)
            job.error = refusal_of(found)
        job.status = status
        self._batches.write(batch)

    def _note(self, batch: ProxyBatch, job: ProviderJob, group: Group, error: Exception) -> None:
        """Report what went wrong; a file that the provider refuses ends its job."""
        status = getattr(error, "status_code", None)
        if not job.batch_id and status in UNBILLED_STATUSES - _LATER:
            job.status, job.error = "failed", f"the provider refused the file: {error}"[:1_000]
            self._batches.write(batch)
        group.fault("batches", f"{batch.id}: {job.file} of {job.model}: {error}", error=error)

    def _end(self, batch: ProxyBatch, group: Group) -> None:
        """Settle all lines, keep the merged results, and only then mark the batch as ended."""
        folder = self._batches.path(batch.id)
        lines = self._batches.lines(batch.id)
        settled = settled_lines(group, folder, lines, batch.jobs, self._price_factor)
        group.router.refresh()  # a shared store has the charges before the batch is marked
        answered = [one for one in settled if one.answered]
        batch.completed, batch.failed = len(answered), len(settled) - len(answered)
        batch.output_file_id = self._kept(batch, "output", answered)
        batch.error_file_id = self._kept(batch, "error", (one for one in settled if not one.answered))
        batch.status = _overall(batch)
        batch.times[f"{batch.status}_at"] = int(time.time())
        batch.state = "ended"
        self._batches.write(batch)

    def _kept(self, batch: ProxyBatch, kind: str, lines: Iterable[SettledLine]) -> str:
        """Keep a file of results, and return its id; "" where there is none."""
        content = "".join(f"{one.text}\n" for one in lines).encode()
        if not content:
            return ""
        return self._files.add(BytesIO(content), batch.owner, f"{batch.id}_{kind}.jsonl", "batch_output").id


def _overall(batch: ProxyBatch) -> str:
    """Return the state of a batch whose jobs have ended."""
    states = {job.status for job in batch.jobs}
    if batch.cancelling and "cancelled" in states:
        return "cancelled"
    return next(one for one in ("completed", "expired", "cancelled", "failed") if one in states)
