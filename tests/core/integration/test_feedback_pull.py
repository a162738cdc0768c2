"""Scores pulled from stand-ins of Langfuse, LangSmith and MLflow, which answer in their published formats."""

import base64
import json
import socket
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from io import BytesIO
from urllib.error import HTTPError

import pytest
from typer.testing import CliRunner

from support.recorded_platform import KEYS, Recorded, serving
from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.cli import app
from wiserouter.errors import InvalidInput
from wiserouter.fitting.log.scores import Scale
from wiserouter.fitting.platforms.http import ATTEMPTS, HttpRefused, refusal_of, request_json
from wiserouter.fitting.platforms.score_pages import platform_of, score_pages
from wiserouter.integration.batches.openai_service import OpenAIService
from wiserouter.integration.feedback_pull import OVERLAP_S, FeedbackPull, PullState, feedback_puller, rate_at_proxy

AT = "2026-11-01T12:00:00.000Z"
AT_S = 1_793_534_400.0


def langfuse_score(i, value=1, **other):
    """Return a score as `GET /api/public/v3/scores?fields=subject` has it."""
    return {
        "id": f"s{i}",
        "projectId": "p",
        "name": "helpful",
        "value": value,
        "dataType": "NUMERIC",
        "source": "API",
        "timestamp": AT,
        "environment": "default",
        "createdAt": AT,
        "updatedAt": AT,
        "subject": {"kind": "observation", "id": f"time-12-00-00-1_chatcmpl-{i}", "traceId": f"trace-{i}"},
        **other,
    }


def langfuse_v3(path, query, body):
    assert (path, query["fields"]) == ("/api/public/v3/scores", "subject")
    if "cursor" not in query:
        return 200, {"data": [langfuse_score(0), langfuse_score(1, 0)], "meta": {"limit": 100, "cursor": "next"}}
    judged = langfuse_score(2, True, dataType="BOOLEAN", source="EVAL", name="is it good?")
    return 200, {"data": [judged], "meta": {"limit": 100}}


def langfuse_v2(path, query, body):
    if path != "/api/public/v2/scores":
        return 404, {"message": "not found"}
    old = {"id": "s9", "name": "helpful", "value": 1, "dataType": "NUMERIC", "source": "ANNOTATION", "timestamp": AT}
    one = {**old, "id": f"s{query['page']}", "traceId": f"t{query['page']}", "observationId": None}
    return 200, {"data": [one], "meta": {"page": int(query["page"]), "limit": 100, "totalItems": 2, "totalPages": 2}}


def langsmith(path, query, body):
    assert path == "/api/v1/feedback"
    first = int(query["offset"])
    rows = [
        {
            "id": f"f{i}",
            "created_at": AT,
            "modified_at": AT,
            "run_id": f"run-{i}",
            "trace_id": f"trace-{i}",
            "key": "user_score",
            "score": 0.5,
            "value": None,
            "comment": None,
            "feedback_source": {"type": "model" if i == 0 else "api"},
        }
        for i in range(first, min(first + 100, 130))
    ]
    return 200, rows


def mlflow(path, query, body):
    assert path == "/api/3.0/mlflow/traces/search"
    assert body["locations"][0]["mlflow_experiment"]["experiment_id"] == "7"
    second = body.get("page_token") == "two"
    assessment = {
        "assessment_id": f"a-{2 if second else 1}",
        "assessment_name": "correct",
        "trace_id": "tr-1",
        "source": {"source_type": "LLM_JUDGE" if second else "HUMAN", "source_id": "me"},
        "create_time": AT,
        "last_update_time": AT,
        "feedback": {"value": "yes"},
        "valid": True,
    }
    stale = {**assessment, "assessment_id": "a-0", "valid": False}
    trace = {
        "trace_id": "tr-1",
        "client_request_id": "call-1",
        "assessments": [stale, assessment],
        "trace_metadata": {},
    }
    return 200, {"traces": [trace], **({} if second else {"next_page_token": "two"})}


