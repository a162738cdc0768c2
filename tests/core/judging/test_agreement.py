"""The agreement of judges with people: sums, the line against a reference regression, corrections and warnings."""

import logging
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter import Budget, Model, Price, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.judging.agreement import (
    NOISE,
    PRIOR_MEAN,
    PRIOR_SPREAD,
    Agreement,
    ModelAgreement,
    checked_sums,
    places_of,
    rise_of,
)
from wiserouter.judging.agreements import Agreements
from wiserouter.judging.bias_warnings import bias_warning, price_warning
from wiserouter.learning.source_scores import SourceScore

PLACES = {"small": -0.5, "medium": 0.1, "large": 0.5}
SHARES = st.floats(0.0, 1.0)
PAIRS = st.lists(st.tuples(st.sampled_from([*PLACES]), SHARES, SHARES), max_size=30)


def of_pairs(pairs):
    agreement = Agreement()
    for model, judge, person in pairs:
        agreement.add(model, judge, person)
    return agreement


def of_judged(scores):
    agreement = Agreement()
    for model, judge in scores:
        agreement.add_judged(model, judge)
    return agreement


def judged(n, *, bias=0.0, slope=0.0, right=0.8, seed=0):
    """Return scores of a judge as in `simulated`, of models whose quality rises by `slope` over the range of prices."""
    rng = np.random.default_rng(seed)
    models = rng.choice([*PLACES], size=n)
    place = np.array([PLACES[name] for name in models])
    person = rng.random(n) < 0.6 + slope * place
    says = np.where(person, right, 1.0 - right) + bias * place
    return of_judged(zip(models.tolist(), (rng.random(n) < says).astype(float).tolist(), strict=True))


def simulated(n, *, bias=0.0, right=0.8, seed=0):
    """Return pairs of a judge who is right with probability `right`, biased by `bias` over the range of prices."""
    rng = np.random.default_rng(seed)
    models = rng.choice([*PLACES], size=n)
    person = (rng.random(n) < 0.5).astype(float)
    says = np.where(person > 0, right, 1.0 - right) + bias * np.array([PLACES[name] for name in models])
    judge = (rng.random(n) < says).astype(float)
    return of_pairs(zip(models.tolist(), judge.tolist(), person.tolist(), strict=True))


@given(PAIRS)
def test_the_line_is_that_of_a_regression_on_the_pairs_themselves(pairs):
    """Rows of the prior are appended to the design, and the whole solved by least squares, at the noise found."""
    agreement = of_pairs(pairs)
    found = agreement.correction(PLACES)
    if not pairs:
        assert found == Agreement().correction({})
        return
    x = np.array([[1.0, person, PLACES[model]] for model, _, person in pairs])
    y = np.array([judge for _, judge, _ in pairs])
    noise, line = NOISE, None
    for _ in range(3):
        design = np.vstack([x / np.sqrt(noise), np.diag(1.0 / np.array(PRIOR_SPREAD))])
        target = np.concatenate([y / np.sqrt(noise), np.array(PRIOR_MEAN) / PRIOR_SPREAD])
        line = np.linalg.lstsq(design, target)[0]
        noise = (10.0 * NOISE + ((y - x @ line) ** 2).sum()) / (10.0 + len(y))
    np.testing.assert_allclose(found[:3], line, atol=1e-8)


@given(PAIRS, PAIRS)
def test_pairs_that_are_taken_back_leave_nothing(kept, taken):
    agreement = of_pairs([*kept, *taken])
    for pair in taken:
        agreement.add(*pair, count=-1)
    assert agreement.pairs == len(kept)
    np.testing.assert_allclose(agreement.correction(PLACES)[:3], of_pairs(kept).correction(PLACES)[:3], atol=1e-6)


