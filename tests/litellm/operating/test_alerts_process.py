"""Two workers of a real proxy on one store send one warning, to Slack as LiteLLM does and to a signed webhook."""

import time

import httpx
import pytest

from support.groups import fitted
from support.proxies import config_of, running_proxy, write
from support.stub import Stub, serving
from support.webhooks import receiving
from wiserouter.integration import fresh_id
from wiserouter.operating.budget_warnings import SIGNATURE, is_signed

pytestmark = pytest.mark.slow

CALLS, QUIET_S = 40, 8.0
"""The calls cost at least 24 % of the budget, whichever model each gets."""


def test_one_warning_of_two_workers(tmp_path):
    fitted().save(tmp_path / "pair.wise")
    secret = fresh_id()
    with serving(Stub()) as url, receiving() as slack, receiving() as hook:
        wise = {"budget_usd": 0.02, "requests": 200, "artifact": "./pair.wise", "on_exhausted": "cheapest"}
        config = config_of({"wise": {**wise, "store": f"sqlite:///{tmp_path}/budget.db"}}, url=url)
        webhooks = [{"url": "os.environ/HOOK_URL", "secret": "os.environ/HOOK_SECRET"}]
        alerts = {"thresholds": [0.1], "exhaustion": False, "every_s": 0.5, "webhooks": webhooks}
        config["callback_settings"]["wiserouter"]["alerts"] = alerts
        config["general_settings"]["alerting"] = ["slack"]
        env = {"HOOK_URL": hook.url, "HOOK_SECRET": secret, "SLACK_WEBHOOK_URL": slack.url}
        options = ("--num_workers", "2", "--timeout_worker_healthcheck", "120")
        path, log = write(config, tmp_path), tmp_path / "proxy.log"
        env |= {"DEFAULT_FLUSH_INTERVAL_SECONDS": "1"}
        with running_proxy(path, log, *options, boot_s=300.0, **env) as (base, _, _):
            body = {"model": "wise", "messages": [{"role": "user", "content": "q"}]}
            for _ in range(CALLS):  # a connection each, so that both workers answer
                answer = httpx.post(
                    f"{base}/v1/chat/completions", json=body, headers={"Authorization": "Bearer sk-user-a"}, timeout=30
                )
                assert answer.status_code == 200, answer.text
            hook.wait_for(1, 30.0)
            slack.wait_for(1, 30.0)
            time.sleep(QUIET_S)
    ((headers, signed),) = hook.got
    assert is_signed(signed, headers[SIGNATURE.lower()], secret, time.time())
    (message,) = hook.messages
    assert (message["kind"], message["group"], message["level"]) == ("budget_threshold", "wise", 0.1)
    budget_texts = [one["text"] for one in slack.messages if "has reached 10%" in one["text"]]
    assert len(budget_texts) == 1, slack.messages
