"""Scores of a platform, pulled by a proxy worker in a thread of its own."""

import pytest

from support.groups import HI, RICH, fitted, llms
from wiserouter_litellm import attach
from wiserouter_litellm.errors import SettingsError
from wiserouter_litellm.settings.proxy_settings import settings_of
from wiserouter_litellm.settlement.feedback_pull import RUNNING, start_pull

WISE = {"budget_usd": 1.0, "every": "1d"}


def pull_settings(**pull):
    return settings_of({"groups": {"wise": WISE}, "feedback_pull": {"from": "langfuse", **pull}}).feedback_pull


@pytest.mark.parametrize(
    "about",
    [lambda response: response._hidden_params["litellm_call_id"], lambda response: response.id],
    ids=["call", "response"],
)
async def test_a_score_of_langfuse_reaches_the_call_it_is_about(provider, settled, monkeypatch, about):
    from wiserouter.fitting.platforms.score_pages import ScorePage, _langfuse_score

    router = fitted()
    callback = attach(llms(), "wise", router=router, budget=RICH)
    response = await callback._router.acompletion(model="wise", messages=HI, metadata={"user_api_key": "a"})
    await settled(lambda: router.status().charged == 1)
    score = {
        "id": "s1",
        "name": "helpful",
        "value": 0.25,
        "dataType": "NUMERIC",
        "source": "EVAL",
        "subject": {"kind": "trace", "id": about(response)},
    }
    pages = [ScorePage([_langfuse_score(score)], None)]
    monkeypatch.setattr("wiserouter.integration.feedback_pull.score_pages", lambda *_: iter(pages))
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk")
    thread = start_pull(callback, pull_settings(every_s=60))
    ((record, _),) = router._store._records.values()
    await settled(lambda: record.scores)
    assert (record.reward, list(record.scores)) == (0.25, ["judge:helpful"])
    RUNNING.pop("pull").set()
    thread.join(timeout=5.0)
    assert not thread.is_alive()


def test_settings_say_what_is_wrong(monkeypatch):
    for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert pull_settings(every_s=60).every_s == 60.0
    with pytest.raises(SettingsError, match=r"feedback_pull: .*LANGFUSE_PUBLIC_KEY"):
        start_pull(None, pull_settings())
    with pytest.raises(SettingsError, match=r"unknown key 'form', did you mean from\?"):
        settings_of({"groups": {"wise": WISE}, "feedback_pull": {"form": "langfuse"}})
    with pytest.raises(SettingsError, match=r"feedback_pull\.from"):
        pull_settings(**{"from": "phoenix"})


@pytest.mark.parametrize(
    ("pull", "says"),
    [
        ({"url": "127.0.0.1:1"}, r"an address must begin with http:// or https:// .*, got '127\.0\.0\.1:1'"),
        ({"state": "/nowhere/pull.json"}, "/nowhere: no such folder: make it, or name another one"),
        ({"scale": "1-5"}, "a scale must read worst..best"),
    ],
)
def test_a_pull_that_could_never_work_stops_the_boot(monkeypatch, pull, says):
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk")
    monkeypatch.setattr("wiserouter_litellm.settlement.feedback_pull.feedback_puller", lambda *_, **__: None)
    with pytest.raises(SettingsError, match=rf"feedback_pull: {says}"):
        start_pull(None, pull_settings(**{"url": "http://127.0.0.1:1", **pull}))
    RUNNING.pop("pull", None)