def test_few_pairs_change_little_and_many_take_the_noise_out():
    few = simulated(3).correction(PLACES)
    assert abs(few.applied(1.0, 0.0) - 1.0) < 0.2
    many = simulated(20_000, bias=-0.3).correction(PLACES)
    assert (many.offset, many.slope, many.bias) == pytest.approx((0.2, 0.6, -0.3), abs=0.03)
    for place in PLACES.values():  # a model whose answers people rate .7 on average
        mean = 0.7 * 0.8 + 0.3 * 0.2 - 0.3 * place
        corrected = mean * many.applied(1.0, place) + (1.0 - mean) * many.applied(0.0, place)
        assert corrected == pytest.approx(0.7, abs=0.03)


def test_a_bias_toward_cheap_models_is_told_and_no_other():
    assert "0." in bias_warning("judge:mini", simulated(600, bias=-0.3), PLACES)
    assert bias_warning("judge:mini", simulated(600, bias=0.3), PLACES) is None
    assert bias_warning("judge:mini", simulated(11, bias=-0.3), PLACES) is None
    false = sum(bias_warning("judge:mini", simulated(100, seed=seed), PLACES) is not None for seed in range(200))
    assert false <= 10


@given(st.lists(st.tuples(st.sampled_from([*PLACES]), SHARES), min_size=3, max_size=40))
def test_the_slope_over_prices_is_that_of_least_squares(scores):
    x, y = np.array([PLACES[model] for model, _ in scores]), np.array([judge for _, judge in scores])
    slope, error = of_judged(scores).price_slope(PLACES)
    if len(set(x.tolist())) == 1:
        assert (slope, error) == (0.0, np.inf)
        return
    design = np.column_stack([np.ones(len(x)), x])
    line, *_ = np.linalg.lstsq(design, y)
    noise = (10.0 * NOISE + ((y - design @ line) ** 2).sum()) / (10.0 + len(y))
    assert slope == pytest.approx(line[1], abs=1e-8)
    assert error == pytest.approx((noise * np.linalg.inv(design.T @ design)[1, 1]) ** 0.5, rel=1e-6)


def test_scores_that_fall_as_prices_rise_are_told_without_people():
    found = [price_warning("judge:mini", judged(500, bias=-0.4, slope=0.25, seed=seed), PLACES) for seed in range(100)]
    assert sum(line is not None for line in found) >= 95
    assert "either it is worth less here, or the judge prefers cheap models" in found[0]
    fair = [price_warning("judge:mini", judged(500, slope=0.0, seed=seed), PLACES) for seed in range(200)]
    assert sum(line is not None for line in fair) <= 8
    assert price_warning("judge:mini", judged(29, bias=-0.4), PLACES) is None
    assert price_warning("judge:mini", of_judged([("small", 1.0)] * 40), PLACES) is None


def test_scores_that_fall_as_prices_rise_count_as_bias_until_people_say_otherwise():
    falling, rising = judged(500, bias=-0.4), judged(500, bias=0.4)
    slope, error = falling.price_slope(PLACES)
    assert rising.cautious_correction(PLACES).bias == rising.correction(PLACES).bias == 0.0
    assert falling.cautious_correction(PLACES).bias == pytest.approx(slope * 0.6**2 / (0.6**2 + error**2))
    assert falling.cautious_correction(PLACES, 0.2).bias == pytest.approx((slope - 0.2) * 0.6**2 / (0.6**2 + error**2))
    rng = np.random.default_rng(1)
    for model in rng.choice([*PLACES], size=20_000).tolist():  # people rate expensive models lower, too
        person = float(rng.random() < 0.5 - 0.6 * PLACES[model])
        falling.add(model, float(rng.random() < 0.2 + 0.6 * person), person)
    found = falling.correction(PLACES)
    assert falling.cautious_correction(PLACES, 0.2).bias == pytest.approx(found.bias, abs=0.02)
    assert found.bias == pytest.approx(0.0, abs=0.03)


