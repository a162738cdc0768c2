"""The errors of WISERouter. Each message states the rule, the value and the remedy; the attributes hold the data.

::

    WiseRouterError
    ├── InvalidInput (ValueError)     a number, name or shape breaks a rule
    │   ├── UnknownModel              a name outside the pool
    │   ├── UnlikelyPrice             a price per token that looks like one per million tokens
    │   ├── LogError                  a row or column of a routing log
    │   └── NotMergeable              routers fitted apart cannot be merged
    ├── InfeasibleBudget              the rate is below the cheapest models' cost
    ├── InfeasibleLimits              no mix of models keeps all limits
    ├── BudgetError                   a decision cannot be paid for
    │   ├── NotStarted                the scope has no budget
    │   ├── BudgetExhausted           the money that is left does not pay for the call
    │   │   └── RunBudgetExhausted    what is left of the budget of its run does not
    │   └── HorizonExhausted          the planned requests are used up
    ├── NoEligibleModel               every model is excluded for this query
    ├── QuerySkipped                  the plan's null action: no model is worth its cost
    ├── UnknownDecision               no such decision, or its record has expired
    ├── AlreadySettled                charged or released before
    ├── StoreError                    the store of budgets and decisions fails
    │   ├── StoreUnavailable          it cannot be reached, or cannot write
    │   └── StoreDamaged              its content cannot be read
    ├── UnknownPrice                  a cost cannot be computed
    ├── EncoderError                  an encoder failed or returned a wrong shape
    ├── ArtifactError                 a file that is not a usable artifact
    │   ├── MissingArtifact (FileNotFoundError)
    │   ├── NotAnArtifact
    │   ├── DamagedArtifact
    │   └── NewerArtifact
    ├── WorkersLost                   the workers of a parallel run were lost again and again
    ├── MissingExtra (ImportError)    an optional dependency is not installed
    ├── ThinOverlap                   a log contains too few of the choices that an estimate needs
    └── DataError                     a data set of the evaluation is missing or is not the expected one
        ├── MissingTable (FileNotFoundError)
        ├── HashMismatch
        └── ForbiddenPickle

`ThinOverlap`, `DataError` and its subclasses are defined in `wiserouter.evaluation.errors`, `InfeasibleLimits` in
`wiserouter.budgets.limits`, `UnlikelyPrice` in `wiserouter.pricing.prices`; they are loaded when first asked for here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

_OF_THE_EVALUATION = ("ThinOverlap", "DataError", "MissingTable", "HashMismatch", "ForbiddenPickle")
_ELSEWHERE = dict.fromkeys(_OF_THE_EVALUATION, "wiserouter.evaluation.errors")
_ELSEWHERE |= {"InfeasibleLimits": "wiserouter.budgets.limits", "UnlikelyPrice": "wiserouter.pricing.prices"}


def __getattr__(name: str) -> Any:
    """Return an error of another module by name."""
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class WiseRouterError(Exception):
    """Base of every error that WISERouter raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts of an equal error, for a copy or another process: the arguments are in its message."""
        return type(self).__new__, (type(self),), {**vars(self), "args": self.args}


class InvalidInput(WiseRouterError, ValueError):
    """A number, name or shape breaks a rule; `value` is the value given."""

    def __init__(self, message: str, *, value: object = None) -> None:
        super().__init__(message)
        self.value = value


class UnknownModel(InvalidInput):
    """A model name is not in the pool."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"model must be one of {', '.join(self.known)}; got {name!r}", value=name)


class LogError(InvalidInput):
    """A routing log cannot be read; `file`, `row` (from 1, the header not counted) and `column` locate the fault."""

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
        value: object = None,
    ) -> None:
        where = [str(file)] if file is not None else []
        where += [f"row {row}"] if row is not None else []
        where += [f"column {column!r}"] if column is not None else []
        super().__init__(f"{', '.join(where)}: {message}" if where else message, value=value)
        self.file = file
        self.row = row
        self.column = column


class NotMergeable(InvalidInput):
    """Routers cannot be merged; `parts` names the ones at fault, `what` names the property in which they differ."""

    def __init__(self, message: str, *, what: str, parts: Iterable[str]) -> None:
        super().__init__(message)
        self.what = what
        self.parts = tuple(parts)


class InfeasibleBudget(WiseRouterError):
    """Even the cheapest model of every context costs more than the rate."""

    def __init__(self, rate_usd: float, floor_usd: float) -> None:
        self.rate_usd = rate_usd
        self.floor_usd = floor_usd
        super().__init__(
            f"rate_usd must be at least {floor_usd:.6g}, the mean cost of the cheapest models, got {rate_usd:.6g}: "
            f"raise the budget, shorten the horizon or allow skipping"
        )


