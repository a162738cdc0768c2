"""How many observations a plan serves before it is solved again: fewer than it takes to change it, or to pay for it."""

from __future__ import annotations

SMALL_CELLS = 512
"""Up to so many cells (contexts x models), a plan is solved again within the time of a decision."""

CELLS_PER_OBSERVATION = 100
"""Each further observation between two solutions pays for so many more cells: the time is then that of few decisions,
and fewer than one decision in a hundred waits for it."""


def pause_between_solutions(n_cells: int) -> int:
    """Return the fewest observations between two solutions of a plan; at first, as many as there were before.

    Parameters
    ----------
    n_cells : int
        Contexts x models. The first plans of a large table are solved after 1, 2, 4, ... observations.

    Examples
    --------
    >>> pause_between_solutions(16 * 11), pause_between_solutions(256 * 200)
    (1, 506)
    """
    return max((n_cells - SMALL_CELLS) // CELLS_PER_OBSERVATION, 1)
