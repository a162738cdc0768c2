"""The batches of a proxy worker: started where it reads its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

from fastapi import FastAPI

from wiserouter_litellm.batches.front import BatchFront
from wiserouter_litellm.batches.group_batches import GroupBatches
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.groups.group import Group
from wiserouter_litellm.settings.proxy_settings import ROOT, BatchSettings

RUNNING: dict[str, Event] = {}
"""The thread of this process, which ends where a configuration is loaded again."""


def start_batches(
    app: FastAPI, groups: Mapping[str, Group], settings: BatchSettings | None, litellm_router: Callable[[], Any]
) -> None:
    """Answer requests about batches of some groups, and move them on, in place of those of an earlier configuration.

    Parameters
    ----------
    app : FastAPI
        The proxy.
    groups : mapping of str to Group
        The groups by name.
    settings : BatchSettings or None
        None for no batches.
    litellm_router : callable
        Returns the proxy's router.

    Raises
    ------
    SettingsError
        If the folder cannot be used.
    """
    if (earlier := RUNNING.pop("batches", None)) is not None:
        earlier.set()
    app.state.wiserouter_batches = None
    if settings is None:
        return
    try:
        batches = GroupBatches(groups, settings, litellm_router)
    except OSError as error:
        fault = f"{settings.folder} cannot be used ({error.strerror}): correct its path or its permissions"
        raise SettingsError(f"{ROOT}.batches.folder", fault) from error
    app.state.wiserouter_batches = batches
    if not any(isinstance(route, BatchFront) for route in app.router.routes):
        app.router.routes.insert(0, BatchFront(app))
    RUNNING["batches"] = stop = Event()
    batches.poller(stop)