def all_scores(reply, name, **terms):
    with serving(reply) as server:
        platform = platform_of(name, KEYS, server.url, "7")
        pages = list(score_pages(platform, AT_S - 3_600.0, **terms))
        return [one for page in pages for one in page.scores], server.asked


def test_langfuse_is_read_by_cursor():
    scores, asked = all_scores(langfuse_v3, "langfuse")
    assert [one.id for one in scores] == ["s0", "s1", "s2"]
    assert scores[0].targets == ("time-12-00-00-1_chatcmpl-0", "chatcmpl-0", "trace-0")
    assert (scores[0].source, scores[2].source, scores[2].value) == ("human", "judge:is_it_good_", True)
    assert asked[0][3]["Authorization"] == f"Basic {base64.b64encode(b'pk:sk').decode()}"
    assert asked[0][1]["fromTimestamp"] == "2026-11-01T11:00:00Z"


def test_an_older_langfuse_is_read_by_page():
    scores, asked = all_scores(langfuse_v2, "langfuse")
    assert [(one.id, one.targets) for one in scores] == [("s1", ("t1",)), ("s2", ("t2",))]
    assert [path for path, *_ in asked] == ["/api/public/v3/scores", *["/api/public/v2/scores"] * 2]


def test_langsmith_is_read_by_offset():
    scores, asked = all_scores(langsmith, "langsmith")
    assert (len(scores), scores[129].targets) == (130, ("run-129", "trace-129"))
    assert {one.source for one in scores} == {"judge:user_score", "human"}
    assert [query["offset"] for _, query, *_ in asked] == ["0", "100"]


@pytest.mark.parametrize("end", ["", "/", "/api", "/api/v1", "/api/v1/"])
def test_the_address_of_langsmith_may_be_that_of_its_client(end):
    with serving(langsmith) as server:
        platform = platform_of("langsmith", {**KEYS, "LANGSMITH_ENDPOINT": server.url + end})
        assert sum(len(page.scores) for page in score_pages(platform, AT_S - 3_600.0)) == 130


def test_mlflow_is_read_by_token():
    scores, asked = all_scores(mlflow, "mlflow")
    assert [(one.id, one.value, one.source) for one in scores] == [
        ("a-1", "yes", "human"),
        ("a-2", "yes", "judge:correct"),
    ]
    assert scores[0].targets == ("call-1", "tr-1")
    assert asked[0][3]["Authorization"] == "Bearer ml"


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        ('{"id": "chatcmpl-1", "created": 1795823677, "model": "wise", "cho...', ("chatcmpl-1", "tr-1")),
        ('{"choices": [{"message": {"id": "chatcmpl-1"}}]}', ("tr-1",)),
        ("", ("tr-1",)),
    ],
)
def test_a_score_of_mlflow_is_about_the_response_that_its_trace_has_put_out(outputs, targets):
    assessment = {"assessment_id": "a-1", "assessment_name": "helpful", "create_time": AT, "feedback": {"value": True}}
    kept = {"mlflow.traceOutputs": outputs}  # LiteLLM's callback and MLflow's own keep the id of a call nowhere else
    trace = {"trace_id": "tr-1", "assessments": [assessment], "trace_metadata": kept}
    (score,), _ = all_scores(lambda *_: (200, {"traces": [trace]}), "mlflow")
    assert score.targets == targets


@pytest.mark.parametrize("score", [None, "helpful"])
def test_scores_of_people_of_a_second_metric_are_refused_unless_one_is_named(score, tmp_path):
    handed, path = [], tmp_path / "state.json"
    pages = [[langfuse_score(0), langfuse_score(1, 0, name="toxicity", source="EVAL")]]
    platform = platform_of("langfuse", KEYS, "http://a")

    def pull():
        state = PullState.read(path, AT_S - 60.0)
        fetch = lambda *_, **__: {"data": pages.pop(), "meta": {}}  # noqa: E731
        return FeedbackPull(platform, lambda *one: handed.append(one) or True, score, path=path, fetch=fetch).run(state)

    pull()
    pages.append([langfuse_score(2, 0, name="toxicity")])
    if score is None:
        with pytest.raises(InvalidInput, match="'helpful' and 'toxicity': say which, with --score"):
            pull()
    else:
        assert pull().other == 1
    assert [one for one in handed if one[2] == "human"] == [(handed[0][0], 1.0, "human")]


