"""`wiserouter report`: the figures of the router itself, from a store and a proxy, as text, JSON and a page."""

import gzip
import json
import threading
import tracemalloc
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from support.redis_servers import MISSING, redis_server
from wiserouter import Budget, Model, Price, Shadow, Usage, WiseRouter
from wiserouter.cli import app
from wiserouter.errors import InvalidInput
from wiserouter.operating.savings import savings
from wiserouter.operating.savings_journal import calls_of
from wiserouter.operating.savings_text import html_of, lines_of

HOSTILE = "<script>alert(1)</script>\n\"'&"
MODELS = [Model("small", Price(1e-6, 4e-6)), Model(HOSTILE, Price(3e-6, 1.5e-5))]
NEEDS_REDIS = pytest.mark.skipif(redis_server() is None, reason=MISSING)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=NEEDS_REDIS)])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'budget.db'}"
    return f"{request.getfixturevalue('server').url}?name={tmp_path.name}"


def printed(*arguments, **env):
    result = CliRunner().invoke(app, ["report", *arguments], env={"COLUMNS": "200", **env})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def routed(url="memory://", journal=None) -> WiseRouter:
    router = WiseRouter(MODELS, store=url, seed=0, growing=None)
    if journal is not None:
        router.journal_to(journal)
    router.start(Budget(30.0, horizon=1_000))
    router.start(Budget(5.0, horizon=100), scope="team")
    for at in range(20):
        scope = ("default", "team")[at % 2]
        decision = router.decide(eligible=[MODELS[at % 3 == 0].name], scope=scope)
        router.charge(decision, usage=Usage(1_000, 100 + at))
        router.reward(decision, 1.0 - 0.5 * (at % 2))
    router.spend(0.001)
    if journal is not None:
        assert router.journal.flush()
    return router


def test_the_figures_of_a_store_are_those_of_its_router(url, tmp_path):
    router, before = routed(url), f"small=1,{HOSTILE}=3"
    savings(router)  # the figures of the models are in the store now, as they are every ten seconds
    for options, terms in (((), {}), (("--scope", "team"), {"scope": "team"})):
        [found] = json.loads(printed(url, "--json", "--since", "3d", "--before", before, *options))["groups"].values()
        own = json.loads(json.dumps(savings(router, "3d", before=before, **terms).as_dict()))
        assert found["actual"]["calls"] == own["actual"]["calls"] == (10 if terms else 20)
        for part in ("actual", "against", "models", "coverage", "days"):
            assert flat(found[part]) == pytest.approx(flat(own[part]), rel=1e-8)
    text = printed(url)
    assert "20 calls" in text
    assert "embeddings and judges" in text
    router.close()


def test_of_a_call_in_a_journal_the_report_keeps_no_figures_of_its_models(tmp_path):
    path = tmp_path / "decisions.jsonl"
    router = WiseRouter([Model(f"m{k}", Price(1e-6, 4e-6)) for k in range(40)], seed=0, growing=None)
    router.journal_to(path)
    router.start(Budget(30.0, horizon=1_000))
    router.charge(router.decide(), usage=Usage(1_000, 100))
    assert router.journal.flush()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    events = (json.loads(json.dumps({**line, "id": str(i)})) for i in range(500) for line in lines)
    tracemalloc.start()
    try:
        calls = calls_of(events)
        assert len(calls) == 500
        assert tracemalloc.get_traced_memory()[0] <= 500 * 4_000
    finally:
        tracemalloc.stop()
    assert calls[0].models == tuple(router.pool.names)


