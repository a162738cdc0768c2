"""Batches of groups without a proxy: allocation, bounds, prices, and the steps that a killed worker leaves undone."""

import io
import json
import time
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace

import litellm
import pytest

from support.batch_stub import GROUP_PRICES, AzureHandler, batch_stub
from support.groups import fitted
from support.providers import cost_usd, deployment
from wiserouter import Budget, Price, Usage
from wiserouter.errors import InvalidInput
from wiserouter.integration import RateCard
from wiserouter_litellm.batches.batch_lines import model_of_first_line, read_lines
from wiserouter_litellm.batches.batch_prices import batch_cost_usd, batch_factor
from wiserouter_litellm.batches.group_batches import GroupBatches
from wiserouter_litellm.batches.kept_files import UnknownBatch
from wiserouter_litellm.errors import BudgetRefused, SettingsError
from wiserouter_litellm.groups.group_setup import open_group
from wiserouter_litellm.settings.proxy_settings import BatchSettings, settings_of

PROMPT = "a question of some length, so that its bytes bound the tokens that the service counts. " * 4


@pytest.fixture
def service():
    with batch_stub() as stub:
        yield stub


def rows(n=20, **body):
    body = {"model": "wise", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 300, **body}
    return [{"custom_id": f"mine-{i}", "method": "POST", "url": "/v1/chat/completions", "body": body} for i in range(n)]


def deployments_at(url, provider="openai", **params):
    found = []
    for name in ("small", "large"):
        batch = dict(
            zip(("input_cost_per_token_batches", "output_cost_per_token_batches"), GROUP_PRICES[name], strict=True)
        )
        model = {"model": f"{provider}/{name}"}
        found.append(deployment(name, url=url, api_key="secret", **{**model, **batch, **params}))
    return found


class Setting:
    """A group, its batches, and a batch service."""

    def __init__(self, folder, service, budget, *, store="memory://", params=None, **settings):
        self.service, self.folder = service, folder
        served = deployments_at(service.url, **(params or {}))
        llms = litellm.Router(model_list=served)
        settings = {"router": fitted(store=store), **settings}
        self.group = open_group("wise", served, budget=budget, **settings)
        self.batches = GroupBatches({"wise": self.group}, BatchSettings(folder=str(folder)), lambda: llms)

    def upload(self, lines):
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        return self.batches.upload(io.BytesIO(content), "ann", "a.jsonl").id

    def create(self, lines):
        return self.batches.create(self.upload(lines), "ann", "key", {}, {})

    def end(self, batch):
        for _ in range(20):
            self.batches.advance_all()
            found = self.batches.batches.find(batch.id, "ann")
            if found.state == "ended":
                return found
        raise AssertionError(found)

    @property
    def status(self):
        return self.group.router.status()


def test_a_batch_has_the_share_of_the_budget_that_as_many_calls_have(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(1_000 * cost_usd("large"), 1_000))
    batch = setting.create(rows())
    assert {job.model for job in batch.jobs} == {"large"}
    assert setting.status.reserved_usd == pytest.approx(20 * cost_usd("large") / 2)  # at batch prices
    ended = setting.end(batch)
    assert (ended.status, ended.completed) == ("completed", 20)
    assert setting.status.spent_usd == pytest.approx(service.ledger_usd, abs=1e-12)
    assert setting.status.reserved_usd == pytest.approx(0.0, abs=1e-12)
    mean = setting.group.router.estimates.cost[0, 1] / setting.group.router.estimates.calls[0, 1]
    assert mean > cost_usd("large")  # plain costs are learned, not those of batches


def test_a_hard_limit_holds_the_worst_case_of_each_line(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(0.2, 40, limit="hard"))
    batch = setting.create(rows())
    held = setting.status.reserved_usd
    assert held <= 0.2
    with pytest.raises(BudgetRefused):
        for _ in count():
            setting.create(rows())
    ended = setting.end(batch)
    assert ended.status == "completed"
    assert 0 < service.ledger_usd <= held


