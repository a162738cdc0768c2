"""What `save` writes, `load` reads: after any operations, and where it could not, the former file stays."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiserouter import Budget, Conversations, Growing, Model, Optimistic, Price, Usage, Watch, WiseRouter
from wiserouter.errors import ArtifactError, WiseRouterError
from wiserouter.stores import MemoryStore

MODELS = [Model("small", Price(1e-7, 4e-7)), Model("large", Price(3e-6, 1.5e-5))]
WORDS = ["sort a list in python", "a poem about the sea", "the capital of France", "boil an egg", "", "2 + 2"]
SHARES = st.floats(0.0, 1.0)
OPERATIONS = st.one_of(
    st.tuples(st.just("decide"), st.sampled_from(WORDS), st.sampled_from([None, "a", "b"])),
    st.tuples(st.just("charge"), st.integers(0, 9), st.integers(0, 9_000), st.integers(0, 900)),
    st.tuples(st.just("bill"), st.integers(0, 9), st.floats(0.0, 1.0)),
    st.tuples(st.just("reward"), st.integers(0, 9), SHARES, st.sampled_from(["human", "judge:j", "rule:r"]), SHARES),
    st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from(["release", "presume"])),
    st.tuples(st.just("end"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("model"), st.sampled_from(["new", "other"]), st.sampled_from([None, 1e-6])),
    st.tuples(st.just("price"), st.sampled_from(["small", "large"]), st.sampled_from([0.0, 1e-9, 1e-3])),
    st.tuples(st.just("refit"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.floats(0.0, 1e5)),
)


class Served:
    """A router, its clock, and its latest decisions."""

    def __init__(self, unit):
        self.now_s, self.decisions = 1.77e9, []
        self.router = WiseRouter(
            MODELS,
            store=MemoryStore(lambda: self.now_s),
            watch=Watch(half_life_s=3_600.0, bucket_requests=3),
            growing=Growing(),
            conversations=Conversations(unit),
            seed=0,
        )
        self.router.start(Budget(10.0, horizon=1_000))

    def take(self, name, *values):
        with suppress(WiseRouterError, IndexError):  # of no decision yet, or one that was settled
            getattr(self, name)(*values)

    def decide(self, text, conversation):
        self.decisions.insert(0, self.router.decide(text, conversation=conversation))

    def charge(self, i, input_tokens, output_tokens):
        self.router.charge(self.decisions[i], usage=Usage(input_tokens, output_tokens))

    def bill(self, i, cost_usd):
        self.router.charge(self.decisions[i], cost_usd)

    def reward(self, i, reward, source, weight):
        self.router.reward(self.decisions[i], reward, source=source, weight=weight)

    def settle(self, i, how):
        getattr(self.router, how)(self.decisions[i])

    def end(self, conversation):
        self.router.end(conversation)

    def model(self, name, price):
        self.router.add_model(Model(name, None if price is None else Price(price, price)))

    def price(self, name, usd):
        self.router.update_model(Model(name, Price(usd, 4 * usd)))

    def refit(self, n_contexts):
        self.router.refit_contexts(n_contexts)

    def wait(self, seconds):
        self.now_s += seconds


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["conversation", "run"]), st.lists(OPERATIONS, max_size=40))
def test_a_router_can_be_loaded_after_any_operations(tmp_path_factory, unit, operations):
    served, path = Served(unit), tmp_path_factory.getbasetemp() / "any.wise"
    for operation in operations:
        served.take(*operation)
    served.router.save(path)
    again = WiseRouter.load(path)
    assert again.pool.names == served.router.pool.names
    again.add_model(Model("last"))
    again.save(path)
    assert WiseRouter.load(path).pool.names[-1] == "last"


def test_a_router_that_could_not_be_loaded_again_leaves_the_former_file(tmp_path):
    class Own(Optimistic):
        name = "my own"

    path = tmp_path / "router.wise"
    WiseRouter(MODELS).save(path)
    former = path.read_bytes()
    with pytest.raises(ArtifactError, match=r"router.wise: not written, since it could not be loaded again: .*my own"):
        WiseRouter(MODELS, policy=Own()).save(path)
    assert path.read_bytes() == former
    assert list(tmp_path.iterdir()) == [path]


def test_sums_that_have_faded_are_saved_without_what_was_taken_back_of_them(tmp_path):
    served = Served("conversation")
    decision = served.router.decide("hello")
    served.router.reward(decision, 1.0)
    served.wait(7_200.0)
    served.router.charge(decision, 1e-4)  # fades the score
    served.router.reward(decision, 1.0, weight=0.25)
    served.router.reward(decision, 1.0, weight=0.0)
    assert served.router.estimates.labels.min() == 0.0
    served.router.save(tmp_path / "router.wise")
    arrays = WiseRouter.load(tmp_path / "router.wise").estimates.arrays()
    assert not np.any([arrays[name] for name in ("labels", "reward", "reward_sq", "scored", "delay_s")])
