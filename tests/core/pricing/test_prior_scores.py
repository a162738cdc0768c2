"""Prior qualities: the published ones, files of one's own, and what is refused."""

from datetime import date

import pytest

from wiserouter import Budget, Model, Price, PriorScores, WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.integration import PriorScore, RateCard, prepare_router, rates_of
from wiserouter.pricing.prior_scores import published_scores


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


QUESTIONS = {"Aider polyglot": 225, "MMLU": 14_042, "MATH": 500, "tau-bench airline, retail, telecom": 278}


def test_each_published_score_has_its_origin():
    rows = published_scores()
    assert len(rows) > 20
    for row in rows:
        assert row.source.startswith("https://")
        assert row.licence
        assert row.benchmark
        assert date.fromisoformat(row.date) < date(2027, 1, 1)
        variance = row.score * (1 - row.score) / QUESTIONS[row.benchmark]
        assert row.standard_error == pytest.approx(variance**0.5, abs=6e-4)
    assert {row.family for row in rows} == {"agents", "code", "general", "maths"}
    for family in {row.family for row in rows}:
        assert PriorScores.open(family).rows == tuple(row for row in rows if row.family == family)


@pytest.mark.parametrize("name", ["gpt-4.1", "openai/gpt-4.1", "GPT-4.1-2025-04-14", "azure/eu/gpt-4.1-20250414"])
def test_provider_date_and_case_do_not_count(name):
    assert PriorScores.open("code").find("unheard of", name).score == 0.524


def test_an_arm_has_the_prior_of_its_effort():
    models = [Model("gpt-5.2", params={"reasoning_effort": effort}) for effort in ("none", "low")]
    assert [model.score for model in PriorScores.open("agents").applied(models)] == [0.637, None]


@pytest.mark.parametrize("name", ["gpt-4", "gpt-4.1-turbo", "my-gpt-4.1", ""])
def test_other_models_have_no_prior(name):
    assert PriorScores.open("code").find(name) is None


def test_a_file_that_is_not_there_is_named_with_a_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"own\.csv: no such file: correct the path$"):
        PriorScores.open(str(tmp_path / "own.csv"))


def test_a_file_replaces_the_published_scores(tmp_path):
    scores = PriorScores.open(written(tmp_path / "own.csv", "model,score,standard_error\nsmall,0.5,0.25\nlarge,0.9,\n"))
    small, large, mine, other = scores.applied(
        [Model("small"), Model("x/large"), Model("small-2025-01-01", score=0.1), Model("other", Price(1e-6, 1e-6))]
    )
    assert (small.score, small.score_weight) == (0.5, 4.0)
    assert (large.score, large.score_weight) == (0.9, 20.0)
    assert mine.score == 0.1
    assert other == Model("other", Price(1e-6, 1e-6))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("model,quality\na,0.5\n", "lacks score"),
        ("", "lacks model, score"),
        ("model,score\na,72\n", r"row 1: score must lie in \[0, 1\], got '72': .* and divide percentages by 100"),
        ('model,score\na,"0,72"\n', "got '0,72': write decimals with a point"),
        ("model;score\na;0.5\n", "got 'model;score': name them so, with commas between them"),
        ("model,score\na,nan\n", r"got 'nan'"),
        ("model,score,standard_error\na,0.5,-1\n", "row 1: standard_error must lie"),
        ("model,score\n,0.5\n", "row 1: model must not be empty"),
        ("model,score\na,0.5\nx/A,0.6\n", "one score of each model, got two of 'x/A'"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, text, match):
    with pytest.raises(InvalidInput, match=match):
        PriorScores.open(written(tmp_path / "bad.csv", text))


def test_the_names_of_columns_may_have_capitals_and_blanks(tmp_path):
    scores = PriorScores.open(written(tmp_path / "own.csv", "Model , Score\nsmall, 0.5\n"))
    assert [(row.model, row.score) for row in scores.rows] == [("small", 0.5)]


@pytest.mark.parametrize("value", [None, 5])
def test_what_is_neither_a_family_nor_a_file_is_named(value):
    with pytest.raises(InvalidInput, match=r"priors must be a str, such as 'code' or 'own.csv', got"):
        PriorScores.open(value)


def test_an_unknown_family_names_those_there_are():
    families = r"a family of published scores \(agents, code, general, maths\)"
    with pytest.raises(InvalidInput, match=families + r" or a \.csv file, got 'chess'"):
        PriorScores.open("chess")


def test_an_adapter_keeps_the_scores_of_a_router_and_its_cards_bring_their_own():
    price = Price(1e-6, 1e-6)
    router = WiseRouter([Model("a", price, score=0.7, score_weight=5.0), Model("b", price, score=0.6)])
    plain = RateCard(price, tuple(rates_of(price)), "settings")
    listed = RateCard(price, tuple(rates_of(price)), "settings", prior=PriorScore("b", 0.2, 0.1))
    prepare_router(router, {"a": plain, "b": listed}, Budget(1.0, 10))
    a, b = router.pool.models
    assert (a.score, a.score_weight) == (0.7, 5.0)
    assert (b.score, b.score_weight) == (0.2, pytest.approx(16.0))
