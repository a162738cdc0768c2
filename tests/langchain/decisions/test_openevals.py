"""The evaluators of openevals judge answers as they are."""

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda
from openevals.llm import create_llm_as_judge

from wiserouter import Budget, Model, Price, WiseRouter


class Grading(FakeListChatModel):
    """A chat model that grades by whether the answer is in its prompt."""

    def with_structured_output(self, schema, **kwargs):
        def grade(prompt):
            return {"reasoning": "It is right, or not.", "score": 0.9 if "Paris" in str(prompt) else 0.1}

        return RunnableLambda(grade)


def test_an_llm_as_judge_of_openevals_scores_answers():
    prompt = "Is the answer <answer>{outputs}</answer> to <question>{inputs}</question> right?"
    evaluator = create_llm_as_judge(prompt=prompt, judge=Grading(responses=[""]), continuous=True)
    router = WiseRouter([Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))], seed=0)
    router.start(Budget(1.0, 1_000))
    judge = router.judge_with(evaluator, share=1.0, weight=1.0, attempts=1, first_scores=0)
    for answer in ("Paris", "London"):
        decision = router.decide("What is the capital of France?")
        router.charge(decision, 1e-6)
        judge.offer(decision, "What is the capital of France?", answer)
    assert judge.flush()
    judge.close()
    assert judge.counts.judged == 2
    assert router.estimates.reward.sum() == pytest.approx(1.0)
