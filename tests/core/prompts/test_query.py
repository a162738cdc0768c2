"""The query reader: context, length and embedding of a query, and nothing that is not needed."""

import numpy as np
import pytest

from wiserouter import Budget, Contexts, Model, Price, WiseRouter, open_encoder
from wiserouter.errors import InvalidInput
from wiserouter.pricing.pool import Pool
from wiserouter.pricing.tokens import SHORT_TEXT_CHARS, count_tokens
from wiserouter.prompts.query import Query, QueryReader
from wiserouter.types import NO_CONTEXT

TWO = Contexts([[0.0, 0.0], [1.0, 1.0]], [0.5, 0.5])
PLAIN = Pool([Model("a")])
PRICED = Pool([Model("a", Price(1e-6, 1e-6))])
WINDOW = Pool([Model("a", max_input_tokens=100), Model("b")])


class Counting:
    """An encoder that places texts of even length in the first context, and counts its calls."""

    def __init__(self):
        self.calls = 0
        self._inner = open_encoder(lambda texts: [[len(text) % 2] * 2 for text in texts])

    def encode(self, text):
        self.calls += 1
        return self._inner.encode(text)


def reader(contexts=TWO, encoder=None, pool=PLAIN, *, embedding=False, **options):
    return QueryReader(contexts, encoder, pool, keeps_embedding=embedding, **options)


# contexts


def test_text_is_encoded_only_where_there_are_several_contexts():
    encoder = Counting()
    assert reader(TWO, encoder).read("odd", None, None, hard=False) == Query(1, None)
    assert encoder.calls == 1
    assert reader(Contexts.single(), encoder).read("odd", None, None, hard=False) == Query(0, None)
    assert reader(TWO, encoder).read("odd", [0.0, 0.1], None, hard=False) == Query(0, None)
    assert reader(TWO, encoder).read("odd", None, None, 0, hard=False) == Query(0, None)
    assert encoder.calls == 1


def test_a_known_context_is_checked():
    assert reader().read(None, None, None, NO_CONTEXT, hard=False).context == NO_CONTEXT
    assert type(reader().read(None, None, None, np.int64(1), hard=False).context) is int
    growing = reader(TWO, None, embedding=True, reassigns=True)
    for context in (-2, 2, True, np.True_, 0.5, 1.0, np.float64(1), "x", [1]):
        with pytest.raises(InvalidInput, match=r"NO_CONTEXT or in 0..1"):
            reader().read(None, None, None, context, hard=False)
    for context in (True, 1.0, "x"):  # also where an embedding outranks it
        with pytest.raises(InvalidInput, match=r"NO_CONTEXT or in 0..1"):
            growing.read(None, [1.0, 1.0], None, context, hard=False)


def test_without_text_embedding_or_encoder_there_is_no_context():
    with pytest.raises(InvalidInput, match="text or embedding, got neither"):
        reader().read(None, None, None, hard=False)
    with pytest.raises(InvalidInput, match="a router with an encoder"):
        reader().read("text", None, None, hard=False)


# length


def test_tokens_are_counted_only_where_the_pool_needs_them():
    text = "three short words"
    count = count_tokens(text)
    for pool, hard, tokens in (
        (PLAIN, True, None),
        (PRICED, False, None),
        (PRICED, True, count.at_most),
        (WINDOW, False, count.tokens),
        (WINDOW, True, count.at_most),
    ):
        assert reader(Contexts.single(), pool=pool).read(text, None, None, hard=hard).input_tokens == tokens


def test_a_given_length_is_taken_and_checked():
    assert reader(Contexts.single()).read("text", None, 7, hard=True) == Query(0, 7)
    with pytest.raises(InvalidInput, match="input_tokens"):
        reader(Contexts.single()).read("text", None, -1, hard=False)


# embeddings


def test_an_embedding_is_kept_where_single_queries_are_estimated():
    encoder = Counting()
    query = reader(TWO, encoder, embedding=True).read("odd", None, None, hard=False)
    assert (query.context, query.embedding.tolist()) == (1, [1.0, 1.0])
    assert query.embedding.dtype == np.float32
    alone = reader(Contexts.single(), encoder, embedding=True).read("even", None, None, hard=False)
    assert (alone.context, alone.embedding.tolist()) == (0, [0.0, 0.0])
    assert reader(TWO, encoder).read("odd", [1.0, 1.0], None, hard=False).embedding is None


def test_a_known_context_needs_no_embedding_but_keeps_the_one_given():
    encoder = Counting()
    keeping = reader(TWO, encoder, embedding=True)
    assert keeping.read("odd", None, None, 0, hard=False) == Query(0, None)
    assert encoder.calls == 0
    query = keeping.read(None, [1.0, 1.0], None, 0, hard=False)
    assert (query.context, query.embedding.tolist()) == (0, [1.0, 1.0])


def test_an_embedding_outranks_a_known_context_where_contexts_are_fitted_again():
    growing = reader(TWO, None, embedding=True, reassigns=True)
    assert growing.read(None, [1.0, 1.0], None, 0, hard=False).context == 1
    assert growing.read(None, None, None, 0, hard=False).context == 0


@pytest.mark.parametrize("bad", [[1.0], [1.0, np.nan], [np.inf, 1.0]])
def test_an_embedding_that_does_not_fit_is_refused(bad):
    with pytest.raises(InvalidInput, match="finite and of shape"):
        reader(embedding=True).read(None, bad, None, 0, hard=False)


# the event loop


@pytest.mark.parametrize(
    ("options", "text", "quick"),
    [
        ({}, None, True),
        ({}, "short", False),  # to be encoded
        ({"contexts": Contexts.single()}, "short", True),
        ({"contexts": Contexts.single()}, "x" * SHORT_TEXT_CHARS, False),
        ({"contexts": Contexts.single(), "embedding": True}, "short", False),
    ],
)
def test_reading_is_quick_where_nothing_is_encoded_and_little_is_counted(options, text, quick):
    assert reader(**options).is_quick(text) is quick


@pytest.mark.parametrize("text", [5, b"hi", ["hi"], {"text": "hi"}], ids=repr)
async def test_a_question_that_is_no_text_is_refused(text):
    router = WiseRouter([Model("a", Price(1e-6, 1e-6))])
    router.start(Budget(1.0, 10))
    for options in ({}, {"contexts": Contexts.single()}):
        with pytest.raises(InvalidInput, match="text must be a string, got"):
            reader(**options).read(text, None, None, hard=False)
    with pytest.raises(InvalidInput, match="text must be a string, got"):
        router.decide(text)
    with pytest.raises(InvalidInput, match="text must be a string, got"):
        await router.adecide(text)
    assert router.status().decided == 0
