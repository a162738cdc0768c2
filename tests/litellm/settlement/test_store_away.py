"""A store that does not answer: calls under an expected limit are decided, or pass, and are counted when it does."""

import sqlite3
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from support.groups import HI, fitted, llms
from wiserouter import Budget, WiseRouter, open_store
from wiserouter.errors import InvalidInput, StoreUnavailable
from wiserouter_litellm import BudgetUncertain, attach
from wiserouter_litellm.groups.scopes import CallerScopes
from wiserouter_litellm.settlement.unpaid_costs import UnpaidCosts


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def on_file(path, tmp_path):
    fitted().save(tmp_path / "pair.wise")
    return WiseRouter.load(tmp_path / "pair.wise", store=f"sqlite:///{path}?timeout_s=0.2")


async def test_calls_on_a_locked_file_are_routed_and_counted_later(provider, settled, tmp_path):
    path = tmp_path / "budget.db"
    router, router_ = on_file(path, tmp_path), llms()
    callback = attach(router_, "wise", router=router, budget=Budget(10.0, 1_000))
    with locked(path):
        for _ in range(30):
            answer = await router_.acompletion(model="wise", messages=HI)
            assert answer.choices
        await settled(lambda: router.status().charged == 30)
        spent_usd = router.status().spent_usd
        assert not router.health().reachable
    await settled(lambda: router.health().reachable and not router.health().waiting)
    assert callback.groups["wise"].faults.total() == 0
    router.close()
    after = open_store(f"sqlite:///{path}")
    assert (after.ledger("default").charged, after.ledger("default").in_flight) == (30, 0)
    assert after.ledger("default").spent_usd == pytest.approx(spent_usd)
    after.close()


async def test_a_hard_limit_on_a_locked_file_is_closed(provider, tmp_path):
    path = tmp_path / "budget.db"
    router, router_ = on_file(path, tmp_path), llms()
    attach(router_, "wise", router=router, budget=Budget(10.0, 1_000, limit="hard"))
    with locked(path), pytest.raises(BudgetUncertain):
        await router_.acompletion(model="wise", messages=HI)
    assert not provider.calls
    router.close()


async def test_a_caller_whose_budget_is_not_open_yet_is_charged_when_the_store_answers(provider, settled, tmp_path):
    path = tmp_path / "budget.db"
    router, router_ = on_file(path, tmp_path), llms()
    callback = attach(router_, "wise", router=router, budget=Budget(10.0, 1_000))
    group = callback.groups["wise"]
    group.scope_resolver = CallerScopes(
        "wise", router, "tag", {"first": Budget(5.0, 100)}, others=Budget(1.0, 100), from_request=True
    )
    group.scope_resolver.scope_of = lambda metadata: "tag:second"
    with locked(path):
        for _ in range(3):
            assert (await router_.acompletion(model="wise", messages=HI)).choices
        await settled(lambda: len(callback.unpaid) == 3)
    await settled(lambda: not len(callback.unpaid), timeout_s=30.0)
    assert router.status("tag:second").spent_usd > 0.0
    assert router.status().spent_usd == router.status("tag:second").spent_usd
    assert group.faults["uncounted_calls"] == 0
    router.close()


class Owing:
    """A group whose store does not answer for some time."""

    def __init__(self, failures):
        self.failures, self.spent, self.faults = failures, [], []
        self.router = self

    def spend(self, cost_usd, *, scope, billed):
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away", store="store")
        self.spent.append((scope, cost_usd))

    def fault(self, kind, message, *, error=None):
        self.faults.append(kind)


async def test_unpaid_costs_are_paid_once_and_in_order(settled):
    group, unpaid = Owing(3), UnpaidCosts(retry_s=0.02)
    for cost_usd in (1.0, 2.0, 3.0):
        unpaid.pay(group, cost_usd, "default")
    await settled(lambda: not len(unpaid))
    assert group.spent == [("default", 1.0), ("default", 2.0), ("default", 3.0)]
    assert group.faults == ["store"] * 3
    unpaid.pay(group, 4.0, "default")
    assert group.spent[-1] == ("default", 4.0)


async def test_a_cost_that_no_budget_can_take_keeps_no_other_from_being_paid():
    group, unpaid = Owing(0), UnpaidCosts()

    def refuse(scope):
        raise InvalidInput("the budget that runs is another one", value=scope)

    group.scope_resolver = SimpleNamespace(open=refuse)
    unpaid.pay(group, 1.0, "team:red")
    unpaid.pay(group, 2.0, "default")
    assert group.faults == ["uncounted_calls"]
    assert group.spent == [("default", 2.0)]
