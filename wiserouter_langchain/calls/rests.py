"""The rests of models: one that failed is left out for a short time, so that not every call finds out on its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock


class Rests:
    """The models that failed within the last seconds.

    Parameters
    ----------
    rest_s : float, seconds
        The time for which a model is left out; 0 for none.
    now_s : callable, default time.monotonic
        The clock.

    Attributes
    ----------
    any : bool
        Whether a model may be left out now.

    Examples
    --------
    >>> rests = Rests(5.0, now_s=iter([0.0, 4.0, 6.0]).__next__)
    >>> rests.begin("small")
    >>> rests.resting(), rests.resting()
    ({'small'}, set())
    """

    def __init__(self, rest_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._rest_s, self._now_s = rest_s, now_s
        self._until_s: dict[str, float] = {}
        self._lock = Lock()
        self.any = False

    def begin(self, model: str) -> None:
        """Leave a model out from now on."""
        if self._rest_s > 0:
            with self._lock:
                self._until_s[model] = self._now_s() + self._rest_s
                self.any = True

    def resting(self) -> set[str]:
        """Return the models that are left out now."""
        with self._lock:
            now_s = self._now_s()
            self._until_s = {model: until_s for model, until_s in self._until_s.items() if until_s > now_s}
            self.any = bool(self._until_s)
            return set(self._until_s)
