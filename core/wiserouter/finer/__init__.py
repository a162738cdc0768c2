"""What is known of a query beyond its context: how its rewards and costs deviate from the context's means."""

from wiserouter.finer.base import Residual, open_residual
from wiserouter.finer.length import LengthCost
from wiserouter.finer.model import Finer, Particulars
from wiserouter.finer.neighbours import Neighbours
from wiserouter.finer.pricing import PriceCurve
from wiserouter.finer.ridge import Ridge
from wiserouter.finer.sample import Sample
from wiserouter.finer.shift import Shift

__all__ = [
    "Finer",
    "LengthCost",
    "Neighbours",
    "Particulars",
    "PriceCurve",
    "Residual",
    "Ridge",
    "Sample",
    "Shift",
    "open_residual",
]