class BudgetError(WiseRouterError):
    """A decision cannot be paid for."""


class NotStarted(BudgetError):
    """The scope has no budget."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        remedy = "call start(Budget(amount_usd=..., horizon=...)) before decide()"
        super().__init__(f"scope {scope!r} has no budget: {remedy}")


class BudgetExhausted(BudgetError):
    """The money that is left does not pay for this call; of several budgets, `every` names the one.

    Attributes
    ----------
    amount_usd, carried_usd, spent_usd, left_usd, needed_usd : float, USD
        The account, and the worst case or the expected cost of the cheapest way to make the call.
    reserved_usd : float, USD
        The amount that calls in flight reserve.
    held_usd : float, USD
        The amount that their settlements may give back.
    leased_usd : float, USD
        The shares of the amount that are leased to workers.
    committed_usd : float, USD
        The amount that open runs are expected to spend, where the call was refused because of it.
    fitting_output_tokens : int or None
        The largest limit of the output with which the call would fit into `left_usd`, where an adapter knows it.
    hard : bool
        Whether the worst case is needed, which a limit of the output lowers.
    """

    def __init__(
        self,
        *,
        amount_usd: float,
        spent_usd: float,
        reserved_usd: float,
        needed_usd: float,
        decided: int = 0,
        horizon: int = 0,
        carried_usd: float = 0.0,
        held_usd: float | None = None,
        leased_usd: float = 0.0,
        committed_usd: float = 0.0,
        every: str | None = None,
        renews_at: float | None = None,
        hard: bool = True,
    ) -> None:
        self.amount_usd = amount_usd
        self.carried_usd = carried_usd
        self.spent_usd = spent_usd
        self.reserved_usd = reserved_usd
        self.held_usd = reserved_usd if held_usd is None else held_usd
        self.leased_usd = leased_usd
        self.committed_usd = committed_usd
        self.left_usd = amount_usd + carried_usd - spent_usd - self.held_usd - leased_usd - committed_usd
        self.needed_usd = needed_usd
        self.decided = decided
        self.horizon = horizon
        self.every = every
        self.renews_at = renews_at
        self.hard = hard
        self.fitting_output_tokens: int | None = None
        super().__init__(self._message())

    def note_fitting_output(self, tokens: int) -> None:
        """Let the message name the largest limit of the output with which the call would fit."""
        self.fitting_output_tokens = tokens
        self.args = (self._message(),)

    @property
    def is_only_held(self) -> bool:
        """Whether the call would fit if all calls in flight cost nothing."""
        whole_usd = self.left_usd + self.held_usd
        return self.held_usd > 0.0 and whole_usd > 0.0 and self.needed_usd <= whole_usd + self._rounding_usd

    @property
    def _rounding_usd(self) -> float:
        """The tolerance for rounding errors of sums."""
        return 1e-12 * self.amount_usd

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left, and calls in flight hold nothing that would do."""
        return self.left_usd <= self._rounding_usd and not self.is_only_held

    @property
    def account(self) -> str:
        """The state of the budget and its figures, without a remedy."""
        period = "" if self.every is None else f" every {self.every}"
        carried = f" and {self.carried_usd:.6g} carried over" if self.carried_usd else ""
        leased = f"{self.leased_usd:.6g} leased to workers, " if self.leased_usd else ""
        leased += f"{self.committed_usd:.6g} committed to open runs, " if self.committed_usd else ""
        needed = "worst case" if self.hard else "expected cost"
        state = "is used up" if self.is_used_up else f"does not pay for the {needed} of this call"
        return (
            f"the budget of {self.amount_usd:.6g} USD{period}{carried} {state}: {self.spent_usd:.6g} spent, "
            f"{self.held_usd:.6g} reserved by calls in flight, {leased}{self.left_usd:.6g} left, "
            f"{self.needed_usd:.6g} needed, {self.decided} of {self.horizon} requests decided"
        )

    @property
    def remedies(self) -> list[str]:
        """The remedies that leave the budget as it is."""
        remedies = ["wait until calls in flight are settled"] if self.is_only_held else []
        remedies += ["wait until open runs end"] if self.committed_usd else []
        if self.left_usd > self._rounding_usd:
            tokens = self.fitting_output_tokens
            shorter = "send less" if tokens == 0 else "limit its output" + (f" to {tokens} tokens" if tokens else "")
            remedies += [shorter, "ask for a cheaper model"] if self.hard else ["ask for a cheaper model"]
        return remedies

    def _message(self) -> str:
        raised = "raise it with set_budget()" if self.is_used_up else "raise the budget with set_budget()"
        renewal = "start a new one" if self.renews_at is None else f"wait: it renews at {_instant(self.renews_at)}"
        return f"{self.account}: {', or '.join([*self.remedies, raised, renewal])}"


