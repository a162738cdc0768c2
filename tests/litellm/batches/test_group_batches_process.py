"""Batches of groups through a real proxy: the OpenAI client, a batch service with a ledger of its own, and kill -9."""

import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest

from support.batch_stub import GROUP_PRICES, batch_stub
from support.groups import fitted
from support.providers import cost_usd
from support.proxies import config_of, running_proxy, write

pytestmark = pytest.mark.slow

N = 40
PROMPT = "a question of some length, so that its bytes bound the tokens that the service counts. " * 4


def config(folder: Path, url: str) -> Path:
    fitted().save(folder / "pair.wise")
    store = {"artifact": "./pair.wise", "seed": 0, "requests": 1_000}
    groups = {
        "wise": {**store, "budget_usd": 1_000 * cost_usd("small"), "store": f"sqlite:///{folder / 'wise.db'}"},
        "tight": {**store, "budget_usd": 0.2, "limit": "hard", "store": f"sqlite:///{folder / 'tight.db'}"},
    }
    found = config_of(groups, url=url)
    for row in found["model_list"]:
        model = row["litellm_params"]["model"].removeprefix("openai/")
        row["litellm_params"]["api_key"] = "secret"
        for side, usd in zip(("input", "output"), GROUP_PRICES.get(model, (1e-6, 2e-6)), strict=True):
            row["litellm_params"][f"{side}_cost_per_token_batches"] = usd
    found["callback_settings"]["wiserouter"]["batches"] = {"folder": str(folder / "batches"), "poll_s": 0.2}
    return write(found, folder)


@contextmanager
def proxied(folder: Path, url: str):
    with running_proxy(config(folder, url), folder / f"proxy-{time.monotonic()}.log") as (base, key, pid):
        yield base, key, pid


@pytest.fixture(scope="module")
def service():
    with batch_stub() as stub:
        yield stub


@pytest.fixture(scope="module")
def proxy(tmp_path_factory, service):
    with proxied(tmp_path_factory.mktemp("batches"), service.url) as running:
        yield running


@pytest.fixture(autouse=True)
def quiet(service):
    yield
    service.fault, service.held, service.refuses, service.drops_created = (lambda at, name: ""), False, False, False


def client_of(proxy, key="sk-user-a"):
    return openai.OpenAI(base_url=f"{proxy[0]}/v1", api_key=key, max_retries=0, timeout=60)


def status(proxy, group="wise"):
    answer = httpx.get(f"{proxy[0]}/wiserouter/status", headers={"Authorization": f"Bearer {proxy[1]}"}, timeout=30)
    return answer.json()["groups"][group]


def lines(model="wise", n=N, **body):
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 300, **body}
    return [
        {"custom_id": f"mine-{i}", "method": "POST", "url": "/v1/chat/completions", "body": {"model": model, **body}}
        for i in range(n)
    ]


def upload(client, rows):
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return client.files.create(file=("requests.jsonl", content), purpose="batch")


def created(client, rows, **terms):
    file = upload(client, rows)
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **terms
    )


