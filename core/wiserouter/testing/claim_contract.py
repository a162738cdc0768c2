"""Checks of the contract of stores: occasions that one worker alone claims."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from wiserouter.testing.shelf import Shelf, new_name, opened, other_store


def gives_an_occasion_to_one_claimant(shelf: Shelf) -> None:
    """Give an occasion to the first of all workers that claims it, also where it asks again, and to no other."""
    store, _ = opened(shelf)
    other, name = other_store(shelf, store), new_name("budget")
    assert store.claim(name, 1_000.25, "a")
    assert store.claim(name, 1_000.25, "a")
    assert not other.claim(name, 1_000.25, "b")
    assert other.claim(f"{name}, 80 %", 1_000.25, "b")


def gives_the_latest_occasion_only(shelf: Shelf) -> None:
    """Refuse an occasion before the latest one, of which a worker may know late."""
    store, _ = opened(shelf)
    other, name = other_store(shelf, store), new_name("budget")
    assert store.claim(name, 1_000.0, "a")
    assert other.claim(name, 2_000.0, "b")
    assert not store.claim(name, 1_000.0, "a")
    assert not store.claim(name, 2_000.0, "a")
    assert store.claim(name, 3_000.0, "a")


def gives_an_occasion_to_one_of_a_crowd(shelf: Shelf) -> None:
    """Give an occasion to one of several workers that claim it at once."""
    store, _ = opened(shelf)
    stores, name = [store, other_store(shelf, store)], new_name("budget")
    with ThreadPoolExecutor(4) as threads:
        won = list(threads.map(lambda at: stores[at % 2].claim(name, 1.0, f"worker {at}"), range(8)))
    assert sum(won) == 1


CLAIM_CHECKS: tuple[Callable[[Shelf], None], ...] = (
    gives_an_occasion_to_one_claimant,
    gives_the_latest_occasion_only,
    gives_an_occasion_to_one_of_a_crowd,
)
"""The checks of claims."""
