"""The errors of the evaluation, also importable from `wiserouter.errors`, which draws the whole tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from wiserouter.errors import WiseRouterError


class ThinOverlap(WiseRouterError):
    """A log has too few of a target's choices to estimate the target's outcome.

    The attributes are those of an `Overlap`; `explored` is the number of decisions of an exploration phase.
    """

    def __init__(
        self,
        outcome: str,
        *,
        decisions: int,
        effective: float,
        least_effective: float,
        largest_weight: float,
        never: float,
        left_out: float,
        where: Mapping[str, float],
        explored: int = 0,
    ) -> None:
        self.outcome = outcome
        self.decisions = decisions
        self.effective = effective
        self.least_effective = least_effective
        self.largest_weight = largest_weight
        self.never = never
        self.left_out = left_out
        self.where = dict(where)
        self.explored = explored
        mostly = ", ".join(f"{name or 'skipping'} {share:.2%}" for name, share in list(self.where.items())[:3])
        phase = "" if explored in {0, decisions} else f", use the {explored:,} explored decisions alone"
        super().__init__(
            f"the log cannot estimate the {outcome} of this target: {left_out:.2%} of its choices were almost never "
            f"drawn ({never:.2%} never{'; ' + mostly if mostly else ''}), and the {decisions:,} decisions are worth "
            f"{effective:,.0f} of the target's own (at least {least_effective:,.0f}), largest weight "
            f"{largest_weight:,.4g}: choose a target closer to the log{phase}, or log more with ExploreShare "
            f"(LiteLLM: explore_share)"
        )

    def __reduce__(self) -> tuple[Callable[..., ThinOverlap], tuple[()]]:
        return partial(type(self), self.outcome, **{k: v for k, v in vars(self).items() if k != "outcome"}), ()


class DataError(WiseRouterError):
    """A data set of the evaluation is missing, or is not the expected one."""


class MissingTable(DataError, FileNotFoundError):
    """A table does not exist; `command` gets it."""

    def __init__(self, name: str, command: str, why: str = "does not exist") -> None:
        super().__init__(f"table {name!r} {why}; get it with: {command}")
        self.name = name
        self.command = command


class HashMismatch(DataError):
    """A file is not the expected one; nothing of it was read."""

    def __init__(self, file: str | Path, expected: str, got: str) -> None:
        super().__init__(
            f"{file}: its SHA-256 must be {expected}, got {got}: get the file again, or pass --sha256 {got} if this is "
            f"the right one"
        )
        self.file = file
        self.expected = expected
        self.got = got


class ForbiddenPickle(DataError):
    """A pickle contains more than the plain columns of a table; `refused` names it, and nothing of it was run."""

    def __init__(self, refused: str, *, file: str | Path | None = None) -> None:
        where = "" if file is None else f"{file}: "
        super().__init__(
            f"{where}a pickled table must not {refused}: only plain columns are read; do not trust this file"
        )
        self.refused = refused
        self.file = file
