"""New scores of a platform, pulled and handed to a running router by the ids that they are about.

The place is kept in a file, so that a pull that was stopped goes on, and the next one begins where the last one ended.
A quarter of an hour before that is read again, since platforms show scores late; a score that was handed over is not
handed over again. Platforms may list the newest first: a score is not handed over after a later one of the same source
about the same.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from wiserouter.errors import InvalidInput
from wiserouter.fitting.log.scores import UNIT, Scale, reward_of
from wiserouter.fitting.platforms.http import HttpRefused, request_json
from wiserouter.fitting.platforms.redirections import check_address
from wiserouter.fitting.platforms.score_pages import Fetch, Platform, PulledScore, platform_of, score_pages
from wiserouter.learning.source_scores import HUMAN
from wiserouter.validation import check_folder

__all__ = ["FeedbackPull", "PullCounts", "PullState", "Scale", "feedback_puller", "platform_of", "rate_at_proxy"]

logger = logging.getLogger("wiserouter")

OVERLAP_S = 900.0
MOST_REMEMBERED = 10_000

Rate = Callable[[Sequence[str], float, str], bool]
"""Hands over a score: ids, the closest first, reward and source; returns False where none of the ids is known."""


@dataclass(slots=True)
class PullCounts:
    """What a pull has done.

    Attributes
    ----------
    taken, unknown, refused, other, older : int
        Number of scores handed over; about calls that the router does not know; that are none of the scale; of other
        metrics; and older than one about the same that was handed over.
    """

    taken: int = 0
    unknown: int = 0
    refused: int = 0
    other: int = 0
    older: int = 0


@dataclass(slots=True)
class PullState:
    """How far a pull has come.

    Attributes
    ----------
    since_s : float
        The time from which scores are read.
    page : str or None
        The page to go on with, where a pull was stopped.
    newest_s : float
        The latest change of a score so far.
    handed : dict of str to object
        The values of the latest scores that were handed over, by id.
    latest_s : dict of str to float
        The times of the latest scores that were handed over, by their source and what they are about.
    platform : str
        The platform and its project; empty before the first pull.
    metric : str
        The metric of the scores of people; empty before the first one.
    """

    since_s: float
    page: str | None = None
    newest_s: float = 0.0
    handed: dict[str, Any] = field(default_factory=dict)
    latest_s: dict[str, float] = field(default_factory=dict)
    platform: str = ""
    metric: str = ""

    @classmethod
    def read(cls, path: Path | None, since_s: float) -> PullState:
        """Return the state of a file; a new one where there is none."""
        if path is None or not path.exists():
            return cls(since_s)
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            since_s, newest_s = float(kept["since_s"]), float(kept["newest_s"])
            handed, latest_s = dict(kept["handed"]), dict(kept.get("latest_s", {}))
            names = kept.get("platform", ""), kept.get("metric", "")
            return cls(since_s, kept["page"], newest_s, handed, latest_s, *names)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidInput(f"{path} must hold the state of a pull, got something else: delete it") from error

    def write(self, path: Path | None) -> None:
        """Replace the file as a whole."""
        if path is None:
            return
        names = ("since_s", "page", "newest_s", "handed", "latest_s", "platform", "metric")
        fields = {name: getattr(self, name) for name in names}
        beside = path.with_name(f"{path.name}.{os.getpid()}.new")
        beside.write_text(json.dumps(fields), encoding="utf-8")
        beside.replace(path)


@dataclass(frozen=True, slots=True)
class FeedbackPull:
    """A pull of new scores.

    Attributes
    ----------
    platform : Platform
        The platform.
    rate : callable
        Hands a score over.
    score : str or None
        The metric to take; by default those of all judges and rules, and the only one of people.
    scale : Scale
        The worst and the best score.
    path : Path or None
        The file of the state.
    fetch : callable
        Sends a request.
    clock : callable returning float
        Seconds since 1970.

    Raises
    ------
    InvalidInput
        If the address of the platform is none.
    FileNotFoundError
        If there is no folder for the file of the state.
    """

    platform: Platform
    rate: Rate
    score: str | None = None
    scale: Scale = UNIT
    path: Path | None = None
    fetch: Fetch = request_json
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        check_address(self.platform.url)
        if self.path is not None:
            check_folder(self.path)

    def run(self, state: PullState) -> PullCounts:
        """Pull what is new, and let the state say so after each page.

        Raises
        ------
        HttpRefused, OSError, InvalidInput
            If the platform, or the receiver of scores, cannot be reached or refuses, the state is that of another
            platform or project, or people gave scores of several metrics and none is named.
        """
        platform = f"{self.platform.name} {self.platform.project}".rstrip()
        if state.platform not in {"", platform}:
            rule = f"{self.path} must keep the place of {platform!r}, got that of {state.platform!r}"
            raise InvalidInput(f"{rule}: choose another file", value=state.platform)
        state.platform = platform
        counts = PullCounts()
        for found in score_pages(self.platform, state.since_s, state.page, self.fetch):
            for one in found.scores:
                self._take(one, state, counts)
            state.page = found.next_place
            state.write(self.path)
        newest_s = min(state.newest_s, self.clock())  # a client's clock may be ahead
        state.since_s = max(state.since_s, newest_s - OVERLAP_S)
        state.write(self.path)
        return counts

    def _take(self, one: PulledScore, state: PullState, counts: PullCounts) -> None:
        state.newest_s = max(state.newest_s, one.at_s or 0.0)
        if self.score not in {None, one.name}:
            counts.other += 1
            return
        reward = reward_of(one.value, self.scale)
        if reward is None:
            counts.refused += 1
            return
        if self.score is None and one.source == HUMAN:
            _check_metric(one, state)
        if one.id and state.handed.get(one.id) == reward:
            return
        about = " ".join((one.source, *one.targets[:1]))
        if one.at_s is not None and one.at_s < state.latest_s.get(about, one.at_s):
            counts.older += 1
            return
        known = self.rate(one.targets, reward, one.source)
        counts.taken += known
        counts.unknown += not known
        if known and one.id:
            _remember(state.handed, one.id, reward)
        if known and one.at_s is not None:
            _remember(state.latest_s, about, one.at_s)


def _check_metric(one: PulledScore, state: PullState) -> None:
    """Note the metric of a person's score; raise `InvalidInput` where it is another one than before."""
    if state.metric not in {"", one.name}:
        rule = f"scores of people must be of one metric, got {state.metric!r} and {one.name!r}"
        raise InvalidInput(f"{rule}: say which, with --score NAME (score: in the settings)", value=one.name)
    state.metric = one.name