def test_only_a_fall_beyond_chance_is_corrected_to_the_expected_rise():
    by_chance = [judged(100, slope=0.0, seed=seed) for seed in range(50)]
    for agreement in by_chance:
        slope, error = agreement.price_slope(PLACES)
        assert (slope < -2.3 * error) == (
            agreement.cautious_correction(PLACES, 0.2).bias < agreement.cautious_correction(PLACES).bias
        )
    assert sum(each.price_slope(PLACES)[0] < 0.0 for each in by_chance) >= 15
    falling = judged(20_000, bias=-0.4)
    line = falling.cautious_correction(PLACES, 0.2)
    learned = of_judged(
        (name, line.applied(float(i < ones), PLACES[name]))
        for name, ones, n in ((name, round(each[-2]), round(each[-3])) for name, each in falling.sums().items())
        for i in range(n)
    )
    assert learned.price_slope(PLACES)[0] == pytest.approx(0.2, abs=0.002)


@given(PAIRS, st.lists(st.tuples(st.sampled_from([*PLACES]), SHARES), max_size=30), st.floats(0.0, 0.5))
def test_caution_only_ever_lowers_the_bias(pairs, scores, rise):
    agreement = of_pairs(pairs)
    for model, judge in scores:
        agreement.add_judged(model, judge)
    found, cautious = agreement.correction(PLACES), agreement.cautious_correction(PLACES, rise)
    slope, _ = agreement.price_slope(PLACES)
    assert cautious[:2] == found[:2]
    assert min(slope - found.slope * rise, found.bias) - 1e-9 <= cautious.bias <= found.bias + 1e-9


def test_people_that_rate_expensive_models_lower_too_silence_the_warning():
    rng, agreement = np.random.default_rng(0), Agreement()
    for _ in range(600):
        model = str(rng.choice([*PLACES]))
        person = float(rng.random() < 0.5 - 0.6 * PLACES[model])
        judge = float(rng.random() < 0.2 + 0.6 * person)
        agreement.add(model, judge, person)
        agreement.add_judged(model, judge)
    assert agreement.price_slope(PLACES)[0] < -0.2
    assert price_warning("judge:mini", agreement, PLACES) is None


def test_a_judge_that_gives_all_calls_one_score_is_named_as_long_as_it_does(caplog):
    caplog.set_level(logging.WARNING)
    agreements = Agreements()

    def note(model, score, times):
        for _ in range(times):
            agreements.note(model, {}, "judge:a", SourceScore(score, 1.0, score))
        return agreements.lines()

    assert note("small", 0.7, 150) == ()  # one model: there is nothing to tell apart
    (line,) = note("large", 0.7, 50)
    assert "gave each of 200 calls the score 0.70" in line
    assert len(caplog.messages) == 1
    assert note("large", 0.75, 1) == ()


def test_what_people_show_replaces_what_prices_suggest(caplog):
    caplog.set_level(logging.WARNING)
    agreements, rng = Agreements(), np.random.default_rng(0)
    agreements.place(PLACES)
    for _ in range(400):
        model = str(rng.choice([*PLACES]))
        judge = SourceScore(float(rng.random() < 0.5 - 0.8 * PLACES[model]), 1.0, 0.0)
        agreements.note(model, {}, "judge:a", judge)
    assert "either it is worth less here" in agreements.warnings["judge:a"]
    for _ in range(200):
        model = str(rng.choice([*PLACES]))
        judge = SourceScore(float(rng.random() < 0.5 - 0.8 * PLACES[model]), 1.0, 0.0)
        agreements.note(model, {"judge:a": judge}, "human", SourceScore(float(rng.random() < 0.5), 1.0, 0.0))
    line = agreements.warnings["judge:a"]
    assert "where people rate them alike" in line
    assert int(re.search(r"([0-9]+) calls scored by both", line)[1]) > 200 / 1.3  # the latest figures
    assert len(caplog.messages) == 2


def test_a_score_that_is_replaced_counts_once():
    agreements = Agreements()
    first, second = SourceScore(0.2, 1.0, 0.2), SourceScore(0.9, 1.0, 0.9)
    agreements.note("small", {}, "judge:a", first)
    agreements.note("small", {"judge:a": first}, "judge:a", second)
    assert agreements.of["judge:a"].judged == 1
    assert agreements.sums()["judge:a"]["small"][-3:] == pytest.approx([1.0, 0.9, 0.81])


