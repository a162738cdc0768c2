"""A proxy in shadow mode: every surface passes as without us, the journal is reported, and scores are taken."""

import json
import secrets

import pytest
import respx
from typer.testing import CliRunner

from support.groups import asked, fitted
from support.providers import URL, answer
from support.proxies import config_of, in_process, write
from wiserouter.cli import app

MASTER = f"sk-{secrets.token_hex(16)}"
HEADERS = {"Authorization": f"Bearer {MASTER}", "content-type": "application/json"}

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def clean_litellm():
    """Keep the callbacks: the proxy of this module needs them."""


def test_a_proxy_in_shadow_mode_reports_what_it_would_have_done(tmp_path):
    fitted("small").save(tmp_path / "pair.wise")
    journal = tmp_path / "decisions.jsonl"
    wise = {
        "budget_usd": 1e-9,
        "every": "1d",
        "limit": "hard",
        "cap_output_tokens": 64,
        "artifact": str(tmp_path / "pair.wise"),
        "mode": "shadow",
        "journal": str(journal),
        "signals": ["truncated"],
    }
    config = config_of({"wise": wise})
    config["litellm_settings"] |= {"disable_aiohttp_transport": True}
    with in_process(write(config, tmp_path), MASTER) as client, respx.mock(assert_all_called=False) as provider:
        provider.route(url__startswith=URL).mock(side_effect=answer)
        message = [{"role": "user", "content": "hello"}]
        bodies = {
            "/v1/chat/completions": {"messages": message, "logit_bias": {"1": 2}, "max_tokens": 900_000},
            "/v1/messages": {"messages": message, "max_tokens": 40},
            "/v1/responses": {"input": "hello"},
        }
        answers = {
            path: client.post(path, json={"model": "wise", **body}, headers=HEADERS) for path, body in bodies.items()
        }
        assert [one.status_code for one in answers.values()] == [200, 200, 200]
        chat = answers["/v1/chat/completions"]
        assert chat.headers["x-wiserouter-would-be"] == "small"
        assert chat.headers["x-wiserouter-model"] in asked(provider)
        rated = client.post(
            "/wiserouter/feedback",
            json={"id": chat.headers["x-litellm-call-id"], "score": 1.0, "source": "judge:a"},
            headers=HEADERS,
        )
        assert rated.status_code == 200
        status = client.get("/wiserouter/status", headers=HEADERS).json()["groups"]["wise"]
        assert (status["spent_usd"], status["decided"]) == (0.0, 0)
    told = CliRunner().invoke(app, ["shadow", "report", str(journal), "--json"])
    assert told.exit_code == 0, told.output
    report = json.loads(told.output)
    assert report["calls"] == 3
    sides = [line for line in map(json.loads, journal.read_text().splitlines()) if line["event"] == "shadow"]
    assert {one["call_id"] for one in sides} == {one.headers["x-litellm-call-id"] for one in answers.values()}
    assert {one["model"]: one["would_be"] for one in report["models"]}["small"] == 1.0