@pytest.mark.parametrize("limit", ["expected", "hard"])
def test_the_first_batch_of_a_group_that_has_prices_only_goes_to_the_cheapest_model(tmp_path, service, limit):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000, limit=limit), router=None)
    batch = setting.create(rows(n=4))
    held = setting.status.reserved_usd
    assert {job.model for job in batch.jobs} == {"openai/small"}
    ended = setting.end(batch)
    assert (ended.status, ended.completed) == ("completed", 4)
    assert setting.status.spent_usd == pytest.approx(service.ledger_usd, abs=1e-12)
    assert limit == "expected" or service.ledger_usd <= held


def test_the_first_batch_of_a_group_that_has_prices_only_keeps_to_a_hard_limit(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(0.001, 40, limit="hard"), router=None)
    with pytest.raises(BudgetRefused):
        setting.create(rows(n=40))
    assert (setting.status.reserved_usd, setting.batches.batches.ids()) == (0.0, [])


def test_a_budget_that_does_not_pay_for_the_cheapest_models_refuses(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(cost_usd("small"), 1_000))
    with pytest.raises(BudgetRefused, match="budget of"):
        setting.create(rows())
    assert setting.status.reserved_usd == 0.0
    assert setting.batches.batches.ids() == []


def test_costs_that_rise_while_a_batch_is_allocated_do_not_refuse_it(tmp_path, service, monkeypatch):
    setting = Setting(tmp_path, service, Budget(1_000 * cost_usd("small") / 4, 1_000))  # below the cheapest models
    router, floors = setting.group.router, []
    allocate = router.allocate

    def rising(texts, budget_usd, **terms):
        for _ in range(40):  # the costs of other calls
            router.estimates.add_cost(0, 0, (1.0 + 0.1 * len(floors)) * cost_usd("small"))
        floors.append(budget_usd)
        return allocate(texts, budget_usd, **terms)

    monkeypatch.setattr(router, "allocate", rising)
    setting.create(rows(n=5))
    assert len(floors) >= 3


def test_a_worker_that_was_killed_before_it_answered_leaves_nothing(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    batch = setting.create(rows())
    batch.state = "planned"  # as it stands until all costs are reserved
    setting.batches.batches.write(batch)
    with pytest.raises(UnknownBatch):
        setting.batches.batches.find(batch.id, "ann")
    setting.batches.advance_all()
    assert setting.batches.batches.ids() == []
    assert (setting.status.reserved_usd, service.batches) == (0.0, {})


def test_a_reservation_that_fails_releases_the_others(tmp_path, service, monkeypatch):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    reserve, calls = setting.group.router.reserve_decision, count()

    def failing(decision):
        if next(calls) == 10:
            raise InvalidInput("the tenth fails")
        reserve(decision)

    monkeypatch.setattr(setting.group.router, "reserve_decision", failing)
    with pytest.raises(InvalidInput, match="the tenth"):
        setting.create(rows())
    assert (setting.status.reserved_usd, setting.batches.batches.ids()) == (0.0, [])


def test_a_batch_whose_files_cannot_be_written_leaves_nothing(tmp_path, service, monkeypatch):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))

    def failing(*_):
        raise InvalidInput("a request must fit")

    monkeypatch.setattr("wiserouter_litellm.batches.group_batches.write_files", failing)
    with pytest.raises(InvalidInput, match="must fit"):
        setting.create(rows())
    assert (setting.status.reserved_usd, setting.batches.batches.ids()) == (0.0, [])


