"""The settings of conversations and the values that they refuse."""

import pytest

from wiserouter import Conversations
from wiserouter.errors import InvalidInput


def test_a_chat_lives_for_an_hour():
    assert Conversations() == Conversations(unit="conversation", ttl_s=3600.0, run_budget_usd=None, run_limit="hard")


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"unit": "call"}, "unit must be one of 'conversation', 'run', got 'call': to decide each call alone, leave"),
        ({"unit": None}, "unit must be one of"),
        ({"run_limit": "soft"}, "run_limit must be one of 'hard', 'expected', got 'soft'"),
        ({"ttl_s": 0.0}, "ttl_s must be a finite number above 0, got 0.0"),
        ({"ttl_s": -1}, "ttl_s must be a finite number above 0, got -1"),
        ({"ttl_s": float("inf")}, "ttl_s must be a finite number above 0, got inf"),
        ({"ttl_s": True}, "ttl_s must be a finite number"),
        ({"unit": "run", "run_budget_usd": -1.0}, "run_budget_usd must be a finite number"),
        ({"unit": "run", "run_budget_usd": 0}, "run_budget_usd must be a finite number above 0"),
        ({"unit": "run", "run_budget_usd": "2"}, "run_budget_usd must be a finite number"),
        ({"run_budget_usd": 1.0}, "run_budget_usd needs unit='run', got unit='conversation'"),
    ],
)
def test_settings_that_break_a_rule_are_refused(settings, rule):
    with pytest.raises(InvalidInput, match=rule):
        Conversations(**settings)
