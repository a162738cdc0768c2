"""The pull of new scores from a platform to the groups of a proxy worker, in a thread of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

from wiserouter.errors import AlreadySettled, WiseRouterError
from wiserouter.integration.feedback_pull import FeedbackPull, Scale, feedback_puller, platform_of
from wiserouter_litellm.errors import SettingsError, UnknownCall
from wiserouter_litellm.settings.proxy_settings import ROOT, PullSettings
from wiserouter_litellm.settlement.recorder import Recorder

RUNNING: dict[str, Event] = {}
"""The thread of this process, which ends where a configuration is loaded again."""


def start_pull(recorder: Recorder, settings: PullSettings | None) -> Thread | None:
    """Start to pull scores as the settings say, in place of an earlier pull of this process.

    Parameters
    ----------
    recorder : Recorder
        Takes the scores, whichever key made the calls.
    settings : PullSettings or None
        None for no pull.

    Raises
    ------
    SettingsError
        If a key or a variable is missing, an address is none, or there is no folder for the state.
    """
    if (earlier := RUNNING.pop("pull", None)) is not None:
        earlier.set()
    if settings is None:
        return None

    def rate(ids: Sequence[str], reward: float, source: str) -> bool:
        for id_ in ids:
            try:
                recorder.feedback(id_, reward, source=source, any_caller=True)
            except (UnknownCall, AlreadySettled):
                continue
            return True
        return False

    try:
        platform = platform_of(settings.platform, os.environ, settings.url, settings.project)
        state = None if settings.state is None else Path(settings.state)
        pull = FeedbackPull(platform, rate, settings.score, Scale.parse(settings.scale), state)
    except (WiseRouterError, FileNotFoundError) as error:
        raise SettingsError(f"{ROOT}.feedback_pull", str(error)) from error
    RUNNING["pull"] = stop = Event()
    return feedback_puller(pull, settings.every_s, time.time() - settings.since_s, stop=stop)
