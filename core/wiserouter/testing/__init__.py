"""What tests of a router need: a clock to turn, an encoder by table, simulated models, and the contract of stores."""

from wiserouter.testing.fakes import FakeClock, SimulatedModels, TableEncoder
from wiserouter.testing.store_contract import STORE_CHECKS, Shelf, check_store

__all__ = ["STORE_CHECKS", "FakeClock", "Shelf", "SimulatedModels", "TableEncoder", "check_store"]
