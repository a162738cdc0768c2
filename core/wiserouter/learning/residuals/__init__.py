"""Estimates of single queries: how their rewards deviate from the means of their context."""

from wiserouter.learning.residuals.price_curve import PriceCurve
from wiserouter.learning.residuals.query_residuals import Deviations, QueryResiduals
from wiserouter.learning.residuals.ridge import Ridge
from wiserouter.learning.residuals.sample import Sample

__all__ = [
    "Deviations",
    "PriceCurve",
    "QueryResiduals",
    "Ridge",
    "Sample",
]
