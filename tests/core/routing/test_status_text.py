"""The status and the router as people read them."""

import pytest

from wiserouter import Budget, Contexts, Estimates, Model, Offline, Price, WiseRouter
from wiserouter.pricing.amounts import usd, usd_per_1000


def router(budget, **fields):
    estimates = Estimates(1, 2)
    for k, (cost, reward) in enumerate([(1e-3, 0.5), (1e-2, 0.9)]):
        for _ in range(30):
            estimates.add_cost(0, k, cost)
            estimates.add_reward(0, k, reward)
    models = [Model("small", Price(1e-6, 1e-6), max_cost_usd=1e-2), Model("large", Price(1e-5, 1e-5), max_cost_usd=0.1)]
    made = WiseRouter(models, Contexts.single(), estimates=estimates, policy=Offline(), seed=0, **fields)
    made.start(budget)
    return made


def test_the_status_prints_on_a_few_lines():
    made = router(Budget(0.70, 100))
    decisions = [made.decide() for _ in range(5)]
    made.charge(decisions[0], 0.0123)
    made.release(decisions[1])
    made.presume(decisions[2])
    lines = str(made.status()).splitlines()
    assert lines[0] == "scope default"
    assert [line.split()[0] for line in lines[1:]] == ["budget", "calls", "ahead", "plan"]
    text = "\n".join(lines)
    for part in ("of $0.700 spent", "of it presumed", "reserved by calls in flight", "4 decided", "1 charged"):
        assert part in text
    assert "2 in flight, 1 presumed, 1 released" in text
    assert "per 1,000" in text
    assert "expected reward 0." in text
    assert max(map(len, lines)) <= 120


def test_every_budget_of_a_scope_has_a_line():
    made = router(Budget(5.0, every="day", within=Budget(50.0, horizon=1_000, limit="hard")))
    text = str(made.status())
    assert "every day" in text
    assert "in all" in text
    assert "renews 20" in text


def test_before_anything_is_known_there_is_no_plan():
    made = WiseRouter([Model("small", Price(1e-6, 1e-6))], seed=0)
    made.start(Budget(1.0, 10))
    assert str(made.status()).startswith("scope default\n  budget  $0.00 of $1.00 spent")


def test_a_notebook_shows_a_table_without_markup_of_its_content():
    made = router(Budget(0.70, 100))
    made.start(Budget(1.0, 10), scope="<b>team</b>")
    html = made.status("<b>team</b>")._repr_html_()
    assert html.startswith("<table>")
    assert html.endswith("</table>")
    assert "<b>" not in html
    assert "&lt;b&gt;team" in html


def test_the_status_still_compares_and_represents_its_fields():
    status = router(Budget(0.70, 100)).status()
    assert repr(status).startswith("Status(amount_usd=0.7")
    assert next(iter(status.as_dict())) == "scope"
    assert status == router(Budget(0.70, 100)).status()
    assert status.as_dict()["amount_usd"] == 0.7


def test_a_notebook_shows_what_a_router_is():
    html = WiseRouter([Model("<b>small</b>", Price(1e-6, 1e-6))], seed=0)._repr_html_()
    assert html.startswith("<table><caption>WiseRouter</caption>")
    assert "<th>models</th><td>&lt;b&gt;small&lt;/b&gt;</td>" in html
    assert "<th>budgets in</th><td>memory</td>" in html


def test_a_router_says_what_it_is(tmp_path):
    assert repr(router(Budget(1.0, 10))) == "<WiseRouter: small, large; 1 context, Offline, budgets in memory>"
    shared = router(Budget(1.0, 10), store=f"sqlite:///{tmp_path}/b.db")
    assert "a shared store" in repr(shared)
    shared.close()
    many = WiseRouter([Model(f"m{k}", Price(1e-6, 1e-6)) for k in range(9)])
    assert repr(many) == "<WiseRouter: m0, m1, m2, m3, m4, ...; 1 context, Optimistic, budgets in memory>"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "$0.00"),
        (5.8e-05, "$0.000058"),
        (1.23456e-7, "$0.0000001235"),
        (-0.00012, "-$0.00012"),
        (0.099999, "$0.1"),
        (0.5, "$0.500"),
        (1_234.5, "$1,234.50"),
        (float("inf"), "$inf"),
        (1e-30, "$1e-30"),
    ],
)
def test_amounts_have_no_exponent(amount, text):
    assert usd(amount) == text


def test_costs_of_single_calls_are_given_for_a_thousand():
    assert usd_per_1000(5.8e-05) == "$0.058 per 1,000"