def flat(value, path="") -> dict[str, float]:
    """Return all numbers of a nested value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    found = {} if isinstance(value, dict | list | tuple | str | None) else {path: float(value)}
    for name, one in items:
        found |= flat(one, f"{path}/{name}")
    return found


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_the_scores_of_a_router_that_has_ended_are_reported(url):
    routed(url).close()  # within the ten seconds from one note on its models to the next
    [found] = json.loads(printed(url, "--json", "--since", "3d"))["groups"].values()
    assert (found["actual"]["calls"], found["actual"]["quality_scores"]) == (20, 20)


def test_a_journal_tells_the_same(tmp_path):
    router, path = routed(journal=tmp_path / "decisions.jsonl"), tmp_path / "decisions.jsonl"
    router.save(tmp_path / "pair.wise")
    with path.open("a") as file:
        file.write('{"event": "charge", "id": "x", "cost_us')
    own = json.loads(json.dumps(savings(router, "2d").as_dict()))
    [found] = json.loads(printed(str(path), "--json", "--since", "2d", "--artifact", str(tmp_path / "pair.wise")))[
        "groups"
    ].values()
    assert found["actual"]["models_usd"] == pytest.approx(own["actual"]["models_usd"], abs=1e-12)
    for name, one in found["models"].items():
        assert one["cost_usd"] == pytest.approx(own["models"][name]["cost_usd"], rel=1e-6)
        assert one["quality"] == pytest.approx(own["models"][name]["quality"], rel=1e-6)
    assert found["coverage"].pop("presumed") is None  # a journal does not know them all
    assert own["coverage"].pop("presumed")["calls"] == 0
    assert flat(found["coverage"]) == pytest.approx(flat(own["coverage"]))
    [found] = json.loads(printed(str(path), "--json", "--since", "2d", "--scope", "team"))["groups"].values()
    assert found["actual"]["calls"] == 10
    assert set(found["coverage"]["without_price"]) == {"small", HOSTILE}
    with pytest.raises(InvalidInput, match="journal"):
        printed(str(tmp_path / "pair.wise"))


def test_scores_of_calls_without_tokens_are_not_said_to_be_missing():
    router = WiseRouter(MODELS, seed=0)
    router.start(Budget(30.0, horizon=1_000))
    decision = router.decide()
    router.charge(decision, cost_usd=0.01)
    router.reward(decision, 1.0)
    lines = lines_of(savings(router).as_dict())
    assert "quality unknown, no compared call has a score" in lines[0]
    assert "1 without tokens" in lines[-1]


def test_a_page_loads_nothing_and_shows_names_as_text(tmp_path):
    router = routed(f"sqlite:///{tmp_path / 'budget.db'}")
    router.refresh()
    page = tmp_path / "page.html"
    printed(str(tmp_path / "budget.db"), "--html", str(page))
    found = Tags()
    found.feed(page.read_text())
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in found.tags}
    assert not [attrs for _, attrs in found.tags if {"src", "href", "style", "onload"} & set(attrs)]
    assert any(HOSTILE in text for text in found.texts)
    assert sum(tag == "rect" for tag, _ in found.tags) == 30
    assert "Content-Security-Policy" in page.read_text()
    router.close()


def test_a_report_without_a_call_can_be_read():
    router = WiseRouter(MODELS, seed=0)
    router.start(Budget(30.0, horizon=1_000))
    report = savings(router).as_dict()
    assert lines_of(report)[-1].startswith("Compared: no call")
    assert "nan" not in html_of("t", {"a": report}).lower()


class Proxy(BaseHTTPRequestHandler):
    """Answers like the proxy, and keeps what it was asked."""

    asked: ClassVar = []

    def do_GET(self):
        type(self).asked.append((self.path, self.headers["authorization"]))
        answer = json.dumps({"groups": {"wise": savings(routed()).as_dict()}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


def test_a_proxy_is_asked_with_the_key_of_the_environment():
    server = HTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        text = printed(url, "--since", "7d", "--before", "small", WISEROUTER_PROXY_KEY="sk-admin")
        with pytest.raises(InvalidInput, match="WISEROUTER_PROXY_KEY"):
            printed(url, WISEROUTER_PROXY_KEY="")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert Proxy.asked == [("/wiserouter/savings?since=7d&before=small", "Bearer sk-admin")]
    assert "Savings of wise" in text


def test_what_cannot_be_reported_on(tmp_path):
    with pytest.raises(InvalidInput, match=r"must be a URL or an existing file, got '.*none.db'"):
        printed(str(tmp_path / "none.db"))
    with pytest.raises(InvalidInput, match="memory"):
        printed("memory://")
    assert not (tmp_path / "none.db").exists()


def test_a_journal_of_shadow_mode_is_for_its_own_report(tmp_path):
    path = tmp_path / "decisions.jsonl"
    router = WiseRouter(MODELS, seed=0, growing=None)
    router.shadow = Shadow()
    journal = router.journal_to(path)
    router.start(Budget(30.0, horizon=1_000))
    router.charge(router.observe(incumbent="small"), 1e-3, model="small")
    journal.close()
    with pytest.raises(InvalidInput, match="calls of shadow mode are shown by `wiserouter shadow report`"):
        printed(str(path))


def test_a_journal_that_cannot_be_read_says_so(tmp_path):
    path = tmp_path / "decisions.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"event": "charge"}\n' * 100))
    with pytest.raises(InvalidInput, match="lines are damaged, or the file is compressed"):
        printed(str(path))
