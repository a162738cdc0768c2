"""Target policies: a plan at another budget, another pool, or one model alone, at each logged decision."""

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
    """Return the target of a fixed plan at a fixed rate.

    Parameters
    ----------
    decisions : Decisions
        The log, in the contexts of the plan.
    plan : Plan
        The linear program, such as `router.plan` of an artifact.
    names : collection of str
        Its models.
    rate_usd : float, USD per request
        The budget.
    without : collection of str, optional
        Models to leave out.

    Returns
    -------
    ndarray of shape (n, K + 1)
        For `evaluate`.

    Raises
    ------
    InfeasibleBudget
        If the rate does not pay for the cheapest models.
    InvalidInput
        If no model is left, a model is not in the log (see `Decisions.with_models`), or a context is not in the plan.
    """
    kept = _kept(names, without)
    plan = Plan(plan.freq, plan.reward[:, kept], plan.cost_usd[:, kept], allow_skip=plan.allow_skip)
    beyond = decisions.context[decisions.context >= plan.n_contexts]
    if beyond.size:
        raise InvalidInput(
            f"the log has a context {beyond[0]}, the plan has {plan.n_contexts}: take the artifact that made it",
            value=int(beyond[0]),
        )
    whole = plan.without_context()  # its cheapest model may cost more than those of the contexts
    mix = np.vstack([plan.mix(rate_usd), whole.mix(max(rate_usd, whole.floor_usd))])  # index -1 is NO_CONTEXT
    target = np.zeros_like(decisions.logged)
    target[:, _columns(decisions, [list(names)[k] for k in kept])] = mix[decisions.context]
    target[:, -1] = np.clip(1.0 - target.sum(axis=1), 0.0, 1.0)
    return target


def at_logged_estimates(decisions: Decisions, rate_usd: float, without: Collection[str] = ()) -> FloatArray:
    """Return the target of the plan at the estimates of each decision's time, at a fixed rate.

    Parameters
    ----------
    decisions : Decisions
        The log, with the estimates at the time of each decision.
    rate_usd : float, USD per request
        The budget; if the estimates require more, the cheapest models are taken.
    without : collection of str, optional
        Models to leave out.

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
    The plan uses the latest estimates of each context so far, never later ones: a target that knew the outcomes of the
    decisions on which it is evaluated would look better than it is. A model without observations is not used.
    """
    check_amount("rate_usd", rate_usd)
    kept = _kept(decisions.models, without)
    target = np.zeros_like(decisions.logged)
    columns = [*kept, -1]
    in_context, without_context = _LatestPlan(decisions.share), _LatestPlan(decisions.share)
    rows = zip(decisions.expected_reward[:, kept], decisions.expected_cost_usd[:, kept], strict=True)
    for i, (context, row) in enumerate(zip(decisions.context.tolist(), rows, strict=True)):
        latest = without_context if context == NO_CONTEXT else in_context
        split = latest.split(context, rate_usd, _filled(*row))
        if split is None:
            target[i] = np.nan
            continue
        target[i, columns[split.low]] += 1.0 - split.share
        target[i, columns[split.high]] += split.share
    return target


class _LatestPlan:
    """The plan at the latest estimates of each context so far."""

    def __init__(self, share: dict[int, float]) -> None:
        self._share = share
        self._rows: dict[int, _Row] = {}
        self._place: dict[int, int] = {}
        self._plan: Plan | None = None

    def split(self, context: int, rate_usd: float, row: _Row | None) -> Split | None:
        """Update the estimates of a context, and return its mix at a rate; None before the first estimates."""
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
    """Return the estimates with unknown models as ones that no plan uses; None if all are unknown."""
    known = ~(np.isnan(reward) | np.isnan(cost_usd))
    if not known.any():
        return None
    unused_usd = float(cost_usd[known].max()) + 1.0
    return np.where(known, np.minimum(reward, 1.0), 0.0).tolist(), np.where(known, cost_usd, unused_usd).tolist()


def check_contexts(decisions: Decisions, contexts: Contexts) -> None:
    """Refuse contexts that are not those of the log, judged by their number and frequencies.

    Raises
    ------
    InvalidInput
        If they differ.
    """
    for context, share in decisions.share.items():
        has = context == NO_CONTEXT or context < contexts.n_contexts
        if not has or (context != NO_CONTEXT and abs(contexts.freq[context] - share) > _SAME):
            found = f"{contexts.freq[context]:.4f}" if has else "no such context"
            raise InvalidInput(
                f"the contexts must be those of the log: its context {context} has a share of {share:.4f}, the file "
                f"has {found}: take an artifact with the contexts of the log"
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
