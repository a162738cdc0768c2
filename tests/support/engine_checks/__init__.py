"""The contract of engines: checks that take a `Place`.

No check depends on the speed of the machine: short times to live are only read after they have passed.
"""

from types import ModuleType

from support.engine_checks import accounts, calls, leases, races, random_events, sums


def _checks_of(module: ModuleType) -> list:
    return [check for name, check in vars(module).items() if name.startswith("check_")]


CONTRACT = [check for module in (accounts, calls, leases, sums, races, random_events) for check in _checks_of(module)]
