"""Fakes for tests of a router, and the contract of stores as a set of checks."""

from wiserouter.testing.fakes import FakeClock, SimulatedModels, TableEncoder
from wiserouter.testing.shelf import Shelf
from wiserouter.testing.store_contract import STORE_CHECKS, check_store

__all__ = ["STORE_CHECKS", "FakeClock", "Shelf", "SimulatedModels", "TableEncoder", "check_store"]
