"""Scores of several sources of one call: which one is learned, and how they are kept as text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiserouter.errors import InvalidInput, StoreDamaged
from wiserouter.learning.source_scores import (
    SourceScore,
    change_of_evidence,
    check_source,
    check_weight,
    evidence,
    scores_of_texts,
    text_of_score,
    with_event,
    with_score,
)
from wiserouter.validation import check_reward

SHARES = st.floats(0.0, 1.0)
SCORES = st.builds(SourceScore, SHARES, SHARES, st.floats(-2.0, 3.0))
SOURCES = st.sampled_from(["human", "rule:truncated", "rule:b", "judge:mini", "judge:a/b@2"])


@given(st.dictionaries(SOURCES, SCORES))
def test_texts_keep_every_bit(scores):
    texts = {source: text_of_score(score) for source, score in scores.items()}
    assert scores_of_texts(texts, "store") == scores


@given(st.lists(st.tuples(SOURCES, SCORES)))
def test_the_evidence_does_not_depend_on_the_order_of_sources(given_scores):
    latest = dict(given_scores)
    forward, backward = {}, {}
    for source, score in latest.items():
        forward = with_score(forward, source, score)
    for source, score in reversed(latest.items()):
        backward = with_score(backward, source, score)
    assert evidence(forward) == evidence(backward)


@given(st.dictionaries(SOURCES, SCORES), SHARES)
def test_a_person_outranks_a_rule_and_a_rule_a_judge(scores, reward):
    rated = SourceScore(reward, 1.0, reward)
    assert evidence(with_score(scores, "human", rated)) == rated
    judges = {source: score for source, score in scores.items() if source.startswith("judge:")}
    assert evidence(with_score(judges, "rule:truncated", rated)) == rated
    without_weight = {source: score._replace(weight=0.0) for source, score in scores.items()}
    assert evidence(without_weight) is None


@given(st.dictionaries(SOURCES, SCORES))
def test_the_evidence_is_the_heaviest_score_of_the_most_reliable_kind(scores):
    weighed = {source: score for source, score in scores.items() if score.weight > 0.0}
    kinds = [kind for kind in ("human", "rule", "judge") if any(source.startswith(kind) for source in weighed)]
    best = [source for source in weighed if source.startswith(kinds[0])] if kinds else []
    heaviest = sorted(best, key=lambda source: (-weighed[source].weight, source))
    assert evidence(scores) == (weighed[heaviest[0]] if heaviest else None)


@given(st.dictionaries(SOURCES, SCORES), SOURCES, SCORES)
def test_a_score_changes_the_evidence_from_that_of_before_to_that_of_all(before, source, score):
    assert change_of_evidence(before, source, score) == (evidence(before), evidence({**before, source: score}))


@given(SHARES)
def test_numbers_of_every_type_weigh_and_score_alike(share):
    for number in (share, np.float64(share)):
        assert check_weight(number) == check_reward(number) == share
    for number in (0, 1, True, np.int64(1)):
        assert (type(check_weight(number)), type(check_reward(number))) == (float, float)
    assert (type(check_reward(np.True_)), check_reward(np.False_)) == (float, 0.0)
    for number in (-1e-9, 1.0 + 1e-9, float("nan"), float("inf"), "1", None):
        for check in (check_weight, check_reward):
            with pytest.raises(InvalidInput, match="must lie in"):
                check(number)


def test_lines_of_a_journal_are_scores_as_the_router_keeps_them():
    scores = with_event({}, {"reward": 0.5, "source": "judge:b", "weight": 0.25, "counted": 0.75})
    scores = with_event(scores, {"reward": 0.25, "source": "judge:a", "weight": 0.125})
    assert evidence(scores) == SourceScore(0.5, 0.25, 0.75)
    scores = with_event(scores, {"reward": 0.0, "source": None, "weight": 0.0})
    assert evidence(scores) == SourceScore(0.5, 0.25, 0.75)
    assert evidence(with_event(scores, {"reward": 1.0})) == SourceScore(1.0, 1.0, 1.0)


@pytest.mark.parametrize("source", ["", "judge", "judge:", "human:me", "user", "rule:a b", "judge:" + "x" * 101, None])
def test_sources_of_no_known_kind_are_refused(source):
    with pytest.raises(InvalidInput, match="source must be"):
        check_source(source)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), "1"])
def test_weights_outside_the_unit_interval_are_refused(weight):
    with pytest.raises(InvalidInput, match="weight must lie"):
        check_weight(weight)


@pytest.mark.parametrize("text", ["", "x", "2.0", "0.5 0.5", "0.5 0.5 inf", "0.5 2 0.5"])
def test_a_damaged_score_is_reported(text):
    with pytest.raises(StoreDamaged, match="a score that cannot be read"):
        scores_of_texts({"human": text}, "store")
