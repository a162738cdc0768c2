"""The errors of the evaluation, also importable from `wiserouter.errors`, which draws the whole tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wiserouter.errors import WiseRouterError


class ThinOverlap(WiseRouterError):
    """A log hardly ever did what a target would do, so it cannot tell what that would have bought.

    Attributes are those of an `Overlap`; `explored` is how many of the decisions were made by an exploration phase.
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
        self.largest_weight = largest_weight
        self.never = never
        self.left_out = left_out
        self.where = dict(where)
        self.explored = explored
        mostly = ", ".join(f"{name or 'skipping'} {share:.2%}" for name, share in list(self.where.items())[:3])
        phase = "" if explored in {0, decisions} else f", look at the {explored:,} explored decisions alone"
        super().__init__(
            f"the log cannot tell the {outcome} of this target: {left_out:.2%} of its choices were hardly ever drawn "
            f"({never:.2%} never{'; ' + mostly if mostly else ''}), the other {decisions:,} decisions are worth "
            f"{effective:,.0f} of its own (at least {least_effective:,.0f}), largest weight {largest_weight:,.4g}: "
            f"ask for something nearer to what was done{phase}, or log more with ExploreShare (LiteLLM: explore_share)"
        )


class DataError(WiseRouterError):
    """A data set for the evaluation is not there, or is not what it should be."""


class MissingTable(DataError, FileNotFoundError):
    """A table is not there; `command` gets it."""

    def __init__(self, name: str, command: str, why: str = "is not there") -> None:
        super().__init__(f"table {name!r} {why}; get it with: {command}")
        self.name = name
        self.command = command


class HashMismatch(DataError):
    """A file is not the one that was meant; nothing of it was read."""

    def __init__(self, file: str | Path, expected: str, got: str) -> None:
        super().__init__(
            f"{file}: its SHA-256 must be {expected}, got {got}: get the file again, or pass --sha256 {got} if this is "
            f"the one that you want"
        )
        self.file = file
        self.expected = expected
        self.got = got


class ForbiddenPickle(DataError):
    """A pickle asks for more than the plain columns of a table; `refused` says for what, and nothing of it was run."""

    def __init__(self, refused: str, *, file: str | Path | None = None) -> None:
        where = "" if file is None else f"{file}: "
        super().__init__(
            f"{where}a pickled table must not {refused}: only plain columns are read; do not trust this file"
        )
        self.refused = refused
        self.file = file