def ended(client, batch, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        assert time.monotonic() < deadline, batch
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    return batch


def status_of(client, group):
    """Return the state in which a batch ends; "refused" where the budget does not bear it."""
    try:
        return ended(client, created(client, lines(group)), 120).status
    except openai.RateLimitError:
        return "refused"


def rows_of(client, file_id):
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


def test_a_batch_is_split_answered_merged_in_order_and_charged(proxy, service):
    client, before, ledger = client_of(proxy), status(proxy), service.ledger_usd
    shuffled = lines()
    random.Random(0).shuffle(shuffled)
    batch = created(client, shuffled, metadata={"night": "one"})
    assert (batch.object, batch.metadata, batch.request_counts.total) == ("batch", {"night": "one"}, N)
    batch = ended(client, batch)
    assert (batch.status, batch.error_file_id) == ("completed", None)
    assert (batch.request_counts.completed, batch.request_counts.failed) == (N, 0)
    rows = rows_of(client, batch.output_file_id)
    assert [row["custom_id"] for row in rows] == [row["custom_id"] for row in shuffled]
    assert {row["response"]["body"]["model"] for row in rows} == {"small-2026", "large-2026"}  # the budget buys a mix
    after = status(proxy)
    assert after["in_flight"] == before["in_flight"] == 0
    assert after["charged"] == before["charged"] + N
    assert after["spent_usd"] - before["spent_usd"] == pytest.approx(service.ledger_usd - ledger, abs=1e-9)


def test_the_lines_that_failed_are_released_and_listed(proxy, service):
    service.fault = lambda at, name: ("errored", "expired", "", "")[at % 4]
    client, before, ledger = client_of(proxy), status(proxy), service.ledger_usd
    batch = ended(client, created(client, lines()))
    answered, failed = rows_of(client, batch.output_file_id), rows_of(client, batch.error_file_id)
    assert len(answered) + len(failed) == N == batch.request_counts.total
    assert batch.request_counts.failed == len(failed) >= N // 2
    names = [row["custom_id"] for row in failed]
    assert names == sorted(names, key=lambda name: int(name.removeprefix("mine-")))
    assert {(row["error"] or {}).get("code") for row in failed} == {None, "batch_expired"}
    after = status(proxy)
    assert after["spent_usd"] - before["spent_usd"] == pytest.approx(service.ledger_usd - ledger, abs=1e-9)
    assert (after["in_flight"], after["charged"]) == (0, before["charged"] + len(answered))


def test_a_refused_file_costs_nothing(proxy, service):
    service.refuses = True
    client, before = client_of(proxy), status(proxy)
    batch = ended(client, created(client, lines(n=5)))
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert "bad file" in batch.errors.data[0].message
    assert len(rows_of(client, batch.error_file_id)) == 5
    assert status(proxy)["spent_usd"] == before["spent_usd"]


def test_a_cancelled_batch_is_charged_for_what_was_answered(proxy, service):
    service.held = True
    client, before, ledger = client_of(proxy), status(proxy), service.ledger_usd
    batch = created(client, lines())
    deadline = time.monotonic() + 30
    while client.batches.retrieve(batch.id).status != "in_progress":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = ended(client, batch)
    assert batch.status == "cancelled"
    assert 0 < batch.request_counts.completed < N
    after = status(proxy)
    assert after["spent_usd"] - before["spent_usd"] == pytest.approx(service.ledger_usd - ledger, abs=1e-9)
    assert after["in_flight"] == 0


def test_files_and_batches_of_another_key_are_not_found(proxy):
    ann, ben, admin = client_of(proxy), client_of(proxy, "sk-user-b"), client_of(proxy, proxy[1])
    file = upload(ann, lines(n=3))
    with pytest.raises(openai.NotFoundError):
        ben.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    batch = ended(ann, created(ann, lines(n=3)))
    for theirs in (ben.batches.retrieve, ben.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            theirs(batch.id)
    for theirs in (ben.files.content, ben.files.retrieve, ben.files.delete):
        with pytest.raises(openai.NotFoundError):
            theirs(batch.output_file_id)
    assert admin.batches.retrieve(batch.id).status == "completed"
    assert ann.files.retrieve(file.id).filename == "requests.jsonl"
    ann.files.delete(file.id)
    with pytest.raises(openai.NotFoundError):
        ann.files.content(file.id)


def test_an_answer_can_be_rated_by_its_decision(proxy):
    client = client_of(proxy)
    batch = ended(client, created(client, lines(n=2)))
    body = {"id": rows_of(client, batch.output_file_id)[0]["wiserouter"]["decision"], "score": 0.5}
    url = f"{proxy[0]}/wiserouter/feedback"
    codes = [
        httpx.post(url, json=body, headers={"Authorization": f"Bearer sk-user-{name}"}, timeout=30).status_code
        for name in "ab"
    ]
    assert codes == [200, 404]


def test_a_hard_budget_is_never_exceeded(proxy, service):
    client, ledger = client_of(proxy), service.ledger_usd
    batches, refused = [], None
    while refused is None:
        try:
            batches.append(created(client, lines("tight", max_tokens=300)))
        except openai.RateLimitError as error:
            refused = error
    assert refused.type == "budget_exceeded"
    assert batches
    for batch in batches:
        assert ended(client, batch).status == "completed"
    tight = status(proxy, "tight")
    assert tight["spent_usd"] == pytest.approx(service.ledger_usd - ledger, abs=1e-9)
    assert 0 < tight["spent_usd"] <= tight["amount_usd"]
    assert tight["reserved_usd"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"model": "tight", "web_search_options": {}}, "web_search_options"),
        ({"model": "tight", "max_tokens": "many"}, "max_tokens"),
        ({"stream": True}, "stream"),
        ({"messages": "hi"}, "messages"),
    ],
)
def test_a_line_that_cannot_be_sent_is_refused_by_name(proxy, row, rule):
    with pytest.raises(openai.BadRequestError, match=rule):
        created(client_of(proxy), lines(n=2, **row))


def test_files_of_other_models_are_litellms(proxy, service):
    n_files = len(service.files)
    with pytest.raises(openai.APIStatusError) as refused:  # it has no key for OpenAI
        upload(client_of(proxy), lines("another-model", n=2))
    assert "wiserouter" not in str(refused.value)
    assert len(service.files) == n_files
    with pytest.raises(openai.APIStatusError):
        client_of(proxy).batches.retrieve("batch_of_another")


def test_a_proxy_that_is_killed_goes_on(tmp_path, service):
    service.held = service.drops_created = True
    ledger = service.ledger_usd
    with proxied(tmp_path, service.url) as proxy:
        batch = created(client_of(proxy), lines())
        deadline = time.monotonic() + 30
        while not service.batches or next(reversed(service.batches.values()))["status"] != "in_progress":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(proxy[2], signal.SIGKILL)
    n_batches = len(service.batches)
    service.held = False
    with proxied(tmp_path, service.url) as proxy:
        done = ended(client_of(proxy), client_of(proxy).batches.retrieve(batch.id))
        assert (done.status, done.request_counts.completed) == ("completed", N)
        assert len(service.batches) <= n_batches + 1  # the other model's, where it had not been sent
        after = status(proxy)
        assert after["spent_usd"] == pytest.approx(service.ledger_usd - ledger, abs=1e-9)
        assert (after["charged"], after["in_flight"]) == (N, 0)


def test_two_workers_share_batches_and_budgets(tmp_path, service):
    ledger = service.ledger_usd
    workers = ("--num_workers", "2", "--timeout_worker_healthcheck", "120")
    with running_proxy(config(tmp_path, service.url), tmp_path / "proxy.log", *workers, boot_s=300.0) as proxy:
        client = client_of(proxy)
        with ThreadPoolExecutor(6) as pool:
            done = list(pool.map(lambda i: status_of(client, ("wise", "tight")[i % 2]), range(12)))
        assert set(done[::2]) == {"completed"}
        assert set(done[1::2]) <= {"completed", "refused"}  # the worst cases of six do not always fit at a time

        def spent():
            return status(proxy)["spent_usd"] + status(proxy, "tight")["spent_usd"]

        deadline = time.monotonic() + 20
        while spent() != pytest.approx(service.ledger_usd - ledger, abs=1e-9):
            assert time.monotonic() < deadline, (spent(), service.ledger_usd - ledger)
            time.sleep(0.5)
        tight = status(proxy, "tight")
        assert tight["spent_usd"] <= tight["amount_usd"]
