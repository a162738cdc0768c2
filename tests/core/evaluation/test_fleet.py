"""A simulated fleet against figures that follow from its settings."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from wiserouter.cli import app
from wiserouter.errors import InvalidInput
from wiserouter.evaluation.fleet import FleetTerms, simulate_fleet


def outcome(seed=0, **terms):
    return simulate_fleet(FleetTerms(**terms), np.random.default_rng(seed))


def test_one_worker_with_money_serves_all_and_exchanges_once_per_flush():
    one = outcome(workers=1, horizon_s=20.0, budget_share=5.0, lease_share=0.5)
    assert one.exchanges_per_s == pytest.approx(20.0)
    assert one.requests == pytest.approx(20_000, rel=0.03)
    assert one.served >= one.requests - 100  # its first lease takes one exchange
    assert (one.overspend_usd, one.forgotten_usd, one.refused_away) == (0.0, 0.0, 0)


def test_one_worker_spends_its_budget_to_the_last_call():
    one = outcome(workers=1, horizon_s=30.0, budget_share=0.5, worst_usd=0.001, lease_share=0.5, call_s=0.1)
    assert one.overspend_usd == 0.0
    assert one.amount_usd - one.spent_usd <= 10 * 0.001  # the lease is half of what is left, down to less than a call


def test_a_server_is_busy_by_its_exchanges_and_their_events():
    one = outcome(workers=40, shards=4, budget_share=5.0, horizon_s=10.0, call_s=0.0)
    per_exchange = 120e-6 + 30e-6 * (2 * 1_000.0 * 0.05 + 1)  # a reservation and a charge each, and the lease
    assert one.exchanges_per_s == pytest.approx(40 / 0.05, rel=0.01)
    assert one.busy == pytest.approx(10 / 0.05 * per_exchange, rel=0.03)


def test_a_saturated_server_takes_all_workers_in_turn():
    one = outcome(workers=100, exchange_s=0.01, event_s=1e-12)
    assert one.busy > 0.98
    assert one.exchanges_per_s == pytest.approx(1 / 0.01, rel=0.02)
    assert one.reply_p50_s == pytest.approx(100 * 0.01, rel=0.02)


def test_an_answer_takes_the_service_and_two_ways():
    one = outcome(workers=1, latency_s=0.01, exchange_s=0.002, event_s=1e-9)
    assert one.reply_p50_s == pytest.approx(0.022, rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(
    workers=st.integers(1, 12),
    shards=st.integers(1, 3),
    lease_share=st.floats(0.005, 0.5),
    budget_share=st.floats(0.05, 1.5),
    worst=st.floats(1.0, 20.0),
    call_s=st.floats(0.0, 3.0),
    rate=st.floats(1.0, 2_000.0),
    event_s=st.sampled_from([1e-6, 3e-5, 1e-3]),
    seed=st.integers(0, 99),
)
def test_leases_never_overspend(workers, shards, lease_share, budget_share, worst, call_s, rate, event_s, seed):
    fleet = FleetTerms(
        workers=workers,
        shards=min(shards, workers),
        requests_per_s=rate,
        lease_share=lease_share,
        budget_share=budget_share,
        worst_usd=0.001 * worst,
        call_s=call_s,
        event_s=event_s,
        horizon_s=4.0,
    )
    one = simulate_fleet(fleet, np.random.default_rng(seed))
    assert one.overspend_usd == 0.0
    assert one.spent_usd <= one.amount_usd * (1 + 1e-9)


def test_replicas_overspend_by_what_arrives_while_they_are_old():
    terms = {"workers": 50, "limit": "expected", "shards": 1, "event_s": 1e-6, "exchange_s": 1e-6, "latency_s": 0.0}
    one = outcome(**terms)
    per_flush_usd = 50 * 1_000.0 * 0.05 * 0.001  # of all workers; a replica is at most one exchange old
    assert 0.0 < one.overspend_usd <= 1.1 * per_flush_usd
    twice = outcome(**{**terms, "flush_s": 0.1})
    assert twice.overspend_usd > one.overspend_usd


def test_a_larger_lease_is_more_idle_money_and_a_smaller_one_less():
    idle = [outcome(workers=50, shards=5, lease_share=share).idle_usd for share in (0.005, 0.02, 0.1)]
    assert idle == sorted(idle)


def test_a_shard_that_confirms_only_what_is_on_disk_forgets_nothing():
    terms = {"workers": 30, "shards": 3, "lost_at_s": 3.0, "call_s": 0.2}
    sure, late = outcome(**terms, durable_s=0.0), outcome(**terms)
    assert sure.forgotten_usd == 0.0
    assert sure.overspend_usd == 0.0
    per_second_usd = 10 * 1_000.0 * 0.001
    assert late.forgotten_usd == pytest.approx(per_second_usd, rel=0.1)  # of one second


def test_a_lost_shard_refuses_what_the_leases_do_not_cover():
    terms = {"workers": 30, "shards": 3, "lost_at_s": 3.0, "outage_s": 4.0, "durable_s": 0.0}
    small, large = (outcome(**terms, lease_share=share).refused_away for share in (0.001, 0.1))
    most = 10 * 1_000.0 * (4.0 + 1.0)  # all of its requests, until the next attempt
    assert large < small <= 1.05 * most
    assert outcome(**{**terms, "lost_at_s": None}).refused_away == 0


def test_the_same_seed_gives_the_same_figures():
    assert outcome(workers=20, shards=2, seed=3) == outcome(workers=20, shards=2, seed=3)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"shards": 5, "workers": 2}, "shards must be at most workers=2"),
        ({"limit": "soft"}, "limit must be hard or expected"),
        ({"flush_s": 0.0}, "flush_s must be above 0"),
        ({"worst_usd": 0.0005}, "worst_usd must be at least cost_usd"),
        ({"lease_share": 0.9}, "lease_share must be at most 0.5"),
        ({"latency_s": float("nan")}, "latency_s must be"),
    ],
)
def test_settings_out_of_range_are_refused(terms, message):
    with pytest.raises(InvalidInput, match=message):
        FleetTerms(**terms)


def run(*arguments):
    return CliRunner().invoke(app, ["simulate", "--environment", "fleet", "--set", "workers=20", *arguments])


def test_the_command_prints_a_row_for_each_number_of_shards():
    said = run("--limit", "hard", "--shards", "1", "--shards", "4", "--set", "lost_at_s=2", "--set", "horizon_s=4")
    assert said.exit_code == 0, said.output
    assert "20 workers x 1,000 requests/s for 4 s" in said.output
    assert "4 shards: the first is lost at 2 s for 2 s" in said.output
    rows = json.loads(run("--limit", "hard", "--shards", "4", "--json").output)["fleets"]
    assert [row["shards"] for row in rows] == [4]
    assert rows[0]["overspend_usd"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--horizon", "9"), "a fleet has no --horizon"),
        (("--set", "speed=9"), "--set must be NAME=VALUE"),
        (("--set", "flush_s=soon"), "--set flush_s must be a number"),
    ],
)
def test_the_command_refuses_what_a_fleet_does_not_have(arguments, message):
    said = run(*arguments)
    assert said.exit_code != 0
    assert message in str(said.exception)