def test_what_is_older_is_left_out():
    with serving(langfuse_v3) as server:
        pages = list(score_pages(platform_of("langfuse", KEYS, server.url), AT_S + 1.0))
    assert [page.scores for page in pages] == [[], []]


def test_a_request_is_sent_again_unless_it_is_refused_for_good():
    answers = iter([(503, {}), (429, {}), (524, {}), (200, {"a": 1})])
    waited = []
    with serving(lambda *_: next(answers)) as server:
        assert request_json(server.url, sleep=waited.append) == {"a": 1}
    assert len(waited) == 3
    with serving(lambda *_: (401, {"error": "no"})) as server, pytest.raises(HttpRefused, match="answered 401"):
        request_json(server.url, sleep=waited.append)
    assert len(server.asked) == 1
    with pytest.raises(InvalidInput, match="http://"):
        request_json("file:///etc/passwd")


@contextmanager
def moved(place):
    """Serve an address that sends each request to another one."""

    class Moved(Recorded):
        def end_headers(self):
            self.send_header("location", place)
            super().end_headers()

    with serving(lambda *_: (302, {})) as server:
        server.RequestHandlerClass = Moved
        yield server


def test_a_request_waits_as_long_as_the_platform_says():
    answers = iter([(429, {}, ("Retry-After", "41")), (200, {"a": 1}), (429, {}, ("Retry-After", "86400"))])
    waited = []
    with serving(lambda *_: next(answers)) as server:
        assert request_json(server.url, sleep=waited.append) == {"a": 1}
        with pytest.raises(HttpRefused, match="again after 86,400 s"):  # a limit of a day
            request_json(server.url, sleep=waited.append)
    assert [41.0 <= one <= 61.0 for one in waited] == [True]


def test_a_time_to_wait_may_be_a_date():
    later = [("Retry-After", format_datetime(datetime.now(UTC) + timedelta(seconds=s), usegmt=True)) for s in (60, -60)]
    answers = iter([(503, {}, later[0]), (503, {}, later[1]), (503, {}, ("Retry-After", "soon")), (200, {"a": 1})])
    waited = []
    with serving(lambda *_: next(answers)) as server:
        assert request_json(server.url, sleep=waited.append) == {"a": 1}
    assert 25.0 <= waited[0] <= 81.0  # a busy machine may lose seconds of them
    assert max(waited[1:]) <= 20.0


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="cannot change its zone")
def test_a_date_without_a_zone_is_one_of_gmt(monkeypatch):
    headers = {"retry-after": "Fri Nov 27 12:01:00 2026", "date": "Fri, 27 Nov 2026 12:00:30 GMT"}
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert refusal_of(HTTPError("http://host", 503, "", headers, BytesIO()), "http://host").wait_s == 30.0
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("place", ["http://127.0.0.1:99999/x", "http://[::1/x", "http://a..b/", "http://a b/"])
def test_an_address_that_cannot_be_read_is_an_error_of_input(place):
    unreadable = r"must be an address, or lead to one, whose host and port can be read|http\(s\)://host:port"
    with moved(place) as server:
        with pytest.raises(InvalidInput, match=unreadable):
            request_json(server.url)
        with pytest.raises((InvalidInput, HttpRefused)):
            request_json(server.url, body={})
    with pytest.raises(InvalidInput, match=unreadable):
        request_json(place)


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-secret\r\nX: 1", "sk-\u2026secret"])
def test_a_key_that_cannot_be_sent_is_named_by_its_header_and_not_shown(key):
    with pytest.raises(InvalidInput, match="the header Authorization must be one line") as caught:
        request_json("http://127.0.0.1:9/", headers={"authorization": f"Bearer {key}"})
    assert "secret" not in str(caught.value)


