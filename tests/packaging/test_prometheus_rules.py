"""Rules and board: promtool takes the rules, each alert is tested and has its section, and each metric exists."""

import itertools
import json
import re
import subprocess

import pytest
from prometheus_client import CollectorRegistry

from support.prometheus import BOARD, RULES, needs_promtool, panels
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.operating.account_gauges import _OF_ROUTER, _OF_SCOPE, _OF_WINDOW, _TIMES
from wiserouter.operating.metrics import Metrics

yaml = pytest.importorskip("yaml")

FOLDER = RULES.parent
OPERATING = FOLDER.parents[1] / "operating.md"
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
RECORDED = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
TESTS = yaml.safe_load((FOLDER / "rules.test.yaml").read_text())["tests"]
METRIC = re.compile(r"\bwiserouter[_:]\w+")


def promtool(*arguments):
    command = ["promtool", *arguments]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_promtool_takes_the_rules():
    assert "rules found" in promtool("check", "rules", "rules.yaml")


@needs_promtool
@pytest.mark.slow
def test_the_tests_of_the_rules_pass():
    assert "SUCCESS" in promtool("test", "rules", "rules.test.yaml")


def test_each_alert_fires_in_a_test_and_is_quiet_on_healthy_data():
    healthy, *others = TESTS
    assert "healthy" in healthy["name"]
    assert not any("exp_alerts" in check for check in healthy["alert_rule_test"])
    assert {check["alertname"] for check in healthy["alert_rule_test"]} == ALERTS.keys()
    fired = {check["alertname"] for test in others for check in test["alert_rule_test"] if "exp_alerts" in check}
    assert fired == ALERTS.keys()


def shown_metrics():
    """Return the names of all samples that the collectors of a process can show."""
    router = WiseRouter([Model("small", Price(1e-7, 4e-7))], seed=0)
    router.start(Budget(1.0, 10))
    registry = CollectorRegistry()
    Metrics(registry).watch(router)
    counted = {name for collector in registry._collector_to_names.values() for name in collector}
    return counted | set(_OF_ROUTER | _OF_SCOPE | _OF_WINDOW | _TIMES)


def test_every_metric_of_the_rules_is_one_that_we_show():
    named = {name for group in GROUPS for rule in group["rules"] for name in METRIC.findall(rule["expr"])}
    assert named <= shown_metrics() | RECORDED


def test_every_metric_of_the_board_is_one_that_we_show():
    assert set(METRIC.findall(BOARD.read_text())) <= shown_metrics() | RECORDED


def test_the_panels_of_the_board_lie_side_by_side():
    cells = [
        (panel["gridPos"]["x"] + right, panel["gridPos"]["y"] + down)
        for panel in panels()
        for right, down in itertools.product(range(panel["gridPos"]["w"]), range(panel["gridPos"]["h"]))
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_the_board_names_no_source_of_data_of_its_own():
    board = json.loads(BOARD.read_text())
    variables = {one["name"] for one in board["templating"]["list"]}
    assert variables == {"datasource", "group", "scope"}
    for panel in panels():
        for query in panel.get("targets", ()):
            assert query["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert set(re.findall(r"\$(\w+)", query["expr"])) <= variables | {"__rate_interval"}


def headings():
    """Return the anchors of the page, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", OPERATING.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_names_its_section(name):
    page, _, anchor = ALERTS[name]["annotations"]["runbook"].partition("#")
    assert page == "docs/operating.md"
    assert anchor in headings()
    assert f"`{name}`" in OPERATING.read_text()
