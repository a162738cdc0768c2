"""How many observations a plan serves before it is solved again: fewer than it takes to change it, or to pay for it."""

from __future__ import annotations

SMALL_CELLS = 512
"""Up to so many cells (contexts x models), a plan is solved again within the time of a decision."""

CELLS_PER_OBSERVATION = 100
"""Each further observation between two solutions pays for so many more cells: the time is then that of few decisions,
and fewer than one decision in a hundred waits for it."""


def solve_again_at(count: float, growth: float, n_cells: int) -> float:
    """Return the number of observations at which a plan is solved again.

    Parameters
    ----------
    count : float
        Observations now.
    growth : float
        Observations then, in those of now.
    n_cells : int
        Contexts x models. The first plans of a large table are solved after 1, 2, 4, ... observations.

    Examples
    --------
    >>> solve_again_at(10.0, 1.02, 176), solve_again_at(1_000.0, 1.02, 176)
    (11.0, 1020.0)
    >>> [solve_again_at(count, 1.02, 256 * 200) for count in (1.0, 10.0, 1_000.0, 1e6)]
    [2.0, 20.0, 1506.0, 1020000.0]
    """
    pause = max((n_cells - SMALL_CELLS) // CELLS_PER_OBSERVATION, 1)
    return max(count + max(min(count, pause), 1.0), count * growth)
