"""What Python runs first in a proxy of the tests: a quarter of a start would go to searches for garbage."""

import gc

gc.set_threshold(100_000, 50, 50)
