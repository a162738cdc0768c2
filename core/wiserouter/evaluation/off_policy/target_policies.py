"""Targets: what a plan at another budget, another pool, or one model alone would have done at each logged decision."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from wiserouter.errors import InvalidInput, UnknownModel
from wiserouter.evaluation.off_policy.logged_decisions import Decisions
from wiserouter.planning.plan import Plan, Split
from wiserouter.prompts.contexts import Contexts
from wiserouter.types import NO_CONTEXT, FloatArray
from wiserouter.validation import check_amount

_SAME = 1e-9
"""Frequencies this close are equal."""

_Row = tuple[list[float], list[float]]
"""Mean reward and mean cost of each model in one context."""


def always(decisions: Decisions, model: str) -> FloatArray:
    """Return the target that sends everything to one model; raises `UnknownModel`."""
    target = np.zeros_like(decisions.logged)
    target[:, _columns(decisions, [model])] = 1.0
    return target


def at_plan(
    decisions: Decisions, plan: Plan, names: Collection[str], rate_usd: float, without: Collection[str] = ()
) -> FloatArray:
    """Return what a fixed plan does at a fixed rate.

    Parameters
    ----------
    decisions : Decisions
        What was logged, in the contexts of the plan.
    plan : Plan
        The linear program, such as `router.plan` of an artifact.
    names : collection of str
        Its models.
    rate_usd : float, USD per request
        The budget.
    without : collection of str, optional
        Models to do without.

    Returns
    -------
    ndarray of shape (n, K + 1)
        For `evaluate`.

    Raises
    ------
    InfeasibleBudget
        If the rate does not pay for the cheapest models.
    InvalidInput
        If no model is left, one is not in the log (see `Decisions.with_models`), or a context not in the plan.
    """
    kept = _kept(names, without)
    plan = Plan(plan.freq, plan.reward[:, kept], plan.cost_usd[:, kept], allow_skip=plan.allow_skip)
    beyond = decisions.context[decisions.context >= plan.n_contexts]
    if beyond.size:
        raise InvalidInput(
            f"the log has a context {beyond[0]}, the plan has {plan.n_contexts}: take the artifact that made it",
            value=int(beyond[0]),
        )
    mix = np.vstack([plan.mix(rate_usd), plan.without_context().mix(rate_usd)])  # index -1 is NO_CONTEXT
    target = np.zeros_like(decisions.logged)
    target[:, _columns(decisions, [list(names)[k] for k in kept])] = mix[decisions.context]
    target[:, -1] = np.clip(1.0 - target.sum(axis=1), 0.0, 1.0)
    return target


def at_known_then(decisions: Decisions, rate_usd: float, without: Collection[str] = ()) -> FloatArray:
    """Return what the plan at the estimates of each moment would have done at a fixed rate.

    Parameters
    ----------
    decisions : Decisions
        What was logged, with the estimates of each moment.
    rate_usd : float, USD per request
        The budget; where the estimates of the moment ask for more, the cheapest models are taken.
    without : collection of str, optional
        Models to do without.

    Returns
    -------
    ndarray of shape (n, K + 1)
        For `evaluate`; NaN where no model's cost was known.

    Raises
    ------
    InvalidInput
        If no model is left, or `rate_usd` is not a finite number of at least 0.

    Notes
    -----
    A plan is made of the latest estimates of each context met so far, never of later ones: a target that knew what came
    of the decisions it is judged by would look better than it is. A model that nothing is known of is not used.
    """
    check_amount("rate_usd", rate_usd)
    kept = _kept(decisions.models, without)
    target = np.zeros_like(decisions.logged)
    columns = [*kept, -1]
    placed, unplaced = _Latest(decisions.share), _Latest(decisions.share)
    rows = zip(decisions.expected_reward[:, kept], decisions.expected_cost_usd[:, kept], strict=True)
    for i, (context, row) in enumerate(zip(decisions.context.tolist(), rows, strict=True)):
        latest = unplaced if context == NO_CONTEXT else placed
        split = latest.split(context, rate_usd, _filled(*row))
        if split is None:
            target[i] = np.nan
            continue
        target[i, columns[split.low]] += 1.0 - split.share
        target[i, columns[split.high]] += split.share
    return target


class _Latest:
    """The plan at the latest estimates of each context that was met."""

    def __init__(self, share: dict[int, float]) -> None:
        self._share = share
        self._rows: dict[int, _Row] = {}
        self._place: dict[int, int] = {}
        self._plan: Plan | None = None

    def split(self, context: int, rate_usd: float, row: _Row | None) -> Split | None:
        """Take in what is known of a context now, and return what it gets; None while nothing is known of it."""
        if row is not None and row != self._rows.get(context):
            self._revise(context, row)
        if self._plan is None or context not in self._rows:
            return None
        return self._plan.split(self._place[context], max(rate_usd, self._plan.floor_usd))

    def _revise(self, context: int, row: _Row) -> None:
        self._rows[context] = row
        if self._plan is not None and context in self._place:
            self._plan.revise(self._place[context], *row)
            return
        self._place[context] = len(self._place)
        freq = np.array([self._share[one] for one in self._rows])
        freq = freq / freq.sum() if freq.any() else np.full(len(freq), 1.0 / len(freq))
        self._plan = Plan(freq, *(list(table) for table in zip(*self._rows.values(), strict=True)))


def _filled(reward: FloatArray, cost_usd: FloatArray) -> _Row | None:
    """Return the estimates with unknown models as ones that no plan uses; None where nothing is known."""
    known = ~(np.isnan(reward) | np.isnan(cost_usd))
    if not known.any():
        return None
    dear = float(cost_usd[known].max()) + 1.0
    return np.where(known, np.minimum(reward, 1.0), 0.0).tolist(), np.where(known, cost_usd, dear).tolist()


def check_contexts(decisions: Decisions, contexts: Contexts) -> None:
    """Refuse contexts that are not those of the log, as far as their number and frequencies tell.

    Raises
    ------
    InvalidInput
        If they differ.
    """
    for context, share in decisions.share.items():
        has = context == NO_CONTEXT or context < contexts.n_contexts
        if not has or (context != NO_CONTEXT and abs(contexts.freq[context] - share) > _SAME):
            told = f"{contexts.freq[context]:.4f}" if has else "no such context"
            raise InvalidInput(
                f"the contexts must be those of the log: its context {context} has a share of {share:.4f}, the file "
                f"says {told}: take an artifact with the contexts that the log was made with"
            )


def _kept(names: Collection[str], without: Collection[str]) -> list[int]:
    for name in without:
        if name not in names:
            raise UnknownModel(name, names)
    kept = [k for k, name in enumerate(names) if name not in without]
    if not kept:
        raise InvalidInput(f"a pool needs a model, got none without {', '.join(without)}")
    return kept


def _columns(decisions: Decisions, names: Collection[str]) -> list[int]:
    for name in names:
        if name not in decisions.models:
            raise UnknownModel(name, decisions.models)
    return [decisions.models.index(name) for name in names]
