"""Simulated conversations: bills against figures worked out by hand, moments of workloads, and small runs."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from typer.testing import CliRunner

from wiserouter.cli import app
from wiserouter.errors import InvalidInput, UnknownModel
from wiserouter.evaluation.conversations import agents, chats
from wiserouter.evaluation.conversations.caching_provider import CachingProvider
from wiserouter.evaluation.conversations.equal_spend import quality_at
from wiserouter.evaluation.conversations.experiment import ConversationStudy, simulate_conversations
from wiserouter.evaluation.conversations.history import call_estimates, call_sums, run_estimates, served_alone
from wiserouter.evaluation.conversations.oracle import ScoredUnits
from wiserouter.evaluation.conversations.provider_terms import ProviderTerms, provider_terms, snapshot_date
from wiserouter.evaluation.conversations.session_loop import SimulatedClock, serve
from wiserouter.evaluation.conversations.summary import summarise_policies
from wiserouter.evaluation.conversations.workload import SimulatedCall
from wiserouter.pricing.prices import Price, Usage

UNIT = 2.0**-17
"""USD per token in which prices are given here: a power of two, so that sums are exact."""

READS = ProviderTerms("reads", Price(2.0 * UNIT, 10.0 * UNIT, cache_read=0.5 * UNIT), 300.0, 100)
WRITES = ProviderTerms(
    "writes", Price(4.0 * UNIT, 20.0 * UNIT, cache_read=0.4 * UNIT, cache_write=5.0 * UNIT), 300.0, 100
)


def test_a_bill_counts_what_the_cache_has_reads_and_writes():
    provider = CachingProvider([READS, WRITES])
    first = provider.call("a", 0, 200, 10, now_s=0.0)
    assert first.usage == Usage(200, 10)
    assert first.cost_usd == (200 * 2.0 + 10 * 10.0) * UNIT
    second = provider.call("a", 0, 300, 10, now_s=300.0)
    assert second.usage == Usage(300, 10, cache_read_tokens=200)
    assert second.cost_usd == (200 * 0.5 + 100 * 2.0 + 10 * 10.0) * UNIT
    assert first.wasted_usd == second.wasted_usd == 0.0
    other = provider.call("a", 1, 400, 10, now_s=310.0)
    assert other.usage == Usage(400, 10, cache_write_tokens=400)
    assert other.cost_usd == (400 * 5.0 + 10 * 20.0) * UNIT
    assert other.wasted_usd == pytest.approx(300 * (5.0 - 0.4) * UNIT)
    back = provider.call("a", 0, 500, 10, now_s=320.0)
    assert back.usage == Usage(500, 10, cache_read_tokens=300)
    assert back.wasted_usd == pytest.approx(100 * (2.0 - 0.5) * UNIT)


def test_a_prefix_is_gone_after_its_time_to_live_and_with_its_conversation():
    provider = CachingProvider([READS])
    provider.call("a", 0, 200, 1, now_s=0.0)
    late = provider.call("a", 0, 300, 1, now_s=300.1)
    assert late.usage.cache_read_tokens == 0
    assert late.wasted_usd == 0.0
    assert provider.call("b", 0, 300, 1, now_s=301.0).usage.cache_read_tokens == 0
    provider.forget("a")
    assert provider.call("a", 0, 300, 1, now_s=302.0).usage.cache_read_tokens == 0


def test_a_shared_system_prompt_is_always_read_and_a_short_prefix_never():
    provider = CachingProvider([READS, READS._replace(min_cacheable_tokens=400)], shared_tokens=150)
    assert provider.call("a", 0, 200, 1, now_s=0.0).usage.cache_read_tokens == 150
    assert provider.call("a", 1, 500, 1, now_s=1.0).usage.cache_read_tokens == 0
    assert provider.call("b", 0, 99, 1, now_s=2.0).usage == Usage(99, 1)


def test_the_prices_are_those_of_a_dated_snapshot():
    by_name = {terms.model: terms for terms in provider_terms()}
    assert snapshot_date() == "2026-11-22"
    assert len(by_name) >= 10
    assert by_name["claude-sonnet-4-5"].price == Price(3e-6, 1.5e-5, 3e-7, 3.75e-6)
    assert by_name["gpt-5-mini"].price == Price(2.5e-7, 2e-6, 2.5e-8)
    assert by_name["deepseek-chat"].cache_ttl_s == 3600.0
    with pytest.raises(UnknownModel, match="gpt-9"):
        provider_terms(["gpt-9"])


def test_agent_runs_have_the_documented_moments():
    tasks = agents.agent_workload(seed=5, n_runs=2_000).scripts
    success = np.array([task.success for task in tasks]).mean(axis=0)
    published = {"gpt-5-nano": 0.35, "o4-mini": 0.45, "gemini-2.5-pro": 0.54, "gpt-5": 0.65, "claude-sonnet-4": 0.65}
    for name, rate in (published | {"claude-opus-4": 0.68}).items():
        assert success[list(agents.MODELS).index(name)] == pytest.approx(rate, abs=0.03)
    calls = np.array([task.calls for task in tasks])
    medians = [model.median_calls for model in agents.MODELS.values()]
    assert np.median(calls, axis=0) == pytest.approx(medians, rel=0.06)
    correlation = np.corrcoef(np.log(calls.T))
    assert correlation[np.triu_indices(6, 1)] == pytest.approx(agents.CALLS_CORRELATION, abs=0.12)
    kinds = np.bincount([task.kind for task in tasks], minlength=6) / len(tasks)
    assert kinds == pytest.approx(1 / 6, abs=0.02)
    gaps = np.array([task.gaps_s for task in tasks])
    assert (gaps > 300.0).mean() == pytest.approx(agents.LONG_GAP_SHARE, abs=0.002)
    grown = np.array([task.observed_tokens for task in tasks]).mean()
    assert grown == pytest.approx(agents.OBSERVATION_TOKENS, rel=0.01)


def test_chats_have_the_documented_moments():
    scripts = chats.chat_workload(seed=5, n_chats=3_000).scripts
    turns = np.array([len(script.kinds) for script in scripts])
    assert turns.min() == 3
    assert turns.max() == 8
    assert turns.mean() == pytest.approx(5.5, abs=0.1)
    later = [asks for script in scripts for asks in script.asks[1:]]
    assert 1.0 - np.mean(later) == pytest.approx(chats.FOLLOW_UP_SHARE, abs=0.02)
    stays = [a == b for script in scripts for a, b in zip(script.kinds, script.kinds[1:], strict=False)]
    assert np.mean(stays) == pytest.approx(0.4 + 0.6 * chats.STAYS, abs=0.02)
    assert all(script.asks[0] for script in scripts)
    gaps = np.concatenate([script.gaps_s for script in scripts])
    assert np.median(gaps) == pytest.approx(chats.GAP_S, rel=0.05)


def served_by(script, models):
    session = script.open()
    for model in models:
        if session.is_over:
            break
        session.next_call()
        session.answer(model)
    return session


def test_a_run_that_two_models_share_is_worth_their_mean_or_the_worse_of_them():
    [linear] = agents.agent_workload(seed=1, n_runs=1).scripts
    task = linear._replace(calls=np.array([4, 8, 9, 9, 9, 9]), success=np.array([0.2, 0.8, 0.0, 0.0, 0.0, 0.0]))
    shared = served_by(task, [0, 0, *[1] * 4])
    assert shared.is_over
    assert shared.closing().quality == pytest.approx(0.5 * 0.2 + 0.5 * 0.8)
    assert served_by(task._replace(credit="worst"), [0, 0, *[1] * 4]).closing().quality == 0.2
    short = task._replace(credit="worst", calls=np.array([20, 8, 9, 9, 9, 9]))
    assert served_by(short, [0, *[1] * 8]).closing().quality == 0.8  # a twentieth of the run
    assert served_by(task, [1] * 8).closing().quality == 0.8
    assert served_by(task, [1] * 8).closing().reward == float(task.luck < 0.8)


def test_a_prompt_grows_by_the_answer_and_by_what_was_observed():
    [task] = agents.agent_workload(seed=2, n_runs=1).scripts
    session = task.open()
    first = session.next_call()
    session.answer(0)
    assert first == SimulatedCall(task.kind, True, task.first_tokens)
    grown = agents.VISIBLE_TOKENS + int(task.observed_tokens[0])
    assert session.next_call() == SimulatedCall(task.kind, False, task.first_tokens + grown)


def test_a_follow_up_has_the_context_of_the_question_before_where_that_is_carried():
    workload = chats.chat_workload(seed=3, n_chats=30)
    alone = served_alone(workload)
    own = call_estimates(workload, alone, carries_context=False)
    carried = call_estimates(workload, alone, carries_context=True)
    assert own.calls[chats.FOLLOW_UP].sum() > 0
    assert carried.calls[chats.FOLLOW_UP].sum() == 0
    assert own.calls.sum() == carried.calls.sum() == 5 * workload.n_scored
    runs = run_estimates(workload, alone)
    assert runs.calls.sum() == 5 * 30
    assert runs.cost.sum() == pytest.approx(own.cost.sum())


def test_the_sums_of_calls_are_those_of_the_history():
    workload = agents.agent_workload(seed=3, n_runs=10)
    alone = served_alone(workload)
    learned = call_sums(workload, alone)
    lengths = [len(row[0].calls) for row in alone]
    assert learned.calls_left.stopped[0].sum() == 10
    assert learned.calls_left.went_on[0].sum() == sum(lengths) - 10
    assert learned.ended == 60
    assert learned.hits.hit_probability(0, 10.0) > 0.97


@dataclass
class Alternating:
    """Serves the calls of all conversations by two models in turn."""

    made: int = 0
    rewards: int = 0

    def choose(self, key, call):
        self.made += 1
        return self.made % 2

    def charge(self, key, usage, cost_usd, reward):
        self.rewards += reward is not None

    def end(self, key, reward):
        assert 0.0 <= reward <= 1.0


def test_conversations_interleave_and_every_bill_counts():
    workload = chats.chat_workload(seed=4, n_chats=20)
    policy = Alternating()
    served = serve(workload, policy, SimulatedClock())
    assert served.calls == policy.made == policy.rewards == workload.n_scored
    assert 0 < served.switches < served.calls  # another conversation came between some calls
    assert 0.0 < served.wasted_usd < served.spend_usd
    truth = ScoredUnits.of(served_alone(workload))
    least, most = truth.range_usd()
    bound = truth.best_possible(served.spend_usd)
    assert least < most
    assert served.quality < bound.quality
    assert bound.spend_usd <= served.spend_usd * (1 + 1e-9)


def test_quality_is_read_between_two_budgets():
    assert quality_at([2.0], [2.5], [0.7]).tolist() == [0.7]
    rising = quality_at([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], [0.1, 0.2, 0.4])
    assert rising == pytest.approx([0.1, 0.2, 0.4])
    assert quality_at([2.0, 8.0], [4.0, 1.0], [0.4, 0.2]) == pytest.approx([0.3, 0.5])


@pytest.mark.parametrize("environment", ["agents", "chats"])
def test_equal_seeds_give_equal_scores(environment):
    study = ConversationStudy(environment, ("call", "run", "conversation", "oracle"), 12, fractions=(0.2,))
    one, two = (simulate_conversations(study, [3]) for _ in range(2))
    assert one == two
    assert one != simulate_conversations(study, [4])
    assert [score.policy for score in one] == ["call", "run", "conversation", "oracle"]
    [run] = [summary for summary in summarise_policies(one) if summary.policy == "run"]
    assert run.gain_over(run)[1:] == (0.0, None)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"environment": "planets"}, "environment must be among agents, chats"),
        ({"policies": ("call", "luck")}, "policies must be among call"),
        ({"policies": ()}, "at least one"),
        ({"credit": "none"}, "credit must be among linear, worst"),
        ({"conversations": 3}, "conversations must be a whole number of at least 10"),
        ({"fractions": (0.2, 0.1)}, "fractions must rise"),
    ],
)
def test_wrong_settings_are_named(setting, problem):
    with pytest.raises(InvalidInput, match=problem):
        ConversationStudy(**setting).checked()


def simulated(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def test_the_command_prints_a_table_and_a_picture(tmp_path):
    plot = tmp_path / "chats.png"
    result = simulated(
        "--environment", "chats", "--horizon", 10, "--seeds", 2, "--methods", "call,conversation", "--plot", plot
    )
    assert result.exit_code == 0, result.output
    assert "chats: 10 conversations, 2 seeds" in result.output
    assert "conversation" in result.output
    assert plot.stat().st_size > 5_000


def test_the_command_prints_json():
    result = simulated(
        "--environment", "agents", "--horizon", 10, "--seeds", 1, "--methods", "run,oracle", "--json", "--fraction", 0.3
    )
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert figures["environment"] == "agents"
    assert figures["reference"] == "run"
    assert [one["policy"] for one in figures["policies"]] == ["run", "oracle"]
    assert figures["policies"][1]["gain"]["mean"] > 0.0
    assert len(figures["policies"][0]["per_seed"]["quality"][0]) == 1


@pytest.mark.parametrize("options", [("--limit", "hard"), ("--horizon", 10, "--horizon", 20), ("--credit", "luck")])
def test_options_of_the_other_environments_are_refused(options):
    result = simulated("--environment", "agents", *options)
    assert isinstance(result.exception, InvalidInput)