def test_results_are_settled_once_however_often_a_batch_is_moved_on(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    batch = setting.end(setting.create(rows()))
    spent = setting.status.spent_usd
    batch.state, batch.status = "accepted", ""  # as if the worker was killed before it marked the end
    setting.batches.batches.write(batch)
    setting.end(batch)
    assert setting.status.spent_usd == spent == pytest.approx(service.ledger_usd, abs=1e-12)


def test_batches_go_to_azure_by_its_routes(tmp_path):
    with batch_stub(AzureHandler, fault=lambda at, _: "errored" if at == 1 else "", polls=2) as azure:
        azure.url = azure.url.removesuffix("/v1")
        setting = Setting(
            tmp_path, azure, Budget(10.0, 1_000), params={"provider": "azure", "api_version": "2024-10-21"}
        )
        ended = setting.end(setting.create(rows()))
    (content, *_) = azure.files.values()
    assert {json.loads(line)["url"] for line in content.decode().splitlines()} == {"/chat/completions"}
    assert {json.loads(line)["body"]["model"] for line in content.decode().splitlines()} <= {"small", "large"}
    assert (ended.status, ended.completed + ended.failed) == ("completed", 20)
    assert ended.failed >= 1
    assert setting.status.spent_usd == pytest.approx(azure.ledger_usd, abs=1e-12)
    assert setting.status.in_flight == 0


def test_a_service_that_is_away_is_asked_again(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    url, gone = service.url, "http://127.0.0.1:9/v1"
    rows_of = setting.batches._litellm_router().model_list
    for row in rows_of:
        row["litellm_params"]["api_base"] = gone
    batch = setting.create(rows())
    setting.batches.advance_all()
    assert setting.batches.batches.find(batch.id, "ann").shown_status() == "validating"
    assert setting.group.faults["batches"] > 0
    for row in rows_of:
        row["litellm_params"]["api_base"] = url
    assert setting.end(batch).status == "completed"


def test_lines_without_a_result_in_a_complete_job_count_as_spent(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(1_000 * cost_usd("small"), 1_000))
    batch = setting.create(rows(n=4))
    finish = service.finish

    def losing(job, fault):
        finish(job, fault)
        service.files[job["output_file_id"]] = service.files[job["output_file_id"]].split(b"\n", 1)[0]

    service.finish = losing
    ended = setting.end(batch)
    assert ended.failed == 4 - ended.completed > 0
    assert setting.status.presumed == ended.failed
    assert setting.status.in_flight == 0


def altered(service, line, alter):
    """Let a service alter a line of each file of answers, before it is fetched."""
    finish = service.finish

    def altering(job, fault):
        finish(job, fault)
        given = service.files[job["output_file_id"]].splitlines()
        given[line] = alter(given[line])
        service.files[job["output_file_id"]] = b"\n".join(given)

    service.finish = altering


def output(setting, file_id):
    return (
        [json.loads(line) for line in setting.batches.files.path(file_id).read_text().splitlines()] if file_id else []
    )


def test_half_an_emoji_in_an_answer_and_in_a_custom_id_is_written_as_it_came(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    altered(service, 0, lambda line: line.replace(b'"answer"', b'"half \\ud83d"'))
    first, second = rows(n=2)
    ended = setting.end(setting.create([{**first, "custom_id": "a\ud83d"}, second]))
    found = output(setting, ended.output_file_id)
    assert [line["custom_id"] for line in found] == ["a\ud83d", "mine-1"]
    assert found[0]["response"]["body"]["choices"][0]["message"]["content"] == "half \ud83d"
    assert setting.status.spent_usd == pytest.approx(service.ledger_usd, abs=1e-12)


@pytest.mark.parametrize(
    "alter",
    [
        lambda line: b"\xff",
        lambda line: b"[" * 100_000,
        lambda line: line[:40],
        lambda line: b"3",
        lambda line: line.replace(b'"custom_id": ', b'"custom_id": 3, "was": '),
        lambda line: line.replace(b'"response": {', b'"response": "lost", "was": {'),
        lambda line: line.replace(b'"response": {', b'"was": {').replace(b'"error"', b'"no"'),
    ],
)
def test_a_result_that_cannot_be_read_is_the_error_of_its_line(tmp_path, service, alter):
    setting = Setting(tmp_path, service, Budget(1_000 * cost_usd("large"), 1_000))
    altered(service, 1, alter)
    ended = setting.end(setting.create(rows(n=3)))
    assert (ended.status, ended.completed, ended.failed) == ("completed", 2, 1)
    (error,) = output(setting, ended.error_file_id)
    assert (error["custom_id"], error["error"]["code"]) == ("mine-1", "unreadable_result")
    assert (setting.status.presumed, setting.status.in_flight) == (1, 0)


@pytest.mark.parametrize("tokens", [b'"many"', b"-1", b"1" + b"0" * 400])
def test_an_answer_whose_tokens_have_no_price_is_kept_and_counts_as_expected(tmp_path, service, tokens):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    altered(service, 1, lambda line: line.replace(b'"prompt_tokens": ', b'"prompt_tokens": %b, "was": ' % tokens))
    ended = setting.end(setting.create(rows(n=3)))
    assert (ended.status, ended.completed, setting.status.presumed) == ("completed", 3, 1)
    assert setting.group.faults["unpriced_calls"] == 1


def test_lines_of_a_cancelled_job_whose_results_cannot_all_be_read_count_as_spent(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(1_000 * cost_usd("large"), 1_000))
    altered(service, 1, lambda line: line[:40])
    service.held = True
    batch = setting.create(rows(n=4))
    setting.batches.advance_all()
    setting.batches.progress.cancel(batch.id)
    ended = setting.end(batch)
    assert (ended.status, ended.completed) == ("cancelled", 1)
    assert setting.status.presumed == 1


def test_the_limit_of_a_group_is_sent_and_the_callers_own_comes_first(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000, limit="hard"), cap_output_tokens=77)
    first, second = rows(n=2)
    own = {name: value for name, value in first["body"].items() if name != "max_tokens"}
    given = [{**first, "body": own}, {**second, "body": {**own, "max_tokens": 50, "temperature": 0.5}}]
    batch = setting.create(given)
    sent = [
        json.loads(line)["body"]
        for job in batch.jobs
        for line in (tmp_path / "batches" / batch.id / job.file).read_text().splitlines()
    ]
    limits = sorted((one.get("max_tokens"), one.get("max_completion_tokens")) for one in sent if "temperature" in one)
    assert limits == [(50, None)]
    assert next(one for one in sent if "temperature" not in one)["max_completion_tokens"] == 77
    assert {one["model"] for one in sent} <= {"small", "large"}


def test_a_group_whose_providers_have_no_such_files_is_refused(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    for row in setting.batches._litellm_router().model_list:
        row["litellm_params"]["custom_llm_provider"] = "anthropic"
        row["litellm_params"]["model"] = row["litellm_params"]["model"].removeprefix("openai/")
    with pytest.raises(InvalidInput, match="no deployment that takes batches"):
        setting.create(rows())


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ({"custom_id": "mine-0"}, "unique"),
        ({"url": "/v1/embeddings"}, "/v1/chat/completions"),
        ({"custom_id": None}, "custom_id"),
        ({"body": {"model": "other", "messages": [{"role": "user", "content": "a"}]}}, "one model"),
        ({"body": {"model": "wise", "messages": []}}, "messages"),
        ({"body": {"model": "wise", "messages": [{}], "stream": True}}, "stream"),
    ],
)
def test_a_file_that_is_no_batch_is_refused(tmp_path, service, line, rule):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    first, second = rows(n=2)
    with pytest.raises(InvalidInput, match=rule):
        setting.upload([first, {**second, **line}])
    assert list((tmp_path / "files").iterdir()) == []


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b'{"custom_id": "\xff"}', "line 2 must be UTF-8, got the byte 0xff"),
        (b"[" * 100_000, "line 2 must be JSON"),
        (b'{"temperature": NaN}', "line 2 must be JSON: numbers must be finite, got NaN"),
        (b'{"temperature": -Infinity}', "got -Infinity"),
        (b'{"temperature": 1e999}', "got 1e999"),
    ],
)
def test_a_line_that_is_no_json_is_refused_with_its_number_and_leaves_no_file(tmp_path, service, line, rule):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    content = json.dumps(rows(n=1)[0]).encode() + b"\n" + line + b"\n"
    with pytest.raises(InvalidInput, match=rule):
        setting.batches.upload(io.BytesIO(content), "ann", "a.jsonl")
    assert list((tmp_path / "files").iterdir()) == []


