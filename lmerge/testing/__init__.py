"""Tests of queries, modules and replicas, by one name each, loaded when it is first used (docs/testing.md).

::

    from lmerge.testing import check_replicas, scenario

    s = scenario("equi-join over disorder")
    s.left.join(s.right).on(s.expr == s.expr)

Public, for users' own queries: intents that become queries and streams, judges in SQL, relations, replicas that stand
in for each other. Also what lmerge is tested by: the oracle of a merge, and the simulation of the whole system.

Called by ``lmerge test`` and ``lmerge verify``, users' tests and those of lmerge. Imports the temporal algebra, the
core and, for the simulation, the service; nothing of the product imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lmerge.testing.checking.relations import check_relations
    from lmerge.testing.checking.replicas import check_replicas
    from lmerge.testing.checking.session import TreeBudget, check_scenario
    from lmerge.testing.intents.fluent import scenario
    from lmerge.testing.intents.placeholders import ANY
    from lmerge.testing.module_checks import check_incremental, check_module
    from lmerge.testing.pytest_plugin import scenarios
    from lmerge.testing.systems.functions import FunctionSystem
    from lmerge.testing.systems.processes import ProcessSystem

__all__ = [
    "ANY",
    "FunctionSystem",
    "ProcessSystem",
    "TreeBudget",
    "check_incremental",
    "check_module",
    "check_relations",
    "check_replicas",
    "check_scenario",
    "scenario",
    "scenarios",
]

_PLACES: Final = {
    "checking.relations": ("check_relations",),
    "checking.replicas": ("check_replicas",),
    "checking.session": ("TreeBudget", "check_scenario"),
    "module_checks": ("check_incremental", "check_module"),
    "pytest_plugin": ("scenarios",),
    "intents.fluent": ("scenario",),
    "intents.placeholders": ("ANY",),
    "systems.functions": ("FunctionSystem",),
    "systems.processes": ("ProcessSystem",),
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: a program that runs one part needs no database for the others."""
    place = next((place for place, names in _PLACES.items() if name in names), None)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)
