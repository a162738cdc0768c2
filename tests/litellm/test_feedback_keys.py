"""By which names a call is known, and to whom."""

from hypothesis import given
from hypothesis import strategies as st

from wiserouter_litellm.feedback_keys import feedback_key, is_chosen, keys_to_store, keys_to_try

IDS = st.text(max_size=40)
CALLERS = st.none() | st.text(max_size=40)


@given(IDS, CALLERS, IDS, CALLERS)
def test_two_callers_or_two_ids_never_share_a_name(id_, caller, other_id, other):
    assert (feedback_key(id_, caller) == feedback_key(other_id, other)) == ((id_, caller) == (other_id, other))


@given(IDS, CALLERS, st.booleans(), st.booleans())
def test_a_caller_finds_its_own_call(id_, caller, chosen, admin):
    assert set(keys_to_store(id_, caller, chosen=chosen)) & set(keys_to_try(id_, caller, any_caller=admin))


@given(IDS, CALLERS, st.text(max_size=40), st.booleans())
def test_another_key_finds_nothing(id_, caller, other, chosen):
    if other != caller:
        assert not set(keys_to_store(id_, caller, chosen=chosen)) & set(keys_to_try(id_, other, any_caller=False))


@given(IDS, st.text(max_size=40), st.booleans())
def test_an_administrator_finds_every_call_but_by_an_id_that_the_client_chose(id_, caller, chosen):
    found = set(keys_to_store(id_, caller, chosen=chosen)) & set(keys_to_try(id_, "an administrator", any_caller=True))
    assert bool(found) == (not chosen or caller == "an administrator")


def test_a_name_holds_neither_id_nor_key():
    assert "secret" not in "".join(
        [*keys_to_store("secret-id", "secret-key", chosen=False), feedback_key("secret", None)]
    )


def test_who_chose_the_id():
    assert is_chosen({"proxy_server_request": {"headers": {"X-LiteLLM-Call-Id": "mine"}}})
    assert not is_chosen({"proxy_server_request": {"headers": {"x-other": "mine"}}})
    assert not is_chosen({"proxy_server_request": None})
    assert not is_chosen({})
