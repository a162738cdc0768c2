"""A router prepared for an adapter: models, prices, encoder and budget."""

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Model, Price, WiseRouter
from wiserouter.errors import InvalidInput, UnknownModel, UnknownPrice
from wiserouter.integration import Embedded, RateCard, RemoteEncoder, check_bounded, prepare_router, rates_of

BUDGET = Budget(1.0, 100)


def card(usd: float = 1e-6, **limits) -> RateCard:
    price = Price(usd, 2 * usd)
    return RateCard(price, tuple(rates_of(price)), "settings", **limits)


CARDS = {"small": card(), "large": card(3e-6, max_input_tokens=1_000, max_output_tokens=100)}


def test_a_router_is_made_where_none_is_given():
    router, hard = prepare_router(None, CARDS, BUDGET, seed=3)
    assert router.pool.names == ("small", "large")
    assert router.pool.models[1].max_cost_usd == pytest.approx(1_000 * 3e-6 + 100 * 6e-6)
    assert (router.budget(), hard) == (BUDGET, False)


def test_a_router_that_is_given_takes_the_prices():
    given = WiseRouter([Model("large"), Model("small"), Model("other", max_cost_usd=1.0)])
    router, hard = prepare_router(given, CARDS, Budget(1.0, 100, limit="hard"))
    assert router is given
    assert [model.price for model in router.pool.models] == [Price(3e-6, 6e-6), Price(1e-6, 2e-6), None]
    assert hard


def test_a_model_that_the_router_does_not_know_is_refused_or_left_to_the_adapter():
    given = WiseRouter([Model("small")])
    with pytest.raises(UnknownModel, match="'large'"):
        prepare_router(given, CARDS, BUDGET)
    assert prepare_router(given, CARDS, BUDGET, adds_models=True).router.pool.names == ("small",)


def test_a_running_budget_is_kept():
    given = WiseRouter([Model("small", max_cost_usd=1.0), Model("large", max_cost_usd=1.0)])
    given.start(Budget(2.0, 10, limit="hard"))
    router, hard = prepare_router(given, CARDS, None)
    assert (router.budget().amount_usd, hard) == (2.0, True)


def test_a_budget_is_needed():
    with pytest.raises(InvalidInput, match="group 'g' needs a budget: give one, or a router with a running one"):
        prepare_router(None, CARDS, None, owner="group 'g'")


def two_contexts(encoder=None) -> WiseRouter:
    contexts = Contexts(np.eye(2, dtype=np.float32), np.array([0.5, 0.5]))
    return WiseRouter([Model("small"), Model("large")], contexts, encoder=encoder)


def test_several_contexts_need_an_encoder():
    with pytest.raises(InvalidInput, match="the router has 2 contexts and needs an encoder"):
        prepare_router(two_contexts(), CARDS, BUDGET)


def test_a_remote_encoder_is_paid_from_the_budget():
    async def aembed(texts):
        return embed(texts)

    def embed(texts):
        return Embedded([[1.0, 0.0]] * len(texts), tokens=3)

    encoder = RemoteEncoder("service", embed, aembed, token_usd=0.01)
    router, _ = prepare_router(two_contexts(encoder), CARDS, BUDGET)
    encoder.encode("hello")
    assert router.status().spent_usd == pytest.approx(0.03)


def test_costs_are_bounded_by_the_models_limit_or_by_what_is_sent_along():
    check_bounded(CARDS.items(), {"small": 50}, "limit the output")
    with pytest.raises(UnknownPrice, match=r"model 'small' has no bound on the cost .* needs: limit the output$"):
        check_bounded(CARDS.items(), {"small": None}, "limit the output")
    with pytest.raises(UnknownPrice):
        check_bounded(CARDS.items(), {}, "limit the output")
