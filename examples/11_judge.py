"""A judge scores a fifth of the answers in the background, on a budget of its own. Offline: all models are made up."""

import numpy as np

from wiserouter import Budget, Model, Price, WiseRouter

QUALITY = {"small": 0.5, "large": 0.9}
COST_USD = {"small": 0.0004, "large": 0.0008}


def grade(prompt: str, answer: str) -> dict[str, float]:
    """Stand in for a model that grades the answer: it knows the right one."""
    return {"score": float(prompt.endswith("?") and answer == "4"), "cost_usd": 0.0001}


def main() -> None:
    rng = np.random.default_rng(0)
    router = WiseRouter([Model("small", Price(1e-6, 4e-6)), Model("large", Price(2e-6, 8e-6))], seed=0)
    router.start(Budget(amount_usd=2.0, horizon=2_000))
    judge = router.judge_with(grade, share=0.2, budget_usd=0.05, cost_usd=0.0002, name="grader", seed=0)
    for _ in range(2_000):
        decision = router.decide("What is 2 + 2?")
        answer = "4" if rng.random() < QUALITY[decision.model] else "5"
        router.charge(decision, COST_USD[decision.model])
        judge.offer(decision, "What is 2 + 2?", answer)  # returns at once
        judge.flush()  # only so that this example prints the same figures each time
    print(router.status())
    print(router.status("judge:grader"))
    router.stop_judging()


if __name__ == "__main__":
    main()
