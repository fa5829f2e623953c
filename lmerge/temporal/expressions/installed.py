"""What installed packages declare for plans, by name: modules, aggregates and functions (M12).

A package declares them as entry points of the group ``lmerge.modules``::

    [project.entry-points."lmerge.modules"]
    my_average = "my_package.modules:MyAverage"

The name is the declared one's own, so that a plan has one name for it. An entry point is imported when it is used.
Called by the registries of functions and of modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from lmerge.temporal.errors import PlanError
from lmerge.temporal.user_code import is_interrupt

GROUP: Final = "lmerge.modules"


def installed() -> Mapping[str, Sequence[EntryPoint]]:
    """Return what packages declare, by name. They are read again when a folder of ``sys.path`` has changed."""
    return _declared_in(tuple((folder, _changed_at(folder)) for folder in sys.path))


@lru_cache(maxsize=1)
def _declared_in(folders: tuple[tuple[str, int], ...]) -> Mapping[str, Sequence[EntryPoint]]:
    """Read every installed package, which takes milliseconds. ``folders``: with the times of their changes, in ns."""
    found: dict[str, list[EntryPoint]] = {}
    for one in entry_points(group=GROUP):
        found.setdefault(one.name, []).append(one)
    return found


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return 0


def origins(name: str) -> list[str]:
    """Return from which packages a name comes, in order."""
    return sorted({_origin(one) for one in installed().get(name, ())})


def check_unique(name: str, found: Sequence[str]) -> None:
    """Raise PlanError if a name comes from several places."""
    if len(found) > 1:
        raise PlanError(f"the name of module {name!r:.64} is not unique: {', '.join(found)}")


def loaded(name: str) -> object:
    """Import and return what a package declares under a name; None if none does.

    Raises PlanError if it cannot be imported, or if several packages declare the name.
    """
    check_unique(name, origins(name))
    for found in installed().get(name, ()):
        try:
            return found.load()
        except BaseException as error:
            if is_interrupt(error):
                raise
            problem = f"{type(error).__name__}: {error}"
            raise PlanError(f"module {name!r} cannot be imported from {found.value}: {problem}") from error
    return None


def check_own_name(name: str, own: str) -> None:
    """Raise PlanError if what is declared under a name has another name of its own."""
    if name != own:
        raise PlanError(f"the entry point {name} of {GROUP} is called {own!r:.64} by its own name: {origins(name)[0]}")


def _origin(found: EntryPoint) -> str:
    package = "" if found.dist is None else f" of {found.dist.name} {found.dist.version}"
    return f"{found.value}{package}"
