"""The contract of engines: checks that take a `Place`.

No check depends on the speed of the machine: short times to live are only read after they have passed.
"""

from types import ModuleType

from support.engine_checks import accounts, calls, leases, losses, races, random_events, runs, sums


def _checks_of(module: ModuleType) -> list:
    return [check for name, check in vars(module).items() if name.startswith("check_")]


_MODULES = (accounts, calls, leases, losses, sums, races, runs, random_events)

CONTRACT = [check for module in _MODULES for check in _checks_of(module)]
