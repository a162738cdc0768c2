"""The traffic forecast against a transcription of its definitions in plain loops, term by term."""

import math
from statistics import mean, median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter.budgets.arrivals import MAX_BUCKETS, Arrivals, Forecast
from wiserouter.budgets.forecast import TrafficHistory, forecast, levels, trend, weekly_profile

HOUR, DAY, WEEK = 3_600.0, 86_400.0, 7 * 86_400.0
MONDAY = 4 * DAY + 2_000 * WEEK
MEMORIES = (3.0, 12.0, 48.0, 192.0, 1_344.0)


def profile_by_hand(past):
    profile = [1.0] * 168
    n = len(past.counts) - 1
    for n_periods, length, n_slots in ((3, past.per_day, 24), (2, 7 * past.per_day, 7)):
        if n < n_periods * length:
            continue
        slots = [int(s) % 24 if n_slots == 24 else int(s) // 24 for s in past.slot[:n]]
        base = [past.seen[t] * profile[past.slot[t]] for t in range(n)]
        ratio = shape_by_hand(past.counts[:n], base, slots, n_slots, length)
        profile = [p * ratio[s % 24 if n_slots == 24 else s // 24] for s, p in enumerate(profile)]
    whole = mean(profile)
    return [p / whole for p in profile]


def shape_by_hand(counts, base, slots, n_slots, length):
    n = len(counts)
    n_periods = -(-n // length)
    got, due, observed = (np.zeros((n_periods, n_slots)) for _ in range(3))
    for t in range(n):
        first = min(max(t - length // 2, 0), n - length)
        span = range(first, first + length)
        local = sum(counts[i] for i in span) / max(sum(base[i] for i in span), 1e-9)
        got[t // length, slots[t]] += counts[t]
        due[t // length, slots[t]] += base[t] * local
        observed[t // length, slots[t]] += base[t]
    seen = [s for s in range(n_slots) if observed[:, s].sum() > observed.sum() / n_slots / 10]
    if not seen:
        return [1.0] * n_slots
    total = [max(due[:, s].sum(), 1e-9) for s in range(n_slots)]
    ratio = [got[:, s].sum() / total[s] if s in seen else 1.0 for s in range(n_slots)]
    noise = mean(sum((got[p, s] - ratio[s] * due[p, s]) ** 2 for p in range(n_periods)) / total[s] ** 2 for s in seen)
    noise *= n_periods / (n_periods - 1)
    spread = mean((ratio[s] - 1.0) ** 2 for s in seen)
    signal = max(0.0, 1.0 - noise / spread) if spread > 0 else 0.0
    return [max(1.0 + signal * (r - 1.0), 0.01) for r in ratio]


def levels_by_hand(past, due):
    n, rows, behind = len(due), [], []
    for memory in MEMORIES:
        row = []
        for i in range(n):
            fades = [math.exp(-(i - t) / memory) for t in range(i + 1)]
            since = past.prior_age - (n - 1 - i)
            prior = (
                memory * (1.0 - math.exp(-past.prior_seen / memory)) * math.exp(-since / memory) if since >= 0 else 0.0
            )
            counts = sum(f * c for f, c in zip(fades, past.counts, strict=False))
            seen = sum(f * d for f, d in zip(fades, due, strict=False))
            row.append((counts + prior * past.prior / past.prior_seen) / max(seen + prior, 1e-9))
        rows.append(row)
        behind.append(counts)
    return rows, behind


def weights_by_hand(counts, due, rates, look):
    n = len(counts)
    if n == 1:
        return [0.2] * 5
    square, recent = [[] for _ in rates], []
    for i in range(n - 1):
        ahead = range(i + 1, min(i + look, n - 1) + 1)
        got, share = sum(counts[t] for t in ahead), sum(due[t] for t in ahead)
        expected = [row[i] * share for row in rates]
        for errors, one in zip(square, expected, strict=True):
            errors.append((got - one) ** 2 / (mean(expected) + 1.0))
        recent.append(math.exp((i - n) / 72.0) / len(ahead))
    loss = [sum(s * r for s, r in zip(errors, recent, strict=True)) for errors in square]
    scale = max(1.0, median(square[loss.index(min(loss))]) / 0.455)
    weight = [math.exp((min(loss) - one) / (2.0 * scale)) for one in loss]
    return [one / sum(weight) for one in weight]


def slope_by_hand(values):
    (slope, _), covariance = np.polyfit(range(len(values)), values, 1, cov=True)
    return slope * max(0.0, 1.0 - 4.0 * covariance[0, 0] / slope**2) if slope else 0.0


def trend_by_hand(past, profile):
    n_weeks = min((len(past.counts) - 1) // past.per_day // 7, 4)
    half = 7 * (n_weeks // 2)
    if not half:
        return 0.0
    days = []
    for day in range(2 * half, 0, -1):
        at = range(len(past.counts) - 1 - day * past.per_day, len(past.counts) - 1 - (day - 1) * past.per_day)
        days.append((sum(past.counts[t] for t in at), sum(past.seen[t] * profile[past.slot[t]] for t in at)))
    if min(due for _, due in days) <= mean(due for _, due in days) / 4:
        return 0.0
    logs = [math.log((count + 0.5) / due) for count, due in days]
    early, late = slope_by_hand(logs[:half]), slope_by_hand(logs[half:])
    return min(early, late, key=abs) if early * late > 0 else 0.0


def error_by_hand(past, due, rate, ahead):
    n = len(due)
    span = max(1, min(ahead, n // 3))
    unseen = math.exp(-n / past.per_day) * min(1.0, ahead / n)
    starts = range(span, n - span + 1)
    if not starts:
        return unseen
    above = below = 0.0
    for start in starts:
        expected = max(rate[start - 1] * sum(due[start : start + span]), 1e-9)
        actual = sum(past.counts[start : start + span])
        above += (actual - expected) ** 2 - expected
        below += expected**2
    variance = max(above / below, 0.0) * (1.0 + 2.0 / (len(starts) / span + 1.0)) * max(1.0, ahead / span)
    return min(math.sqrt(variance + unseen**2), 10.0)


def forecast_by_hand(past, share, slot):
    profile = profile_by_hand(past)
    due = [s * profile[at] for s, at in zip(past.seen, past.slot, strict=True)]
    rates, behind = levels_by_hand(past, due)
    weight = weights_by_hand(past.counts, due, rates, int(min(max(len(slot) / 2, 12), 72)))
    rate = [sum(w * row[i] for w, row in zip(weight, rates, strict=True)) for i in range(len(due))]
    daily, after = trend_by_hand(past, profile), 0.0
    for k, (part, at) in enumerate(zip(share, slot, strict=True)):
        days = min((k + 1) / past.per_day, len(past.counts) / past.per_day)
        after += rate[-1] * part * profile[at] * math.exp(daily * days)
    basis = sum(w * b for w, b in zip(weight, behind, strict=True))
    return rate[-1] * profile[past.slot[-1]], after, error_by_hand(past, due, rate, len(slot)), basis


def history(n, per_day, seed, *, flat=False, gaps=True, growth=0.0):
    rng = np.random.default_rng(seed)
    at = np.arange(n)
    hour = at * (24 // per_day) if per_day <= 24 else at // (per_day // 24)
    slot = (hour + int(rng.integers(168))) % 168
    mean_count = 20.0 * np.exp(growth * at / per_day)
    if not flat:
        mean_count = mean_count * (1.2 + np.sin(2 * np.pi * slot / 24)) * np.where(slot // 24 >= 5, 0.4, 1.2)
    counts = rng.poisson(mean_count).astype(float)
    seen = np.ones(n)
    if gaps:
        seen[rng.random(n) < 0.1] = rng.random()
        seen[-1] = rng.random()
    age = float(rng.integers(0, 2 * n)) + rng.random()
    return TrafficHistory(counts, seen, slot, per_day, float(rng.random() * 50), 0.1 + float(rng.random() * 5), age)


CASES = [
    (1, 24, False, 0.0),
    (2, 24, False, 0.0),
    (5, 24, True, 0.0),
    (30, 24, False, 0.0),
    (72, 24, False, 0.0),
    (73, 24, False, 0.0),
    (8 * 7 * 2 + 1, 8, False, 0.02),
    (12 * 7 * 2 + 5, 12, True, 0.05),
    (6 * 7 * 4 + 3, 6, True, -0.04),
    (6 * 7 * 6 + 3, 6, False, 0.03),
    (2 * 24 * 4, 48, False, 0.0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("ahead", [1, 7, 40, 200])
def test_a_forecast_is_what_its_definitions_say(case, ahead):
    n, per_day, flat, growth = case
    past = history(n, per_day, n + ahead, flat=flat, growth=growth)
    rng = np.random.default_rng(ahead)
    share, slot = rng.random(ahead), (past.slot[-1] + 1 + np.arange(ahead)) % 168
    assert tuple(forecast(past, share, slot)) == pytest.approx(forecast_by_hand(past, share, slot), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_profile_levels_and_trend_are_what_their_definitions_say(case):
    n, per_day, flat, growth = case
    for gaps in (False, True):
        past = history(n, per_day, n, flat=flat, gaps=gaps, growth=growth)
        profile = weekly_profile(past)
        assert profile == pytest.approx(profile_by_hand(past), rel=1e-9)
        due = past.seen * profile[past.slot]
        rates, behind = levels(past, due)
        by_hand = levels_by_hand(past, due)
        assert rates == pytest.approx(np.array(by_hand[0]), rel=1e-9)
        assert behind == pytest.approx(by_hand[1], rel=1e-9)
        assert trend(past, profile) == pytest.approx(trend_by_hand(past, profile), rel=1e-6, abs=1e-12)


def test_a_trend_that_both_halves_show_is_followed_and_one_with_a_hardly_seen_day_is_not():
    past = history(6 * 7 * 4 + 1, 6, 1, flat=True, gaps=False, growth=0.05)
    flat = np.ones(168)
    assert trend(past, flat) > 0.02
    seen = past.seen.copy()
    seen[-19:-13] = 0.2
    assert trend(past._replace(seen=seen), flat) == 0.0
    assert trend(history(6 * 7 * 2, 6, 1, flat=True, gaps=False, growth=0.05), flat) == 0.0


def test_slots_that_were_hardly_observed_have_no_ratio():
    past = history(24 * 4 + 1, 24, 2, gaps=False)
    seen = np.where(past.slot % 24 < 6, 0.01, 1.0)
    profile = weekly_profile(past._replace(seen=seen))
    assert profile == pytest.approx(profile_by_hand(past._replace(seen=seen)), rel=1e-9)
    assert weekly_profile(past._replace(seen=np.zeros(len(seen)))) == pytest.approx(np.ones(168))


# The record


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0.0, 5_000.0), st.integers(-1, 3), st.booleans()), min_size=1, max_size=30),
    st.sampled_from([HOUR, DAY, 3 * DAY]),
)
def test_a_record_counts_by_bucket_and_knows_what_it_did_not_see(steps, window_s):
    start = MONDAY + 1_234.5
    arrivals, bucket_s = Arrivals(start, window_s), min(HOUR, window_s / 24)
    counts, unseen, refused, now = {}, {}, None, start
    for step, n, refuse in steps:
        now += step
        if refuse:
            arrivals.note_refusal(now)
            refused = now if refused is None else refused
            continue
        arrivals.add(now, n)
        counts[int(now // bucket_s)] = counts.get(int(now // bucket_s), 0) + n
        if refused is not None:
            for bucket in range(int(refused // bucket_s), int(now // bucket_s) + 1):
                covered = min(now, (bucket + 1) * bucket_s) - max(refused, bucket * bucket_s)
                unseen[bucket] = unseen.get(bucket, 0.0) + max(0.0, covered) / bucket_s
            refused = None
    assert (arrivals.bucket_s, arrivals.window_s, arrivals.start_s) == (bucket_s, window_s, start)
    first = arrivals.first
    assert arrivals.counts == [counts.get(first + i, 0) for i in range(len(arrivals.counts))]
    assert arrivals.unseen == pytest.approx([unseen.get(first + i, 0.0) for i in range(len(arrivals.unseen))])
    assert {b for b in counts if counts[b]} <= set(range(first, first + len(arrivals.counts)))
    again = Arrivals.of_settings(arrivals.settings())
    assert again.settings() == arrivals.settings()
    end = now + window_s
    if refused is None:
        assert again.forecast(now, end) == arrivals.forecast(now, end)


def test_the_length_of_a_bucket_follows_from_that_of_the_window():
    lengths = [
        Arrivals(0.0, window_s).bucket_s for window_s in (240.0, HOUR, DAY, 7 * DAY, 10_000 * HOUR, 20_000 * HOUR)
    ]
    assert lengths == [10.0, 150.0, HOUR, HOUR, HOUR, 2 * HOUR]


def test_the_settings_of_a_record():
    arrivals = Arrivals(MONDAY, DAY, "Europe/Berlin")
    arrivals.add(MONDAY + HOUR, 3)
    arrivals.expect(240.0, MONDAY + HOUR)
    assert arrivals.settings() == {
        "start_s": MONDAY,
        "window_s": DAY,
        "timezone": "Europe/Berlin",
        "first": int(MONDAY // HOUR),
        "counts": [0, 3],
        "unseen": [0.0, 0.0],
        "prior": (24.0, 2.4, MONDAY + HOUR),
    }
    arrivals.expect(None, MONDAY)
    assert arrivals.settings()["prior"] == (1.0, 0.24, MONDAY)
    assert Arrivals(MONDAY, 30 * DAY).settings()["prior"] == (1.0, 1.0, MONDAY)


def test_a_forecast_uses_the_history_of_the_record():
    rng = np.random.default_rng(5)
    start = MONDAY + 900.0
    arrivals = Arrivals(start, DAY)
    arrivals.expect(120.0, start)
    counts = rng.poisson(9.0, 60)
    for hour, n in enumerate(counts):
        arrivals.add(MONDAY + hour * HOUR + 1_000.0, int(n))
    now, end = MONDAY + 59 * HOUR + 1_800.0, MONDAY + 72 * HOUR + 600.0
    at = np.arange(60)
    seen = np.ones(60)
    seen[0], seen[-1] = 0.75, 0.5
    age = (now - start) / HOUR
    past = TrafficHistory(counts.astype(float), seen, at % 168, 24, 12.0, 2.4, age)
    share = np.append(np.ones(12), 1 / 6)
    rate, after, error, _ = forecast_by_hand(past, share, (60 + np.arange(13)) % 168)
    requests = after + rate * 0.5
    assert arrivals.requests(now, end) == pytest.approx(requests, rel=1e-9)
    spread = 1.2816 * math.sqrt(requests + (error * requests) ** 2)
    assert arrivals.forecast(now, end) == pytest.approx(
        Forecast(requests, max(0.0, requests - spread), requests + spread)
    )
    assert arrivals.requests(now + 900.0, end) == pytest.approx(after + rate * 0.25, rel=1e-9)
    assert arrivals.requests(now, MONDAY + 59 * HOUR + 2_700.0) == pytest.approx(rate * 0.25, rel=0.05)


def test_the_record_keeps_the_last_eight_weeks():
    arrivals = Arrivals(MONDAY, DAY)
    arrivals.add(MONDAY, 7)
    arrivals.add(MONDAY + (MAX_BUCKETS - 1) * HOUR, 5)
    assert (len(arrivals.counts), arrivals.counts[0], arrivals.counts[-1]) == (MAX_BUCKETS, 7, 5)
    arrivals.add(MONDAY + MAX_BUCKETS * HOUR, 3)
    assert (len(arrivals.counts), sum(arrivals.counts)) == (MAX_BUCKETS, 8)
    assert arrivals.first == int(MONDAY // HOUR) + 1
    arrivals.add(MONDAY - HOUR, 2)  # a clock that was set back
    assert arrivals.counts[0] == 2
    assert len(arrivals.unseen) == MAX_BUCKETS


def test_a_record_begins_again_where_the_clock_has_left_it():
    arrivals = Arrivals(MONDAY, DAY)
    arrivals.expect(48, MONDAY)
    arrivals.add(MONDAY, 7)
    assert arrivals.at(MONDAY) is arrivals.at(MONDAY + (MAX_BUCKETS - 1) * HOUR) is arrivals
    for far_s in (MONDAY - DAY, MONDAY + 3_650 * DAY):
        assert arrivals.at(far_s).requests(far_s, far_s + DAY) == pytest.approx(48, rel=0.01)
