"""Every error is the same in another process and as a copy: pools of processes pickle what their workers raise."""

import copy
import pickle

import pytest

from wiserouter.budgets.changes import ChangeRefused
from wiserouter.budgets.limits import InfeasibleLimits
from wiserouter.errors import (
    AlreadySettled,
    BudgetExhausted,
    DamagedArtifact,
    HorizonExhausted,
    InfeasibleBudget,
    InvalidInput,
    LogError,
    MissingArtifact,
    MissingExtra,
    MissingTable,
    NoEligibleModel,
    NotMergeable,
    NotStarted,
    QuerySkipped,
    RunBudgetExhausted,
    StoreUnavailable,
    UnknownConversation,
    UnknownDecision,
    UnknownModel,
    UnknownPrice,
    UnlikelyPrice,
)

ACCOUNT = {"amount_usd": 1.0, "spent_usd": 0.5, "reserved_usd": 0.25, "needed_usd": 2.0, "every": "day"}

ERRORS = (
    AlreadySettled("d1", "charged"),
    BudgetExhausted(**ACCOUNT, renews_at=86_400.0),
    ChangeRefused("the limit must cover 3 USD", {"spent_usd": 3.0}),
    DamagedArtifact("support.wise", "ends early"),
    HorizonExhausted(10, 0.5),
    InfeasibleBudget(0.1, 0.2),
    InfeasibleLimits({"latency_s": 1.0}, {"latency_s": 2.0}),
    InvalidInput("horizon must be at least 1, got 0", value=0),
    LogError("is empty", file="log.csv", row=3, column="prompt"),
    MissingArtifact("support.wise"),
    MissingExtra("this encoder", "onnxruntime", "minilm"),
    MissingTable("bfcl", "wiserouter data bfcl"),
    NoEligibleModel({"small": "retired"}),
    NotMergeable("contexts differ", what="contexts", parts=["a.wise", "b.wise"]),
    NotStarted("team"),
    QuerySkipped(1, 0.5),
    RunBudgetExhausted(**ACCOUNT),
    StoreUnavailable("it is locked", store="sqlite:///b.db"),
    UnknownConversation("c1"),
    UnknownDecision("d1"),
    UnknownModel("big", ["small"]),
    UnknownPrice("small", "price"),
    UnlikelyPrice("Price.input", 0.15, 1e-3),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deep"]
)
def test_an_error_is_the_same_in_another_process_and_as_a_copy(error, again):
    found = again(error)
    assert type(found) is type(error)
    assert (str(found), vars(found)) == (str(error), vars(error))


def test_an_error_of_another_process_still_takes_the_limit_with_which_a_call_would_fit():
    error = pickle.loads(pickle.dumps(BudgetExhausted(**ACCOUNT)))
    error.note_fitting_output(7)
    assert "limit its output to 7 tokens" in str(error)
