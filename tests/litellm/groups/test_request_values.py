"""The value of a request: by the key of the caller, and by the client's word only where a setting allows it."""

import json
import secrets
from types import SimpleNamespace

import pytest

from support.groups import fitted
from support.proxies import config_of, in_process, write
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.groups.request_values import CallerValues
from wiserouter_litellm.requests.origin import metadata_of
from wiserouter_litellm.settings.proxy_settings import settings_of

MASTER = f"sk-{secrets.token_hex(16)}"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    fitted().save(folder / "pair.wise")
    terms = {"budget_usd": 1.0, "requests": 1_000, "artifact": str(folder / "pair.wise"), "seed": 0}
    values = {"by": "team", "known": {"team-a": 3.0}}
    groups = {
        "wise": {**terms, "journal": str(folder / "wise.jsonl"), "values": {**values, "claims_up_to": 2.0}},
        "closed": {**terms, "journal": str(folder / "closed.jsonl"), "values": values},
        "plain": {**terms, "journal": str(folder / "plain.jsonl")},
    }
    with in_process(write(config_of(groups), folder), MASTER) as running:
        yield running


@pytest.fixture(autouse=True)
def clean_litellm():
    """Keep the callbacks: the proxy of this module needs them."""


def kwargs(headers=None, team=None, **metadata):
    auth = SimpleNamespace(team_id=team, metadata={}, team_metadata={})
    request = {"proxy_server_request": {"headers": headers or {}}}
    return {**request, "metadata": {"user_api_key_auth": auth, **metadata}}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (kwargs(), None),
        (kwargs(team="gold"), 3.0),
        (kwargs(team="other"), None),
        (kwargs({"x-wiserouter-value": "1.5"}), 1.5),
        (kwargs({"x-wiserouter-value": "9"}), 2.0),
        (kwargs({"x-wiserouter-value": "inf"}), 2.0),
        (kwargs(wiserouter_value=0.5), 0.5),
        (kwargs(requester_metadata={"wiserouter_value": "0.5"}), 0.5),
        (kwargs({"x-wiserouter-value": "9"}, team="gold"), 3.0),
        *((kwargs({"x-wiserouter-value": bad}), None) for bad in ("nan", "much", "-1", "0", "")),
        ({"metadata": {"user_api_key_auth": {"team_id": "gold"}}}, None),
    ],
)
def test_the_key_comes_before_a_claim_and_a_claim_is_capped(given, value):
    assert CallerValues("team", {"gold": 3.0}, 2.0)(given, metadata_of(given)) == value


def test_without_leave_no_claim_is_read():
    values = CallerValues("team", {"gold": 3.0})
    given = kwargs({"x-wiserouter-value": "2"}, wiserouter_value=2.0)
    assert values(given, metadata_of(given)) is None


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({}, "values needs known, or claims_up_to"),
        ({"known": {"gold": 0}}, "greater than or equal to 0.001"),
        ({"known": {"gold": 1e9}}, "less than or equal to 1000"),
        ({"by": "mood", "known": {"gold": 3}}, "match pattern"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values, rule):
    with pytest.raises(SettingsError, match=rule):
        settings_of({"groups": {"wise": {"budget_usd": 5, "requests": 100, "values": values}}})


CLAIM = {"x-wiserouter-value": "50"}


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        ("wise", "sk-team-a-ann", 3.0),
        ("wise", "sk-team-b-eve", 2.0),
        ("closed", "sk-team-a-ann", 3.0),
        ("closed", "sk-team-b-eve", 1.0),
        ("plain", "sk-team-a-ann", 1.0),
    ],
)
def test_a_proxy_reads_values_as_its_settings_permit(client, provider, group, key, value):
    message = {"role": "user", "content": "hello"}
    body = {"model": group, "messages": [message], "metadata": {"wiserouter_value": 50}}
    answered = client.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}", **CLAIM})
    assert answered.status_code == 200, answered.text
    journal = client.callback.groups[group].router.journal
    assert journal.flush()
    assert values_in(journal.path)[-1] == value


def values_in(path):
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [event["value"] for event in events if event["event"] == "decision"]