def test_a_check_that_is_interrupted_leaves_no_file(tmp_path, service, monkeypatch):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))

    def interrupted(*_):
        raise MemoryError

    monkeypatch.setattr("wiserouter_litellm.batches.group_batches.check_lines", interrupted)
    with pytest.raises(MemoryError):
        setting.upload(rows())
    assert list((tmp_path / "files").iterdir()) == []


def test_half_an_emoji_in_a_prompt_is_sent_as_it_came(tmp_path, service):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000, limit="hard"))
    prompt = "half \ud83d"
    setting.end(setting.create(rows(n=1, messages=[{"role": "user", "content": prompt}])))
    sent = json.loads(next(iter(service.files.values())))
    assert sent["body"]["messages"][0]["content"] == prompt


def test_the_model_of_the_first_line_and_files_without_one():
    assert model_of_first_line(io.BytesIO(b'\xef\xbb\xbf{"body": {"model": "wise"}}\n{')) == "wise"
    for content in (b"", b"[]", b"{", b'{"body": 3}', b"\xff\xfe", b"[" * 100_000):
        assert model_of_first_line(io.BytesIO(content)) == ""


def test_an_empty_file_is_no_batch(tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n\n")
    with pytest.raises(InvalidInput, match="at least one line"):
        list(read_lines(path))


def test_files_and_batches_are_their_owners_alone(tmp_path, service):
    setting = Setting(tmp_path / "kept", service, Budget(10.0, 1_000))
    setting.create(rows(n=2))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "kept").iterdir()}
    assert modes == {"files": 0o700, "batches": 0o700}


