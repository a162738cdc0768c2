"""Start the proxy of `config.yaml`, send 200 requests with the OpenAI client, rate answers, print the status.

Runs offline: the models of the configuration are mocked. Needs `pip install 'wiserouter[litellm]' 'litellm[proxy]'`.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import openai

CONFIG = Path(__file__).with_name("config.yaml")
BOOT_S = 120


def main() -> None:
    """Run the proxy for as long as the requests take."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base, key = f"http://127.0.0.1:{port}", f"sk-{secrets.token_hex(16)}"
    environment = {**os.environ, "LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    litellm = Path(sys.executable).with_name("litellm")
    command = [litellm, "--config", CONFIG, "--host", "127.0.0.1", "--port", str(port)]
    with tempfile.TemporaryFile("w+") as said:
        proxy = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)
        try:
            wait_for(f"{base}/health/liveliness", proxy)
            use(base, key)
        except SystemExit:
            said.seek(0)
            print(said.read()[-4_000:], file=sys.stderr)
            raise
        finally:
            proxy.send_signal(signal.SIGTERM)
            proxy.wait(30)


def use(base: str, key: str) -> None:
    """Send requests and feedback, and print the status of the budget."""
    client = openai.OpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0)
    auth = {"Authorization": f"Bearer {key}"}
    served: Counter[str] = Counter()
    for i in range(200):
        messages = [{"role": "user", "content": f"question {i}"}]
        answer = client.chat.completions.with_raw_response.create(model="wise", messages=messages)
        model = answer.headers["x-wiserouter-model"]
        served[model] += 1
        if i % 2:  # users rate some of the answers
            body = {"id": answer.headers["x-litellm-call-id"], "score": 0.9 if model == "large" else 0.6}
            httpx.post(f"{base}/wiserouter/feedback", json=body, headers=auth).raise_for_status()
    time.sleep(1)  # LiteLLM reports the last costs in the background
    status = httpx.get(f"{base}/wiserouter/status", headers=auth).json()["groups"]["wise"]
    print(f"served {dict(served)}")
    print(f"spent {status['spent_usd']:.5f} of {status['amount_usd']} USD, {status['in_flight']} calls in flight")
    for name, model in status["models"].items():
        rated = "" if model["mean_reward"] is None else f", mean reward {model['mean_reward']:.2f}"
        print(f"{name}: {model['calls']} calls{rated}")
    assert status["spent_usd"] <= status["amount_usd"]


def wait_for(url: str, proxy: subprocess.Popen) -> None:
    """Wait until the proxy answers."""
    deadline = time.monotonic() + BOOT_S
    while time.monotonic() < deadline:
        if proxy.poll() is not None:
            sys.exit(f"the proxy ended with {proxy.returncode}")
        try:
            if httpx.get(url, timeout=2).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    sys.exit(f"the proxy did not answer within {BOOT_S} s")


main()