class RunBudgetExhausted(BudgetExhausted):
    """The budget of a run, or of one that it is a part of, does not pay for this call.

    Attributes
    ----------
    amount_usd, spent_usd, left_usd, needed_usd : float, USD
        The budget of the run, and the worst case of the call, or its expected cost where the limit is not hard.
    reserved_usd : float, USD
        The amount that its calls in flight reserve.
    """

    @property
    def account(self) -> str:
        """The state of the budget of the run and its figures, without a remedy."""
        state = "is used up" if self.is_used_up else "does not pay for this call"
        return (
            f"the run budget of {self.amount_usd:.6g} USD {state}: {self.spent_usd:.6g} spent, {self.held_usd:.6g} "
            f"reserved by its calls in flight, {self.left_usd:.6g} left, {self.needed_usd:.6g} needed"
        )

    def _message(self) -> str:
        return f"{self.account}: {', or '.join([*self.remedies, 'end the run', 'raise run_budget_usd'])}"


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


class HorizonExhausted(BudgetError):
    """As many requests were decided as the budget was planned for."""

    def __init__(self, horizon: int, left_usd: float) -> None:
        self.horizon = horizon
        self.left_usd = left_usd
        rule = f"the horizon of {horizon} requests is used up ({left_usd:.6g} USD left)"
        super().__init__(f"{rule}: lengthen it with set_budget(horizon=...), or use on_exhausted='cheapest'")


class NoEligibleModel(WiseRouterError):
    """Every model is excluded; `reasons` maps each name to its reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        why = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        super().__init__(f"no model can take this query: {why}")


class QuerySkipped(WiseRouterError):
    """The plan's null action: at this budget the query is not worth the cost of any model."""

    def __init__(self, context: int, rate_usd: float) -> None:
        self.context = context
        self.rate_usd = rate_usd
        rule = f"the plan skips this query of context {context} at {rate_usd:.6g} USD per request"
        super().__init__(f"{rule}; a policy with allow_skip=False always serves")


class UnknownDecision(WiseRouterError):
    """No decision has this id, or its record is older than the store keeps it."""

    def __init__(self, decision_id: str, remedy: str = "pass the id that decide() gave") -> None:
        self.decision_id = decision_id
        super().__init__(f"decision {decision_id!r} is unknown or has expired: {remedy}")


class UnknownConversation(WiseRouterError):
    """No conversation of this caller has this id, or its time to live is over."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        rule = f"conversation {conversation!r} is unknown or has expired"
        super().__init__(f"{rule}: pass the id, the caller and the scope that decide() was given")


class AlreadySettled(WiseRouterError):
    """The decision was charged, released or presumed before; nothing is charged twice."""

    def __init__(self, decision_id: str, state: str) -> None:
        self.decision_id = decision_id
        self.state = state
        super().__init__(f"decision {decision_id!r} was {state} before: settle each decision once")


class StoreError(WiseRouterError):
    """The store `store` (without any password) fails; it `lasts` where only other settings or permissions help."""

    def __init__(self, message: str, *, store: str, lasts: bool = False) -> None:
        super().__init__(message)
        self.store = store
        self.lasts = lasts


class StoreUnavailable(StoreError):
    """A store cannot be reached, or cannot write. Nothing is lost: try again."""


class StoreDamaged(StoreError):
    """The content of a store cannot be read. It was left as it is."""


class UnknownPrice(WiseRouterError):
    """The cost of a call cannot be computed."""

    def __init__(self, model: str, need: str) -> None:
        self.model = model
        super().__init__(f"model {model!r} has no {need}")


class EncoderError(WiseRouterError):
    """An encoder failed or returned something other than finite rows of one length."""


class ArtifactError(WiseRouterError):
    """A file is not a usable artifact; `path` names it."""

    def __init__(self, path: str | Path, message: str) -> None:
        self.path = Path(path)
        super().__init__(f"{path}: {message}")


class MissingArtifact(ArtifactError, FileNotFoundError):
    """There is no such file."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "no such file: correct the path, or make one with `wiserouter fit`")


class NotAnArtifact(ArtifactError):
    """The file was not written by WiseRouter.save()."""


class DamagedArtifact(ArtifactError):
    """The file is truncated or its content does not match its hash."""


class NewerArtifact(ArtifactError):
    """The file was written by a newer version of WISERouter."""


class WorkersLost(WiseRouterError):
    """Workers of a parallel run were lost several times in a row."""


class MissingExtra(WiseRouterError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs {package}: pip install 'wiserouter[{extra}]'")
