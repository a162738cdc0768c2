"""The batches of the groups of a proxy worker: files taken, batches created, and a thread that moves them on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Any, BinaryIO

from wiserouter.errors import BudgetError
from wiserouter.integration import fresh_id
from wiserouter.integration.batches.layouts import write_files
from wiserouter.integration.batches.requests import CHAT_URL
from wiserouter.integration.batches.together import together
from wiserouter_litellm.batches.allocation import AllocatedLine, allocate_lines, wire_model
from wiserouter_litellm.batches.batch_lines import check_lines, read_lines
from wiserouter_litellm.batches.kept_batches import KeptBatches, PlannedLine, ProviderJob, ProxyBatch
from wiserouter_litellm.batches.kept_files import KeptFile, KeptFiles
from wiserouter_litellm.batches.progress import Progress
from wiserouter_litellm.conversations.feedback_keys import feedback_key
from wiserouter_litellm.deployments.litellm_compat import deployments_of
from wiserouter_litellm.deployments.registry import Deployment, id_of
from wiserouter_litellm.errors import BudgetRefused
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.settings.proxy_settings import BatchSettings

logger = logging.getLogger("wiserouter.litellm")

AZURE_URL = "/chat/completions"
"""The route in the lines of a file for Azure."""

_DAY_S = 86_400.0


class GroupBatches:
    """The batches of the groups of a worker.

    Parameters
    ----------
    groups : mapping of str to Group
        The groups by name.
    settings : BatchSettings
        Where batches are kept, and how often they are polled.
    litellm_router : callable
        Returns the proxy's router.
    """

    def __init__(self, groups: Mapping[str, Group], settings: BatchSettings, litellm_router: Callable[[], Any]) -> None:
        folder = Path(settings.folder)
        self._groups, self._settings, self._litellm_router = groups, settings, litellm_router
        self.files, self.batches = KeptFiles(folder / "files"), KeptBatches(folder / "batches")
        self.progress = Progress(self.batches, self.files, groups.get, self._deployment, settings.price_factor)

    def takes(self, model: str) -> bool:
        """Return True if batches of a model are ours: those of a group that acts."""
        group = self._groups.get(model)
        return group is not None and not group.observes

    def upload(self, content: BinaryIO, owner: str, filename: str) -> KeptFile:
        """Keep a batch file; raise `InvalidInput` where it is none of our groups."""
        kept = self.files.add(content, owner, filename)
        try:
            check_lines(self.files.path(kept.id), [name for name in self._groups if self.takes(name)])
        except BaseException:
            self.files.delete(kept.id)
            raise
        return kept

    def group_of(self, file_id: str, owner: str) -> str:
        """Return the group that the lines of a file name; raise `UnknownBatch` where it is not the caller's."""
        self.files.find(file_id, owner)
        return next(read_lines(self.files.path(file_id))).model

    def create(
        self, file_id: str, owner: str, caller: str | None, metadata: Mapping[str, str], token: Mapping[str, Any]
    ) -> ProxyBatch:
        """Allocate a batch under the budget of its group, and reserve its costs; it is sent soon after.

        Parameters
        ----------
        file_id : str
            The uploaded file.
        owner, caller : str, str or None
            A digest of the key, and the key as feedback knows it.
        metadata : mapping of str to str
            The caller's own.
        token : mapping
            The metadata by which the scope that pays is found.

        Raises
        ------
        UnknownBatch, InvalidInput, litellm.BadRequestError, BudgetRefused, ScopeRefused, BudgetError, StoreError
            If the file is unknown, a line cannot be sent, the budget does not pay, or its store cannot be reached.
        """
        group = self._groups[self.group_of(file_id, owner)]
        scope = group.scope_resolver.scope_of(token)
        lines = list(read_lines(self.files.path(file_id)))
        deployments = deployments_of(self._litellm_router(), group.name)
        allocated = allocate_lines(group, deployments, lines, scope, self._settings.price_factor)
        id_, now_s = f"batch_wise_{fresh_id()}", int(time.time())
        batch = ProxyBatch(id_, owner, group.name, scope, file_id, CHAT_URL, "24h", metadata, now_s, len(lines))
        self.batches.path(id_).mkdir()
        with self.batches.held(id_, wait=True):
            try:
                self._plan(batch, allocated)
                self._reserve(group, allocated, caller)
            except BaseException as error:
                self.progress.undo(id_, group)
                if isinstance(error, BudgetError):
                    raise BudgetRefused(group.name, error, scope) from error
                raise
            batch.state = "accepted"
            self.batches.write(batch)
        return batch

    def _plan(self, batch: ProxyBatch, lines: list[AllocatedLine]) -> None:
        """Write the lines of a batch and the files of its jobs, and then that it is planned."""
        self.batches.write_lines(
            batch.id,
            (PlannedLine(one.custom_id, one.decision.id, one.decision.model, one.deployment_id) for one in lines),
        )
        folder, models = self.batches.path(batch.id), {one.decision.model: one.deployment_id for one in lines}
        for model, deployment_id in models.items():
            deployment = self._deployment(batch.group, deployment_id)
            url = AZURE_URL if deployment is not None and wire_model(deployment)[1] == "azure" else CHAT_URL
            rows = (_row(one, url) for one in lines if one.decision.model == model)
            written = write_files(folder, model, "openai", rows)
            batch.jobs += [ProviderJob(one.file, model, deployment_id, one.requests) for one in written]
        self.batches.write(batch)

    def _reserve(self, group: Group, lines: list[AllocatedLine], caller: str | None) -> None:
        def reserve(one: AllocatedLine) -> None:
            group.router.reserve_decision(one.decision)
            group.router.alias([feedback_key(one.decision.id, caller)], one.decision.id)

        for _ in together(reserve, lines):
            pass

    def _deployment(self, group: str, deployment_id: str) -> Deployment | None:
        found = deployments_of(self._litellm_router(), group)
        return next((one for one in found if id_of(one) == deployment_id), None)

    def advance_all(self) -> None:
        """Move all batches on, and delete those that are older than the settings say."""
        oldest_s = time.time() - self._settings.keep_days * _DAY_S
        for id_ in self.batches.ids():
            try:
                self.progress.advance(id_)
            except Exception:  # one batch must not stop the others
                logger.exception("batch %s cannot be moved on", id_)
        self.files.delete_before(oldest_s)
        for id_ in self._ended():
            if self.batches.path(id_).stat().st_mtime < oldest_s:
                self.batches.delete(id_)

    def _ended(self) -> Iterator[str]:
        read = ((id_, self.batches.read(id_)) for id_ in self.batches.ids())
        return (id_ for id_, batch in read if batch is not None and batch.state == "ended")

    def poller(self, stop: Event) -> Thread:
        """Start the thread that moves batches on until it is told to stop."""

        def run() -> None:
            while not stop.wait(self._settings.poll_s):
                if self._litellm_router() is not None:
                    self.advance_all()

        thread = Thread(target=run, name="wiserouter-batches", daemon=True)
        thread.start()
        return thread


def _row(line: AllocatedLine, url: str) -> dict[str, Any]:
    return {"custom_id": line.decision.id, "method": "POST", "url": url, "body": dict(line.body)}
