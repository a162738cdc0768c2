"""Fifty concurrent calls under a hard budget: the spend never exceeds it, and a failed call costs nothing."""

import asyncio
import random

from wiserouter import Budget, Model, Price, Usage, WiseRouter
from wiserouter.errors import BudgetExhausted

POOL = [
    Model("small", Price(input=1e-6, output=4e-6), max_output_tokens=500),
    Model("large", Price(input=5e-6, output=2.5e-5), max_output_tokens=500),
]


async def ask(router: WiseRouter, prompt: str, chance: random.Random) -> str:
    """Route one prompt, and settle its call in every case."""
    try:
        decision = await router.adecide(prompt)
    except BudgetExhausted:
        return "refused"
    await asyncio.sleep(0.001)  # the call
    if chance.random() < 0.1:
        router.release(decision)  # it failed
        return "failed"
    await router.acharge(decision, usage=Usage(input_tokens=20, output_tokens=chance.randint(50, 500)))
    return decision.model


async def main() -> None:
    """Send 400 prompts, 50 at a time."""
    router = WiseRouter(POOL, seed=0)
    router.start(Budget(amount_usd=0.4, horizon=400, limit="hard"))
    chance = random.Random(0)
    answers = []
    for _ in range(8):
        answers += await asyncio.gather(*(ask(router, "Summarise this ticket.", chance) for _ in range(50)))
    status = router.status()
    print({answer: answers.count(answer) for answer in sorted(set(answers))})
    print(f"spent {status.spent_usd:.4f} of {status.amount_usd} USD, {status.in_flight} in flight")
    assert status.spent_usd <= status.amount_usd
    assert status.in_flight == 0


asyncio.run(main())