def test_old_files_and_batches_are_deleted(tmp_path, service, monkeypatch):
    setting = Setting(tmp_path, service, Budget(10.0, 1_000))
    batch = setting.end(setting.create(rows(n=2)))
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 31 * 86_400.0)
    setting.batches.advance_all()
    assert setting.batches.batches.ids() == []
    with pytest.raises(UnknownBatch):
        setting.batches.files.find(batch.output_file_id, "ann")


def test_prices_of_batches():
    usage = Usage(1_000, 100)
    card = RateCard(Price(2e-6, 8e-6), (), "map", batch_price=Price(1e-6, 6e-6))
    assert batch_factor(card, 1.0) == pytest.approx(0.75)
    assert batch_cost_usd(card, usage, 1.0) == pytest.approx(1.6e-3)
    plain = RateCard(Price(2e-6, 8e-6), (), "map")
    assert (batch_factor(plain, 0.5), batch_cost_usd(plain, usage, 0.5)) == (0.5, pytest.approx(1.4e-3))
    long = RateCard(
        Price(2e-6, 8e-6), (), "map", long_prompt_prices=((500, Price(4e-6, 8e-6)),), batch_price=Price(1e-6, 4e-6)
    )
    assert batch_cost_usd(long, usage, 1.0) == pytest.approx(2.4e-3)
    assert batch_factor(RateCard(Price(0.0, 8e-6), (), "map", batch_price=Price(1e-6, 4e-6)), 1.0) == float("inf")


def test_decisions_are_kept_until_their_batch_has_ended():
    settings = {"groups": {"wise": {"budget_usd": 1, "requests": 1, "feedback_ttl_s": 3_600}}}
    with pytest.raises(SettingsError, match="feedback_ttl_s must be at least 172800"):
        settings_of({**settings, "batches": {"folder": "batches"}})
    assert settings_of(settings).batches is None


@pytest.mark.parametrize("guarded", [False, True])
def test_keys_with_guardrails_send_no_batches(guarded, monkeypatch):
    from litellm.proxy._types import UserAPIKeyAuth

    from wiserouter_litellm.batches import routes

    seen = []

    class Logging:
        def has_pre_call_guardrails(self, metadata):
            seen.append(metadata)
            return guarded

    monkeypatch.setattr(routes, "_proxy", lambda: SimpleNamespace(proxy_logging_obj=Logging()))
    caller = UserAPIKeyAuth(api_key="sk-a", metadata={"guardrails": ["pii"]}, team_metadata={"a": 1})
    with pytest.raises(InvalidInput, match="guardrails") if guarded else nullcontext():
        routes._check_unguarded(caller)
    assert seen == [{"guardrails": ["pii"], "a": 1}]