def test_agreement_is_measured_per_model():
    agreement = of_pairs([("small", 1.0, 1.0), ("small", 0.0, 1.0), ("large", 0.5, 0.25)])
    assert agreement.of_models() == {
        "small": ModelAgreement(2, 0.5, -0.5),
        "large": ModelAgreement(1, 0.75, 0.25),
    }
    assert agreement.share == pytest.approx(1.0 - 1.25 / 3)
    assert Agreement(agreement.sums()).of_models() == agreement.of_models()


def test_models_without_a_price_stand_in_the_middle():
    assert places_of({"a": 1.0, "b": float("inf"), "c": 0.0, "d": 100.0}) == {"a": -0.5, "d": 0.5}
    assert places_of({"a": 1.0, "b": 1.0}) == {"a": 0.0, "b": 0.0}
    assert rise_of({"a": 1.0, "b": float("inf"), "c": 0.0}) == rise_of({}) == 0.0


@given(st.lists(st.tuples(st.sampled_from(["human", "judge:a", "judge:b", "rule:c"]), SHARES), max_size=10))
def test_one_pair_per_judge_and_call_whatever_comes_first(events):
    agreements, before = Agreements(), {}
    for source, reward in events:
        score = SourceScore(reward, 1.0, reward)
        agreements.note("small", before, source, score)
        before = {**before, source: score}
    for judge in ("judge:a", "judge:b"):
        paired = judge in before and "human" in before
        agreement = agreements.of.get(judge, Agreement())
        assert agreement.pairs == paired
        if paired:
            assert agreement.share == pytest.approx(1.0 - abs(before[judge].reward - before["human"].reward), abs=1e-9)


def test_the_router_warns_once_in_log_status_and_explanation(caplog):
    caplog.set_level(logging.WARNING)
    router = WiseRouter([Model("small", Price(1e-7, 1e-7)), Model("large", Price(1e-5, 1e-5))], seed=0)
    router.start(Budget(10.0, 10_000))
    rng = np.random.default_rng(0)
    for _ in range(300):
        decision = router.decide("hello", eligible=[("small", "large")[int(rng.integers(2))]])
        router.charge(decision, 1e-6)
        router.reward(decision, 0.5, source="judge:mini")
        router.reward(decision, 0.5 if decision.model == "small" else 1.0)
    (line,) = router.status().warnings
    assert "judge:mini rates the most expensive model" in line
    assert caplog.text.count("judge:mini rates") == 1
    assert router.explain(decision).warnings == (line,)
    assert line in str(router.status())
    late = router.decide("hello", eligible=["large"])
    router.reward(late, 0.5, source="judge:mini")
    counted = router._store.find(late.id).scores["judge:mini"].counted
    assert counted > 0.65


def test_an_artifact_keeps_the_pairs(tmp_path):
    router = WiseRouter([Model("small", Price(1e-7, 1e-7)), Model("large", Price(1e-5, 1e-5))], seed=0)
    router.start(Budget(10.0, 10_000))
    for _ in range(20):
        decision = router.decide("hello")
        router.charge(decision, 1e-6)
        router.reward(decision, 0.5, source="judge:mini")
        router.reward(decision, 1.0)
    router.save(tmp_path / "judged.wise")
    again = WiseRouter.load(tmp_path / "judged.wise")
    assert again.parts().agreements == router.parts().agreements
    assert again._learner.corrected("judge:mini", 0, 0.5) == router._learner.corrected("judge:mini", 0, 0.5) > 0.5


DAMAGED = ([], {"anyone": {}}, {"judge:a": []}, {"judge:a": {"m": [1.0]}}, {"judge:a": {"m": [None] * 10}})


@pytest.mark.parametrize("sums", DAMAGED)
def test_damaged_sums_are_refused(sums):
    with pytest.raises(InvalidInput):
        checked_sums(sums)
