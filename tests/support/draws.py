"""A random generator whose draws are given beforehand."""

import numpy as np


class Scripted(np.random.Generator):
    """A generator that returns the given draws, in order."""

    def __init__(self, *draws):
        super().__init__(np.random.PCG64(0))
        self.draws = list(draws)

    def random(self, *_, **__):
        return self.draws.pop(0)

    def integers(self, *_, **__):
        return self.draws.pop(0)
