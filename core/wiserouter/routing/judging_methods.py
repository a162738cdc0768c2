"""The methods of `WiseRouter` for a judge: to start one, and to offer it calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from wiserouter.budgets.budget import Budget
from wiserouter.errors import AlreadySettled, InvalidInput, UnknownDecision
from wiserouter.judging.settings import JudgeSettings
from wiserouter.routing.conversation_methods import RouterConversations
from wiserouter.routing.judge_figures import JudgeFigures, figures_of
from wiserouter.validation import check_function

if TYPE_CHECKING:
    from wiserouter.judging.judge import Judge

UNBOUNDED_REQUESTS = 1_000_000
"""The horizon of a judge's budget that does not renew: no plan depends on it."""


class RouterJudging(RouterConversations):
    """The methods that let a judge score a share of the answers; it is `judge`, where `judge_with` has started one."""

    def judge_with(
        self, ask: Callable[..., Any], *, share: float = 0.1, budget_usd: float | None = None, **settings: Any
    ) -> Judge:
        """Let a judge score a share of the answers in the background, on a budget of its own.

        Parameters
        ----------
        ask : callable
            The judge: a function, or coroutine function, of prompt and answer that returns a score in [0, 1], or a
            mapping with `score` and perhaps `cost_usd`. One that takes `inputs` and `outputs`, such as the evaluators
            of openevals, is called with these names. With `incumbent`, of a prompt and two answers in random order,
            that returns "first", "second" or "tie".
        share : float, default 0.1
            The share of the calls of a horizon to judge: more of them at its start, in proportion to 1 / sqrt(the part
            of it that has passed), and of rarely chosen models a larger share, in proportion to 1 / sqrt(calls).
        budget_usd : float, USD, optional
            The judge's own budget, never part of the main one; with `every`, that of one window. It needs `cost_usd`,
            or a judge with a method `bound_usd` of the same texts.
        every : str, optional
            How often that budget renews, as in `Budget`.
        cost_usd : float, USD, default 0
            The most that one judgement costs; what it costs is taken from the judge's result, where that says so.
        name : str, default "default"
            Its scores have the source "judge:<name>", and its budget that scope.
        weight : float, default 1
            Number of observations that one of its scores counts as.
        concurrency, max_waiting : int, default 4 and 256
            Judgements at once, and calls that may wait; further ones are not judged.
        attempts, pause_s, timeout_s : int and float, default 3, 0.5 and 60
            Attempts per question, the first pause between two, and the time limit of one.
        held : int, default 256
            Calls outside the share whose texts are kept for a while: they are judged if a person scores them, so that
            the judge's agreement with people is known.
        first_scores : int, default 100
            Its first scores are learned together, once there are so many: fewer do not show whether it prefers cheap
            models.
        incumbent, incumbent_model : callable and str, optional
            Answers a prompt, as `answer` or `(answer, cost_usd)`, to be compared with; and the model that it is.
        seed : int, optional
            Seeds the sample and the order of two answers.

        Returns
        -------
        Judge
            Takes calls by `offer(decision, prompt, answer)`.

        Raises
        ------
        InvalidInput
            If a setting is out of range, there is a budget and no bound on the cost of a judgement, or the router has
            a judge already.

        Examples
        --------
        >>> from wiserouter import Budget, Model, Price, WiseRouter
        >>> router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
        >>> router.start(Budget(amount_usd=1.0, horizon=1_000))
        >>> judge = router.judge_with(lambda prompt, answer: float("Paris" in answer), share=1.0, first_scores=1)
        >>> decision = router.decide("What is the capital of France?")
        >>> router.charge(decision, cost_usd=1e-5)
        >>> judge.offer(decision, "What is the capital of France?", "Paris."), judge.flush()
        (True, True)
        >>> router.status().judge.judged
        1
        >>> judge.close()
        """
        from wiserouter.judging.judge import Judge  # routers without a judge do not pay for asyncio

        check_function("ask", ask, "prompt and answer")
        if self.judge is not None:
            raise InvalidInput("a router has one judge, got another one: close the first with stop_judging()")
        seed = settings.pop("seed", None)
        chosen = JudgeSettings(share=share, budget_usd=budget_usd, **settings)
        self._open_judge_budget(chosen, bounded=chosen.cost_usd > 0.0 or hasattr(ask, "bound_usd"))
        score = partial(self._ajudged, source=chosen.source, weight=chosen.weight)
        pay = self._pays_nothing if budget_usd is None else partial(self.aspend, scope=chosen.source)
        passed, learned = self._horizon_passed, partial(self._scores_of, chosen.source)
        self.judge = Judge(ask, chosen, score, pay, random.Random(seed), passed=passed, learned=learned)  # noqa: S311
        return self.judge

    def stop_judging(self) -> None:
        """Close the judge, where there is one; its budget stays in the store."""
        if self.judge is not None:
            self.judge.close()
            self.judge = None

    def judge_figures(self) -> JudgeFigures | None:
        """Return the figures of the judge in this process; None where there is none."""
        return None if self.judge is None else figures_of(self.judge, self._learner.agreements)

    def _scores_of(self, source: str) -> int:
        """Return the number of scores of a judge that were learned, by any worker and before a restart."""
        agreement = self._learner.agreements.of.get(source)
        return 0 if agreement is None else agreement.judged

    def _horizon_passed(self) -> float:
        """Return the share that has passed of the horizon of the budget that the latest decision was made under."""
        return 1.0 - self._decider.share_left

    def _open_judge_budget(self, settings: JudgeSettings, *, bounded: bool) -> None:
        """Start the budget of a judge, or join that of the other workers; never more is spent."""
        if settings.budget_usd is None:
            return
        if not bounded:
            raise InvalidInput("budget_usd needs cost_usd, the most that one judgement costs, got none")
        budget = Budget(settings.budget_usd, UNBOUNDED_REQUESTS, limit="hard", every=settings.every)
        self._store.open(settings.source, budget, restart=not self._store.durable)

    async def _ajudged(self, decision_id: str, score: float, *, source: str, weight: float) -> None:
        """Take a judge's score; a call that failed or was forgotten meanwhile has none."""
        try:
            await self.areward(decision_id, score, source=source, weight=weight)
        except (UnknownDecision, AlreadySettled):
            return

    async def _pays_nothing(self, cost_usd: float, *, billed: bool = False) -> None:
        """Count no cost: the judge has no budget."""
