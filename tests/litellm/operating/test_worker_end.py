"""The end of a proxy worker: the server may die of the signal that ended it, so its application closes the stores."""

import logging
import secrets

import pytest
import respx

from support.groups import fitted
from support.providers import URL, answer
from support.proxies import config_of, in_process, write
from wiserouter import WiseRouter
from wiserouter.routing.journal_reader import JournalReader
from wiserouter_litellm.operating import worker_end

MASTER = f"sk-{secrets.token_hex(16)}"


@pytest.mark.parametrize("limit", ["hard", "expected"])
def test_a_worker_that_ends_has_sent_scores_and_charges_and_returned_its_leases(tmp_path, limit):
    fitted().save(tmp_path / "pair.wise")
    store, journal = f"sqlite:///{tmp_path}/wise.db", str(tmp_path / "wise.jsonl")
    wise = {"budget_usd": 10.0, "requests": 1_000, "limit": limit, "cap_output_tokens": 60, "journal": journal}
    wise |= {"artifact": str(tmp_path / "pair.wise"), "store": f"{store}?lease_share=0.05&refresh_s=60&flush_s=60"}
    config = config_of({"wise": wise})
    config["litellm_settings"] |= {"disable_aiohttp_transport": True}
    with in_process(write(config, tmp_path), MASTER) as client, respx.mock(assert_all_called=False) as provider:
        provider.route(url__startswith=URL).mock(side_effect=answer)
        user = {"Authorization": "Bearer sk-user-a"}
        for n in range(3):
            body = {"model": "wise", "messages": [{"role": "user", "content": f"question {n}"}]}
            answered = client.post("/v1/chat/completions", json=body, headers=user)
            rating = {"id": answered.headers["x-wiserouter-decision"], "score": 1.0}
            assert client.post("/wiserouter/feedback", json=rating, headers=user).status_code == 200
        spent_usd = client.callback.groups["wise"].router.status().spent_usd
        assert client.callback.groups["wise"].router.status().charged == 3

    known = fitted().estimates.labels.sum()
    other = WiseRouter.load(str(tmp_path / "pair.wise"), store=store)
    status, labels = other.status(), other.estimates.labels.sum() - known
    other._store.close()
    assert (status.charged, status.spent_usd, status.leased_usd) == (3, pytest.approx(spent_usd), 0.0)
    assert labels == 3
    assert [line["event"] for line in JournalReader(journal)].count("reward") == 3


async def test_a_store_that_cannot_be_closed_holds_up_no_other(monkeypatch, caplog):
    monkeypatch.setattr(worker_end, "_opened", set())
    closed = []

    class Broken:
        def close(self):
            raise OSError("the disk is gone")

    class Whole:
        def close(self):
            closed.append(self)

    one = worker_end.closed_at_end(Whole())
    worker_end.closed_at_end(Broken())
    with caplog.at_level(logging.WARNING, "wiserouter.litellm"):
        await worker_end._close_all()
    assert closed == [one]
    assert "Broken is not closed: the disk is gone" in caplog.text
