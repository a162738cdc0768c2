"""Names with HTML, quotes and line breaks break no label of a metric and no log line; a scrape reads them back."""

import logging

from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.errors import StoreUnavailable
from wiserouter.operating.metrics import Metrics

EVIL = 'x"} 1\nwiserouter_store_up{group="wise"} 0\n# <script>alert(1)</script>\\'
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@settings(max_examples=40, deadline=None)
@example(group=EVIL, model=EVIL, scope=EVIL, comment=EVIL)
@given(group=NAMES, model=NAMES.filter(str.strip), scope=NAMES, comment=st.text(max_size=60))
def test_a_scrape_reads_the_names_back(group, model, scope, comment):
    router = WiseRouter([Model(model, Price(1e-7, 4e-7)), Model(f"{model}2", Price(1e-6, 4e-6))], seed=0)
    router.start(Budget(1.0, 100))
    if scope != "default":
        router.start(Budget(1.0, 100), scope=scope)
    registry = CollectorRegistry()
    Metrics(registry).watch(router, group, scopes=lambda: dict.fromkeys(("default", scope)))
    decision = router.decide("q", scope=scope, eligible=[model])
    router.charge(decision, 0.25)
    router.reward(decision, 0.5, comment=comment)
    families = {one.name: one for one in text_string_to_metric_families(generate_latest(registry).decode())}
    spent = {one.labels["scope"]: one for one in families["wiserouter_budget_spent_usd"].samples}
    assert spent.keys() == {"default", scope}
    assert spent[scope].value == 0.25
    (charged,) = [one for one in families["wiserouter_charged_usd"].samples if one.name.endswith("_total")]
    assert (charged.labels["group"], charged.labels["model"], charged.value) == (group, model, 0.25)
    assert [one.value for one in families["wiserouter_store_up"].samples] == [1.0]


@settings(max_examples=40, deadline=None)
@example(scope=EVIL)
@given(scope=NAMES)
def test_a_scope_that_cannot_be_read_is_one_log_line(scope):
    router = WiseRouter([Model("small", Price(1e-7, 4e-7))], seed=0)
    router.start(Budget(1.0, 100))
    registry = CollectorRegistry()
    Metrics(registry).watch(router, "wise", scopes=lambda: [scope])
    lines = []

    def away(scope="default"):
        raise StoreUnavailable("the store cannot be reached", store="redis")

    router.account = away
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(handler.format(record))
    logger = logging.getLogger("wiserouter")
    logger.addHandler(handler)
    try:
        generate_latest(registry)
    finally:
        logger.removeHandler(handler)
    (line,) = lines
    assert len(line.splitlines()) == 1
