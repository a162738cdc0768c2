"""What a judge has done, and how far it agrees with people, for the status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wiserouter.judging.agreement import Agreement, ModelAgreement
from wiserouter.judging.agreements import Agreements

if TYPE_CHECKING:
    from wiserouter.judging.judge import Judge


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFigures:
    """The figures of a judge in this process.

    Attributes
    ----------
    source : str
        The source of its scores, and the scope of its budget.
    share : float
        The share of the calls that it judges.
    offered, judged, waiting, dropped, failed, unpaid : int
        As in `JudgeCounts`, and the calls that wait for it.
    kept_back : int
        Its first scores, which are learned together once there are enough of them.
    spent_usd : float, USD
        Cost of its judgements.
    pairs : int
        Calls that people have scored as well.
    agreement : float or None
        1 less the mean distance of its scores from people's; None without a pair.
    models : dict of str to ModelAgreement
        The same for each model.
    warning : str or None
        The line on its bias toward cheap models; None where the pairs show none.
    """

    source: str
    share: float
    offered: int
    judged: int
    waiting: int
    dropped: int
    failed: int
    unpaid: int
    kept_back: int
    spent_usd: float
    pairs: int
    agreement: float | None
    models: dict[str, ModelAgreement]
    warning: str | None


def figures_of(judge: Judge, agreements: Agreements) -> JudgeFigures:
    """Return the figures of a judge."""
    settings, counts = judge.settings, judge.counts
    agreement = agreements.of.get(settings.source, Agreement())
    return JudgeFigures(
        source=settings.source,
        share=settings.share,
        offered=counts.offered,
        judged=counts.judged,
        waiting=judge.waits(),
        dropped=counts.dropped,
        failed=counts.failed,
        unpaid=counts.unpaid,
        kept_back=counts.kept_back,
        spent_usd=counts.spent_usd,
        pairs=agreement.pairs,
        agreement=agreement.share,
        models=agreement.of_models(),
        warning=agreements.warnings.get(settings.source),
    )
