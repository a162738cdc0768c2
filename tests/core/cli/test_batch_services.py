"""`wiserouter batch submit` and `poll` at the services of all providers, each of which bills what it answers."""

import errno
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from support.batch_routers import MODELS, wiserouter
from support.batch_stub import BatchStub, batch_stub
from support.provider_batch_stubs import AnthropicHandler, GeminiHandler, provider_stub
from wiserouter.cli import alone, app
from wiserouter.cli.batch import send
from wiserouter.errors import InvalidInput, WiseRouterError

HANDLERS = {"ANTHROPIC": AnthropicHandler, "GEMINI": GeminiHandler}
MODEL_OF = {"ANTHROPIC": MODELS[1], "GEMINI": MODELS[2]}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("OPENAI", *HANDLERS):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)


def at(monkeypatch, name, url):
    """Let commands send the files of a provider to an address."""
    monkeypatch.setenv(f"{name}_API_KEY", "secret")
    monkeypatch.setenv(f"{name}_BASE_URL", url)


def looked_at(url):
    """Return what a service answers."""
    with urlopen(url) as answer:
        return json.loads(answer.read())


def spent(folder):
    return wiserouter("report", folder)["spent_usd"]


def test_a_service_is_sent_each_file_once_and_billed_what_it_bills(begun, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    folder, _ = begun(40, 1.0, models=MODELS[:1])
    with batch_stub(fault=lambda at, name: "errored" if at % 8 == 0 else "", polls=2, drops_created=True) as stub:
        with pytest.raises((OSError, InvalidInput)):  # the batch is made, but its id is lost
            wiserouter("submit", folder, "--url", stub.url)
        for _ in range(2):
            jobs = wiserouter("submit", folder, "--url", stub.url)["jobs"]
            assert [one["batch_id"] for one in jobs] == ["batch_0"]
        assert wiserouter("poll", folder, "--url", stub.url)["jobs"][0]["status"] == "in_progress"
        assert wiserouter("poll", folder, "--url", stub.url, "--wait", 0.01)["jobs"][0]["status"] == "completed"
        first_usd = stub.ledger_usd
        assert wiserouter("report", folder)["spent_usd"] == pytest.approx(first_usd, abs=1e-9)
        stub.fault = lambda at, name: ""
        assert sum(one["requests"] for one in wiserouter("retry", folder)["files"]) == 5
        wiserouter("submit", folder, "--url", stub.url)
        for _ in range(2):
            wiserouter("poll", folder, "--url", stub.url, "--wait", 0.01)
        assert stub.ledger_usd > first_usd
        found = wiserouter("report", folder)
        assert found["spent_usd"] == pytest.approx(stub.ledger_usd, abs=1e-9)
        assert (found["answered"], found["open_usd"], len(stub.batches)) == (40, 0.0, 2)


def test_two_runs_at_once_send_each_file_once(begun, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    folder, _ = begun(10, 1.0, models=MODELS[:1])
    meet, waits, keep, locked = threading.Barrier(2), threading.Event(), BatchStub.keep, alone._locked

    def tried(file):
        if found := locked(file):
            return found
        waits.set()
        return found

    def slow(stub, content):
        waits.wait(30)  # the other run begins before this file is known to be sent
        return keep(stub, content)

    def run(url):
        meet.wait(30)
        send(folder, url, as_json=True)

    monkeypatch.setattr(alone, "_locked", tried)
    monkeypatch.setattr(BatchStub, "keep", slow)
    with batch_stub() as stub, ThreadPoolExecutor(2) as both:
        list(both.map(run, [stub.url] * 2))
        assert len(stub.batches) == 1
    assert capsys.readouterr().err.splitlines() == [f"waiting for another command that changes {folder}"]


def test_a_folder_that_cannot_be_locked_is_used_and_said_so(begun, monkeypatch, capsys):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    folder, _ = begun(3, 1.0, models=MODELS[:1])
    monkeypatch.setattr("fcntl.flock", refuse)
    with batch_stub() as stub:
        send(folder, stub.url, as_json=True)
        assert len(stub.batches) == 1
    assert "cannot be locked (No locks available): run one command at a time" in capsys.readouterr().err


def test_a_file_that_a_service_refuses_costs_nothing_and_can_be_sent_again(begun, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    folder, _ = begun(3, 1.0, models=MODELS[:1])
    with batch_stub(refuses=True) as stub:
        wiserouter("submit", folder, "--url", stub.url)
        job = wiserouter("poll", folder, "--url", stub.url)["jobs"][0]
        assert (job["status"], job["error"]) == ("failed", "bad file")
    found = wiserouter("report", folder)
    assert (found["spent_usd"], found["open_usd"], found["errors"]) == (0.0, 0.0, {"bad file": 3})
    assert wiserouter("retry", folder)["number"] == 2


@pytest.mark.parametrize("name", HANDLERS)
def test_the_service_of_each_provider_is_sent_each_file_once_and_billed_what_it_bills(begun, monkeypatch, name):
    folder, _ = begun(40, 1.0, "--models", MODEL_OF[name])
    fault = lambda line, _: "errored" if line % 8 == 0 else ""  # noqa: E731
    with provider_stub(HANDLERS[name], fault=fault, polls=2, drops_created=True) as stub:
        at(monkeypatch, name, stub.url)
        with pytest.raises((OSError, InvalidInput)):  # the batch is made, but its id is lost
            wiserouter("submit", folder)
        if name == "ANTHROPIC":  # whether it is the file's is known from its results
            with pytest.raises(InvalidInput, match="may be that of anthropic"):
                wiserouter("submit", folder)
            stub.polls = 0
            lost = stub.url + "/v1/messages/batches/msgbatch_0"
            assert looked_at(lost)["processing_status"] == "ended"
        for _ in range(2):
            assert len(wiserouter("submit", folder)["jobs"]) == 1
        assert len(stub.batches) == 1
        assert wiserouter("poll", folder, "--wait", 0.01)["jobs"][0]["status"] == "completed"
        first_usd = stub.ledger_usd
        assert 0.0 < first_usd == pytest.approx(spent(folder), abs=1e-9)
        stub.fault = lambda *_: ""
        assert sum(one["requests"] for one in wiserouter("retry", folder)["files"]) == 5
        wiserouter("submit", folder)
        for _ in range(2):
            wiserouter("poll", folder, "--wait", 0.01)
        assert stub.ledger_usd > first_usd
        found = wiserouter("report", folder)
        assert found["spent_usd"] == pytest.approx(stub.ledger_usd, abs=1e-9)
        assert (found["answered"], found["open_usd"], len(stub.batches)) == (40, 0.0, 2)


def test_a_batch_of_three_providers_is_sent_to_all_whose_key_is_set(begun, monkeypatch):
    folder, made = begun(60, 0.018)
    providers = [one["provider"] for one in made["files"]]
    assert len(set(providers)) > 1
    with ExitStack() as stack:
        stubs = {name: stack.enter_context(provider_stub(one, fault=faulty)) for name, one in HANDLERS.items()}
        stubs["OPENAI"] = stack.enter_context(batch_stub(fault=faulty))
        first = providers[0].upper()
        at(monkeypatch, first, stubs[first].url)
        shown = CliRunner().invoke(app, ["batch", "submit", str(folder)])
        assert shown.exit_code == 0, shown.output
        assert all(f"of {one} are left" in shown.output for one in set(providers[1:]) - {providers[0]})
        for name, stub in stubs.items():
            at(monkeypatch, name, stub.url)
        assert len(wiserouter("submit", folder)["jobs"]) == len(providers)
        wiserouter("poll", folder, "--wait", 0.01)
        found = wiserouter("report", folder)
        assert found["spent_usd"] == pytest.approx(sum(stub.ledger_usd for stub in stubs.values()), abs=1e-9)
        assert found["answered"] < 60
        for stub in stubs.values():
            stub.fault = lambda *_: ""
        wiserouter("retry", folder)
        wiserouter("submit", folder)
        wiserouter("poll", folder, "--wait", 0.01)
        found = wiserouter("report", folder)
        assert found["spent_usd"] == pytest.approx(sum(stub.ledger_usd for stub in stubs.values()), abs=1e-9)
        assert (found["answered"], found["open_usd"]) == (60, pytest.approx(0.0, abs=1e-12))


def faulty(line, _):
    return "expired" if line % 10 == 3 else ""


def test_a_file_that_gemini_refuses_is_released_with_its_reason(begun, monkeypatch):
    folder, _ = begun(3, 1.0, "--models", MODELS[2])
    with provider_stub(GeminiHandler, refuses=True) as stub:
        at(monkeypatch, "GEMINI", stub.url)
        wiserouter("submit", folder)
        job = wiserouter("poll", folder)["jobs"][0]
    assert (job["status"], job["error"]) == ("failed", "bad file")
    found = wiserouter("report", folder)
    assert (found["spent_usd"], found["open_usd"], found["errors"]) == (0.0, 0.0, {"bad file": 3})


def test_a_file_that_anthropic_refuses_can_be_sent_again(begun, monkeypatch):
    folder, _ = begun(3, 1.0, "--models", MODELS[1])
    with provider_stub(AnthropicHandler, refuses=True) as stub:
        at(monkeypatch, "ANTHROPIC", stub.url)
        with pytest.raises(WiseRouterError, match="bad file"):
            wiserouter("submit", folder)
        stub.refuses = False
        wiserouter("submit", folder)
        assert wiserouter("poll", folder)["jobs"][0]["status"] == "completed"
        assert spent(folder) == pytest.approx(stub.ledger_usd, abs=1e-9)


def test_a_service_needs_a_key_and_a_file(begun, monkeypatch):
    folder, _ = begun(3, 1.0, "--models", MODELS[1])
    with pytest.raises(InvalidInput, match="OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY"):
        wiserouter("submit", folder)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with pytest.raises(InvalidInput, match="no file for openai"):
        wiserouter("submit", folder, "--url", "http://127.0.0.1:9/v1")
    with pytest.raises(InvalidInput, match="must begin with http"):
        wiserouter("submit", folder, "--url", "127.0.0.1:9/v1")


def test_a_file_is_uploaded_to_no_other_server(begun, monkeypatch):
    folder, _ = begun(3, 1.0, "--models", MODELS[2])
    with provider_stub(GeminiHandler) as stub:
        at(monkeypatch, "GEMINI", stub.url)
        stub.url = "http://127.0.0.2:9"
        with pytest.raises(InvalidInput, match="files must be uploaded to"):
            wiserouter("submit", folder)