def _remember(kept: dict[str, Any], key: str, value: object) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > MOST_REMEMBERED:
        del kept[next(iter(kept))]


def rate_at_proxy(url: str, key: str, fetch: Fetch = request_json) -> Rate:
    """Return a function that hands scores to the feedback route of a LiteLLM proxy.

    Parameters
    ----------
    url : str
        The address of the proxy.
    key : str
        A key of the proxy; that of an administrator rates the calls of every key.
    fetch : callable
        Sends a request.
    """
    address, headers = f"{url.rstrip('/')}/wiserouter/feedback", {"authorization": f"Bearer {key}"}

    def rate(ids: Iterable[str], reward: float, source: str) -> bool:
        for id_ in ids:
            body = {"id": id_, "score": reward, **({} if source == "human" else {"source": source})}
            try:
                fetch(address, body=body, headers=headers)
            except HttpRefused as error:
                if error.status not in {404, 409, 422}:  # unknown, failed, or no id
                    raise
            else:
                return True
        return False

    return rate


def feedback_puller(
    pull: FeedbackPull,
    every_s: float,
    since_s: float,
    *,
    stop: Event | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Thread:
    """Start a thread that pulls again and again, and return it; a pull that fails is logged and tried again.

    Parameters
    ----------
    pull : FeedbackPull
        The pull.
    every_s : float, seconds
        The time from one pull to the next.
    since_s : float
        The time from which the first pull reads, in seconds since 1970.
    stop : Event, optional
        Ends the thread.
    clock : callable returning float
        Seconds.
    """
    ended = stop or Event()

    def pull_again() -> None:
        state: PullState | None = None
        while not ended.is_set():
            began_s = clock()
            try:
                state = state or PullState.read(pull.path, since_s)
                counts = pull.run(state)
                if counts.taken or counts.unknown:
                    logger.info("%s: %d scores, %d of unknown calls", pull.platform.name, counts.taken, counts.unknown)
            except Exception as error:  # the platform may be back at the next pull
                logger.warning("scores of %s cannot be pulled: %s", pull.platform.name, error)
            ended.wait(max(0.0, every_s - (clock() - began_s)))

    thread = Thread(target=pull_again, name="wiserouter-feedback", daemon=True)
    thread.start()
    return thread


def pulled_fields(counts: PullCounts) -> Mapping[str, int]:
    """Return the counts by name."""
    return {name: getattr(counts, name) for name in counts.__slots__}
