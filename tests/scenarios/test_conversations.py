"""The units of decision on simulated agents and chats: which one leads, what is wasted, and how budgets are kept.

Gains are those at equal spend, over a mean of five budgets; their standard error is that over the seeds. The seeds are
fewer than in docs/agents_simulation.md, whose figures come from the command that it names.
"""

import pytest

from wiserouter.evaluation.conversations.experiment import ConversationStudy, simulate_conversations
from wiserouter.evaluation.conversations.summary import summarise_policies

pytestmark = pytest.mark.slow


def compared(environment, policies, conversations, n_seeds, credit="linear"):
    """Return the summaries by policy, over some seeds and five budgets."""
    study = ConversationStudy(environment, policies, conversations, credit)
    scores = simulate_conversations(study, range(n_seeds), jobs=2)
    return {one.policy: one for one in summarise_policies(scores)}


def check_budgets(summary, low=0.99):
    """Check that the mean spend over the seeds keeps to each budget."""
    mean = summary.spend_ratio.mean(axis=0)
    assert (mean >= low).all(), mean
    assert (mean <= 1.005).all(), mean


def test_one_decision_per_agent_run_leads_at_equal_spend():
    by_name = compared("agents", ("call", "pinned", "run"), 400, n_seeds=2)
    run = by_name["run"]
    _, gain, error = run.gain_over(by_name["call"])
    assert gain - error >= 0.03
    over_pinned, _, _ = run.gain_over(by_name["pinned"])
    assert (over_pinned > 0.0).all(), over_pinned
    assert (run.waste.mean(axis=0) <= 0.02).all()
    check_budgets(run, low=0.975)  # the most expensive run is a hundredth of these budgets, or more


def test_a_thousand_runs_spend_the_budget():
    study = ConversationStudy("agents", ("run",), 1_000, fractions=(0.1, 0.35))
    check_budgets(*summarise_policies(simulate_conversations(study, [0])))


def test_one_decision_per_agent_run_leads_where_a_run_is_worth_its_worst_model():
    by_name = compared("agents", ("call", "pinned", "run"), 300, n_seeds=2, credit="worst")
    for other in ("call", "pinned"):
        _, gain, error = by_name["run"].gain_over(by_name[other])
        assert gain - error > 0.0


def test_turns_of_chats_priced_with_their_caches_lead_at_equal_spend():
    by_name = compared("chats", ("call", "pinned", "conversation"), 200, n_seeds=3)
    conversation = by_name["conversation"]
    _, gain, error = conversation.gain_over(by_name["call"])
    assert gain - 2.0 * error >= 0.006
    over_pinned, _, _ = conversation.gain_over(by_name["pinned"])
    assert (over_pinned > 0.0).all(), over_pinned
    assert (conversation.waste.mean(axis=0) <= 0.05).all()
    check_budgets(conversation)


def test_the_scores_do_not_depend_on_the_number_of_processes():
    study = ConversationStudy("chats", ("call", "conversation"), 20, fractions=(0.1, 0.3))
    assert simulate_conversations(study, range(2), jobs=2) == simulate_conversations(study, range(2))
