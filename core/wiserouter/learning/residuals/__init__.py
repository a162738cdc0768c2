"""Estimates of single queries: how their rewards and costs deviate from the means of their context."""

from wiserouter.learning.residuals.price_curve import PriceCurve
from wiserouter.learning.residuals.query_residuals import QueryFeatures, QueryResiduals
from wiserouter.learning.residuals.ridge import Ridge
from wiserouter.learning.residuals.sample import Sample
from wiserouter.learning.residuals.shift import Shift
from wiserouter.learning.residuals.token_cost import LengthCost

__all__ = [
    "LengthCost",
    "PriceCurve",
    "QueryFeatures",
    "QueryResiduals",
    "Ridge",
    "Sample",
    "Shift",
]