def test_a_server_that_closes_the_connection_without_an_answer_is_asked_again():
    waited = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        closing = threading.Thread(target=lambda: [closed(server) for _ in range(ATTEMPTS)])
        closing.start()
        with pytest.raises(ConnectionError, match="closed the connection without an answer: try again"):
            request_json(f"http://127.0.0.1:{server.getsockname()[1]}/", sleep=waited.append)
        closing.join()
    assert len(waited) == ATTEMPTS - 1


@pytest.mark.parametrize("length", ["content-length: 12", "transfer-encoding: chunked"])
def test_an_answer_that_ends_in_the_middle_is_asked_for_again(length):
    halves = [b'c\r\n{"data"', b'{"data"'][length.startswith("content")]
    waited = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            for _ in range(ATTEMPTS):
                connection, _ = server.accept()
                with connection:
                    connection.recv(4_096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\n" + length.encode() + b"\r\n\r\n" + halves)

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        with pytest.raises(ConnectionError, match="closed the connection in the middle of its answer: try again"):
            request_json(f"http://127.0.0.1:{server.getsockname()[1]}/", sleep=waited.append)
        answering.join()
    assert len(waited) == ATTEMPTS - 1


def closed(server):
    connection, _ = server.accept()
    with connection:
        connection.recv(4_096)


def test_a_server_that_cannot_be_reached_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    waited = []
    with pytest.raises(ConnectionError, match=f"^{address} cannot be reached: .*refused"):
        request_json(f"http://{address}/path", sleep=waited.append)
    assert len(waited) == ATTEMPTS - 1


def test_a_server_that_does_not_speak_http_is_a_failure_of_the_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def greet():
            for _ in range(ATTEMPTS):
                connection, _ = server.accept()
                connection.sendall(b"SSH-2.0-x\r\n")
                connection.recv(65_536)
                connection.close()

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(ConnectionError, match=f"{address} must answer by HTTP, got BadStatusLine"):
            request_json(f"http://{address}", sleep=lambda _: None)


def test_a_key_does_not_go_along_to_another_server(tmp_path):
    keys = {"authorization": "Bearer sk-secret"}
    with serving(lambda *_: (200, {"a": 1})) as other, moved(f"{other.url}/elsewhere?token=t") as server:
        service = OpenAIService(server.url, "sk-secret")
        assert request_json(server.url, headers=keys) == {"a": 1}
        service.download("file-1", tmp_path / "results.jsonl")
        assert [headers for *_, headers in other.asked if "sk-secret" in str(headers)] == []
        rate = partial(request_json, server.url, headers=keys, body={})
        create = partial(service.create, "f", tmp_path, "m", "")
        for post in (rate, create):
            with pytest.raises(HttpRefused, match=f"answered 302: it moved to {other.url}: give that address"):
                post()
        assert [path for path, *_ in other.asked] == ["/elsewhere"] * 2


def test_a_key_goes_along_within_one_server():
    with moved("/new") as server:
        server.reply = lambda path, *_: (302 if path == "/old" else 200, {"a": 1})
        assert request_json(f"{server.url}/old", headers={"authorization": "Bearer sk"}) == {"a": 1}
        assert [headers["Authorization"] for *_, headers in server.asked] == ["Bearer sk"] * 2


def test_a_pull_hands_over_each_score_once_and_goes_on_where_it_stopped(tmp_path):
    handed, broken = [], [True]

    def rate(ids, reward, source):
        if len(handed) == 2 and broken:
            broken.clear()
            raise OSError("the router is away")
        handed.append((ids[-1], reward, source))
        return ids[-1] != "trace-1"

    path = tmp_path / "state.json"
    with serving(langfuse_v3) as server:
        pull = FeedbackPull(platform_of("langfuse", KEYS, server.url), rate, path=path)
        with pytest.raises(OSError, match="away"):
            pull.run(PullState.read(path, AT_S - 60.0))
        counts = pull.run(PullState.read(path, 0.0))
        assert (counts.taken, counts.unknown) == (1, 0)
        again = pull.run(PullState.read(path, 0.0))
        assert (again.taken, again.unknown) == (0, 1)  # one that is unknown may be known later
    assert [one[0] for one in handed] == ["trace-0", "trace-1", "trace-2", "trace-1"]
    assert PullState.read(path, 0.0).since_s == AT_S - 60.0


def test_a_clock_that_is_ahead_leaves_out_no_later_score(tmp_path):
    ahead = langfuse_score(0, updatedAt="2026-11-02T12:00:00.000Z")  # of a client whose clock is a day ahead
    with serving(lambda *_: (200, {"data": [ahead], "meta": {}})) as server:
        platform = platform_of("langfuse", KEYS, server.url)
        pull = FeedbackPull(platform, lambda *_: True, path=tmp_path / "s.json", clock=lambda: AT_S)
        pull.run(PullState.read(pull.path, AT_S - 7_200.0))
    assert PullState.read(pull.path, 0.0).since_s == AT_S - OVERLAP_S


@pytest.mark.parametrize("other", [("langsmith", ""), ("mlflow", "7")])
def test_the_state_of_another_platform_is_refused(other, tmp_path):
    path = tmp_path / "state.json"
    state = {"since_s": AT_S - 60.0, "page": "v3 next", "newest_s": AT_S, "handed": {}, "platform": "langfuse"}
    path.write_text(json.dumps(state))
    platform = platform_of(other[0], KEYS, "http://127.0.0.1:9", other[1])
    with pytest.raises(InvalidInput, match="got that of 'langfuse': choose another file"):
        FeedbackPull(platform, lambda *_: True, path=path).run(PullState.read(path, 0.0))
    assert json.loads(path.read_text()) == state


def test_a_pull_leaves_a_state_that_names_its_platform(tmp_path):
    with serving(langfuse_v3) as server:
        pull = FeedbackPull(platform_of("langfuse", KEYS, server.url), lambda *_: True, path=tmp_path / "s.json")
        pull.run(PullState.read(pull.path, AT_S - 60.0))
    assert PullState.read(pull.path, 0.0).platform == "langfuse"


def test_a_state_that_cannot_be_kept_is_refused_before_a_score_is_handed_over(tmp_path, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WISEROUTER_PROXY_KEY", "key")
    with serving(langfuse_v3) as server:
        options = ["--to", server.url, "--url", server.url, "--state", str(tmp_path / "none" / "s.json")]
        ended = CliRunner().invoke(app, ["feedback", "pull", "langfuse", "--since", "2026-11-01", *options])
    assert "needs a folder that can be written to" in str(ended.exception)
    assert server.asked == []


def test_a_metric_and_a_scale_may_be_named():
    handed = []
    rows = [langfuse_score(0, 4), langfuse_score(1, 9), langfuse_score(2, 1, name="b")]
    with serving(lambda *_: (200, {"data": rows, "meta": {}})) as server:
        platform = platform_of("langfuse", KEYS, server.url)
        pull = FeedbackPull(platform, lambda *one: handed.append(one) or True, "helpful", Scale(1, 5))
        counts = pull.run(PullState(AT_S - 60.0))
    assert [reward for _, reward, _ in handed] == [0.75]
    assert (counts.taken, counts.refused, counts.other) == (1, 1, 1)


@pytest.mark.parametrize("newest_first", [True, False])
def test_of_two_scores_of_a_call_the_later_one_stays_in_whichever_order_they_are_listed(newest_first, tmp_path):
    rewards = {}
    subject = {"kind": "trace", "id": "trace-0"}
    early = langfuse_score(0, 0, subject=subject)
    late = langfuse_score(1, 1, subject=subject, updatedAt="2026-11-01T12:05:00.000Z")
    listed = [late, early] if newest_first else [early, late]

    def pages(path, query, body):  # one score each
        following = {} if "cursor" in query else {"cursor": "next"}
        return 200, {"data": [listed["cursor" in query]], "meta": following}

    def rate(ids, reward, source):
        rewards[ids[0]] = reward
        return True

    with serving(pages) as server:
        pull = FeedbackPull(platform_of("langfuse", KEYS, server.url), rate, path=tmp_path / "state.json")
        counts = [pull.run(PullState.read(pull.path, AT_S - 60.0)) for _ in range(2)]
    assert rewards == {"trace-0": 1.0}
    assert [(one.taken, one.older) for one in counts] == ([(1, 1), (0, 1)] if newest_first else [(2, 0), (0, 0)])


def test_a_categorical_score_is_handed_over_by_its_word():
    handed = []
    words = [langfuse_score(i, 0, dataType="CATEGORICAL", stringValue=one) for i, one in enumerate(["good", "late"])]
    with serving(lambda *_: (200, {"data": words, "meta": {}})) as server:
        pull = FeedbackPull(
            platform_of("langfuse", KEYS, server.url), lambda _, reward, __: handed.append(reward) or True
        )
        counts = pull.run(PullState(AT_S - 60.0))
    assert handed == [1.0]
    assert counts.refused == 1


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(InvalidInput, match="LANGFUSE_PUBLIC_KEY"):
        platform_of("langfuse", {})
    with pytest.raises(InvalidInput, match="experiment"):
        platform_of("mlflow", {"MLFLOW_TRACKING_URI": "http://a"})
    with pytest.raises(InvalidInput, match="langfuse, langsmith or mlflow"):
        platform_of("phoenix", {})
    (tmp_path / "state.json").write_text("[]")
    with pytest.raises(InvalidInput, match="delete it"):
        PullState.read(tmp_path / "state.json", 0.0)


def test_scores_go_to_the_route_of_a_proxy():
    def proxy(path, query, body):
        assert path == "/wiserouter/feedback"
        return (200, {"status": "recorded"}) if body["id"] == "known" else (404, {"detail": "unknown"})

    with serving(proxy) as server:
        rate = rate_at_proxy(server.url, "key")
        assert rate(["other", "known"], 0.5, "judge:a") is True
        assert rate(["other"], 0.5, "human") is False
        assert server.asked[1][2] == {"id": "known", "score": 0.5, "source": "judge:a"}
        assert server.asked[1][3]["Authorization"] == "Bearer key"


def test_a_thread_pulls_again_and_outlives_a_failure(caplog):
    handed, stop, failures = [], threading.Event(), iter([OSError("down")])

    def fetch(*args, **kwargs):
        for error in failures:
            raise error
        return {"data": [langfuse_score(0)], "meta": {}}

    def rate(ids, reward, source):
        handed.append(ids)
        stop.set()
        return True

    pull = FeedbackPull(platform_of("langfuse", KEYS, "http://a"), rate, fetch=fetch)
    feedback_puller(pull, 0.01, AT_S - 60.0, stop=stop).join(timeout=5.0)
    assert len(handed) == 1
    assert "cannot be pulled: down" in caplog.text


def test_the_command_hands_scores_to_a_store(tmp_path, monkeypatch):
    router = WiseRouter([Model("small", Price(1e-6, 1e-6))], store=f"sqlite:///{tmp_path}/a.db")
    router.save(tmp_path / "a.wise")
    router.start(Budget(1.0, 100))
    decision = router.decide("a")
    router.charge(decision, cost_usd=0.001)
    router.alias("trace-0", decision)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with serving(langfuse_v3) as server:
        options = ["--to", f"sqlite:///{tmp_path}/a.db", "--artifact", str(tmp_path / "a.wise"), "--url", server.url]
        asked = ["feedback", "pull", "langfuse", *options, "--since", "2026-11-01", "--state", str(tmp_path / "s")]
        told = CliRunner().invoke(app, [*asked, "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.output) == {
        "taken": 1,
        "unknown": 2,
        "refused": 0,
        "other": 0,
        "older": 0,
        "platform": "langfuse",
    }
    router.refresh()
    router.decide("b")
    assert router.estimates.labels.sum() == 1.0
    router.close()
