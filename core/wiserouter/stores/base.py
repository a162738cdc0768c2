"""The protocol of a store: the ledgers of all scopes, and the records of recent decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from wiserouter.budgets.budget import Budget, Debit
from wiserouter.budgets.changes import BudgetChange, ChangeAnswer
from wiserouter.budgets.funds import BudgetSnapshot
from wiserouter.budgets.nested import Account
from wiserouter.budgets.run_caps import RunCap
from wiserouter.conversations.conversation import Conversation
from wiserouter.learning.source_scores import HUMAN, Scores, SourceScore, evidence
from wiserouter.types import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from wiserouter.learning.residuals import Deviations
    from wiserouter.planning.trace import DecisionTrace
    from wiserouter.stores.peer import Peer

State = Literal["in flight", "charged", "released", "presumed"]


@dataclass(slots=True)
class Record:
    """A decision and its outcome.

    Attributes
    ----------
    decision : Decision
        The decision.
    model : int
        Index of the model that takes the call, in the pool of the router that decided.
    debit : {"actual", "paper"}
        Whether planning debits the true or the expected cost.
    state : {"in flight", "charged", "released", "presumed"}
        The state of the call; "presumed" where its outcome is unknown and it counts as spent.
    reward : float or None
        The reward that is learned from: the latest score of the most reliable source.
    cost_usd : float or None
        The true cost, once charged; the cost at which it counts, where it is presumed.
    trace : DecisionTrace or None
        The figures that it was made from, to explain it; None if a store does not keep them.
    deviations : Deviations or None
        Those that were predicted for the query, where estimates depend on the single query.
    caps : tuple of RunCap
        The budgets of the run that it is a call of, the innermost run first, and of those that run is a part of.
    counts : bool
        Whether it uses a request of the horizon; False for a call that continues a run.
    scores : mapping of str to SourceScore
        The score of each source.
    contexts_version : int
        The version of the contexts that the context of the decision is one of.
    contexts : str
        The name of these contexts, which workers with others do not have; "" of an early record.
    incumbent : str
        Name of the model that takes the call in place of the decision's, in shadow mode; "" where none does.
    answered : str
        Name of the model that answered, once charged; "" where it is not stated.
    """

    decision: Decision
    model: int
    debit: Debit
    state: State = "in flight"
    reward: float | None = None
    cost_usd: float | None = None
    trace: DecisionTrace | None = None
    deviations: Deviations | None = None
    caps: tuple[RunCap, ...] = ()
    counts: bool = True
    scores: Scores = field(default_factory=dict)
    contexts_version: int = 0
    contexts: str = ""
    incumbent: str = ""
    answered: str = ""

    @property
    def taken_by(self) -> str:
        """Name of the model that the call was sent to first; "" for a query that is not served."""
        return self.incumbent or self.decision.model

    @property
    def name(self) -> str:
        """Name of the model: once charged, of the one that answered."""
        return self.answered or self.incumbent or self.decision.model

    def take(self, scores: Scores) -> None:
        """Take over the scores of all sources, and the reward that follows from them."""
        learned = evidence(scores)
        self.scores, self.reward = scores, None if learned is None else learned.reward


class Health(NamedTuple):
    """The state of a store.

    Attributes
    ----------
    reachable : bool
        Whether the last attempt to reach it succeeded.
    staleness_s : float, seconds
        The age of the state that decisions are based on; 0 where there is only one process.
    waiting : int
        Number of events still to be sent.
    failures, exchanges : int
        Number of attempts to reach it that failed, and that succeeded.
    """

    reachable: bool = True
    staleness_s: float = 0.0
    waiting: int = 0
    failures: int = 0
    exchanges: int = 0


class Store(Protocol):
    """A store of budgets and decisions; every method is atomic and safe to call from several threads.

    Attributes
    ----------
    durable : bool
        Whether budgets outlive the process, so that starting a budget joins the running one. A store that is not
        durable never waits.

    Raises
    ------
    StoreUnavailable, StoreDamaged
        From every method except `now`, `waits` and `health`, where the stored state cannot be reached or read.
    """

    durable: bool

    def now(self) -> float:
        """Return the store's time in seconds."""
        ...

    def waits(self, scope: str, decision_id: str | None = None) -> bool:
        """Return True if a method may wait for input or output, so that it must not run on an event loop.

        In a durable store the methods of conversations, and `snapshot` and `reserve` with caps, may always wait.

        Parameters
        ----------
        scope : str
            The scope of the budget; "" where only a decision is known.
        decision_id : str, optional
            The decision, where it was made before.
        """
        ...

    def open(
        self,
        scope: str,
        budget: Budget,
        *,
        parent: str | None = None,
        restart: bool = False,
        whole: Budget | None = None,
    ) -> None:
        """Start a budget for `scope`, or join the running one with the amount and horizon given now.

        Parameters
        ----------
        scope : str
            The scope of the budget.
        budget : Budget
            The terms.
        parent : str, optional
            Another scope whose budgets must also bear each call.
        restart : bool, default False
            End the running budget; its calls in flight no longer count.
        whole : Budget, optional
            The terms that the budget is a part of, where its program has divided them. One that an administrator has
            ended begins again on other terms only; as another part of the same, it stays ended.

        Raises
        ------
        InvalidInput
            If the running budget renews differently, has another limit or another parent, and `restart` is False; or if
            the scope encloses the parent.
        NotStarted
            If the parent has no budget.
        """
        ...

    def amend(self, scope: str, *, amount_usd: float | None, horizon: int | None, every: str | None = None) -> None:
        """Change the running budget of `scope`: the one that renews `every` so often, where there are several.

        Raises
        ------
        InvalidInput
            If none does, or there are several and `every` is None; nothing changes.
        """
        ...

    def change(self, scope: str, change: BudgetChange, *, token: str = "", request: str = "") -> ChangeAnswer:
        """Change the running budget of `scope` by order of an administrator, and return the answer.

        Parameters
        ----------
        scope : str
            The scope of the budget.
        change : BudgetChange
            The change. It stays where the budget is opened again on the terms that it had before.
        token : str, default ""
            Names the request for the change: one of the same token within a day changes nothing, and has the answer
            of the first.
        request : str, default ""
            What was asked for; the same token with another request is refused.

        Raises
        ------
        NotStarted
            If the scope has no budget.
        ChangeRefused
            If a hard limit would no longer cover what is spent, reserved and leased, or it would become hard while
            calls are in flight; or if the budget has ended. Nothing changes.
        InvalidInput
            If the change does not fit the budget, or the token was used for another request.
        """
        ...

    def ledger(self, scope: str) -> Account:
        """Return the account of `scope`, after overdue reservations were presumed.

        Raises
        ------
        NotStarted
            If the scope has no budget.
        """
        ...

    def snapshot(self, scope: str, caps: Sequence[RunCap] = ()) -> BudgetSnapshot:
        """Return the budget of `scope` at this moment, for one decision; raises as `ledger` does.

        Where the budget or one that encloses it is paused, it raises `BudgetPaused`.

        Parameters
        ----------
        scope : str
            The scope of the budget.
        caps : sequence of RunCap
            The budgets of runs that must also bear the call; funds, rate and margin do not depend on them.
        """
        ...

    def payers(self, scope: str) -> Sequence[str]:
        """Return the scope of each budget that pays for a scope, in the order of its ledgers."""
        ...

    def reserve(self, record: Record) -> None:
        """Reserve the cost of a decision, in all budgets of its scope and its caps or in none, and keep its record.

        It is reserved once, however often the record is given. A cap is opened by the first call that it bears, with
        the amount given then, and forgotten its `ttl_s` after the last reservation or settlement, but not while a call
        is in flight.

        Raises
        ------
        BudgetExhausted
            If a hard limit does not admit it; nothing changes.
        RunBudgetExhausted
            If the budget of a run does not; nothing changes.
        """
        ...

    def find(self, decision_id: str, *others: str) -> Record:
        """Return the record of a decision, by its id or an alias, or by the first of several that is known, at once.

        Raises
        ------
        UnknownDecision
            If there is none.
        """
        ...

    def alias(self, aliases: Iterable[str], decision_id: str) -> None:
        """Let a decision be found by other names as well, for as long as it is kept."""
        ...

    def settle(self, decision_id: str, cost_usd: float, model: str | None = None) -> Record:
        """Charge the true cost of a call, once, and record the model that answered where it is another one.

        It counts in the windows in which it was decided. The bill of a released call still counts, since the money was
        spent; that of a presumed call replaces the presumed cost.

        Raises
        ------
        UnknownDecision, AlreadySettled
            If there is no such decision, or it was charged before; nothing changes.
        """
        ...

    def spend(self, scope: str, cost_usd: float, *, billed: bool = False) -> None:
        """Count a cost that belongs to no decision; a negative cost is a refund, and a billed one is never refused.

        Raises
        ------
        BudgetExhausted
            If a hard limit does not admit it; nothing changes.
        """
        ...

    def release(self, decision_id: str) -> Record:
        """Return the reservation, or the presumed cost, of a call that cost nothing.

        Raises as `settle` does, and if the call was released before.
        """
        ...

    def presume(self, decision_id: str) -> Record:
        """Count a call whose outcome is unknown as spent, as a reservation that is not settled in time.

        It counts at the reserved cost where any limit of the account is hard, and at the expected cost otherwise; the
        record has this cost. Raises as `settle` does, and if the call was released or presumed before.
        """
        ...

    def reward(self, decision_id: str, score: SourceScore | float, source: str = HUMAN) -> tuple[Record, Scores]:
        """Keep the score of a source for a decision; return its record, and the scores of all sources before."""
        ...

    def conversation(self, key: str) -> Conversation | None:
        """Return the kept state of a conversation; None where it is unknown, has ended or has expired."""
        ...

    def keep_conversation(self, conversation: Conversation, ttl_s: float) -> bool:
        """Keep a state in place of the one of version `conversation.version`, as the next version.

        Parameters
        ----------
        conversation : Conversation
            The state. For the unit "run", the scope of the run, and those that enclose it, commit `rest_usd` in place
            of the amount committed before; its end and its expiry take it back.
        ttl_s : float, seconds
            Time from now on after which it expires.

        Returns
        -------
        bool
            False, and nothing changes, where another version is kept; none is version 0.
        """
        ...

    def end_conversation(self, key: str) -> None:
        """Forget a conversation, what it commits, and its cap unless a call of it is in flight."""
        ...

    def claim(self, name: str, at_s: float, by: str) -> bool:
        """Return True if `by` is the first of all workers to claim an occasion; also where it asks again. It may wait.

        Parameters
        ----------
        name : str
            What happens again and again, such as a share of a budget that is spent in each window.
        at_s : float, seconds
            The time that tells one occasion from the next; of each name the latest one is remembered.
        by : str
            The claimant.
        """
        ...

    def join(self, peer: Peer) -> None:
        """Exchange the sums of a peer with its counterparts in other workers, where there are any."""
        ...

    def follow(self, listener: Callable[[Collection[str]], object]) -> None:
        """Call a listener when this worker learns that the terms of an account were changed; it must not wait.

        Its argument is the known scopes whose own limit is hard.
        """
        ...

    def read_orders(self) -> str:
        """Return the orders of administrators, as text; "" for none."""
        ...

    def keep_orders(self, text: str) -> bool:
        """Keep orders in place of those that were read last; return False, and change nothing, if these are others."""
        ...

    def follow_orders(self, listener: Callable[[str], object]) -> None:
        """Call a listener with later orders when this worker learns of them; it must not wait."""
        ...

    def refresh(self) -> None:
        """Send waiting events, and read the current state."""
        ...

    def health(self) -> Health:
        """Return the state of the store."""
        ...

    def close(self) -> None:
        """Send waiting events, and close connections and files."""
        ...
