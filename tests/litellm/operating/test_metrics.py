"""The kinds of faults in the metrics are those that the adapter counts; without a client there are no metrics."""

import re
import sys
from pathlib import Path

import pytest
from fastapi import HTTPException
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth

import wiserouter_litellm
from wiserouter_litellm.operating.metrics import FAULTS
from wiserouter_litellm.operating.proxy_routes import metrics

SOURCES = Path(wiserouter_litellm.__file__).parent.rglob("*.py")
DEPLOY = Path(__file__).parents[3] / "docs" / "deploy"
OPERATING = DEPLOY.with_name("operating.md")
KIND = re.compile(r"""\.(?:fault\(\s*|faults\[)"([a-z_]+)\"""")
CONDITIONAL = re.compile(r"""\.fault\("([a-z_]+)" if .+? else "([a-z_]+)\"""")


def test_every_kind_of_fault_is_shown_from_the_start():
    kinds = {"encoder"}  # counted by the lookup of contexts
    for path in SOURCES:
        text = path.read_text()
        kinds |= set(KIND.findall(text)) | {kind for pair in CONDITIONAL.findall(text) for kind in pair}
    assert kinds == set(FAULTS)


@pytest.mark.parametrize("kind", FAULTS)
def test_every_kind_of_fault_is_described_for_those_who_operate_the_proxy(kind):
    assert f"`{kind}`" in OPERATING.read_text(encoding="utf-8").partition("### Calls are not counted")[2]


def test_the_faults_that_an_alert_names_are_those_of_its_table():
    for file in ("prometheus/rules.yaml", "kubernetes-monitoring.yaml"):
        rule = (DEPLOY / file).read_text(encoding="utf-8").partition("alert: WiseRouterFaults")[2]
        named = set(re.search(r'fault=~"([a-z_|]+)"', rule)[1].split("|"))
        table = OPERATING.read_text(encoding="utf-8").partition("`WiseRouterFaults`")[2].partition("\n\nCounted")[0]
        assert named == set(re.findall(r"^\| `([a-z_]+)`", table, re.M))


def test_the_route_is_not_found_where_prometheus_client_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(HTTPException, match=r"pip install 'wiserouter\[metrics\]'") as caught:
        metrics(UserAPIKeyAuth(user_role=LitellmUserRoles.PROXY_ADMIN))
    assert caught.value.status_code == 404
