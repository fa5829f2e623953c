"""Parts of the test framework by name: those that come with lmerge, and those that packages or tests register."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from lmerge.errors import UsageError

T = TypeVar("T")


@cache
def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, read once: they do not change while a process runs."""
    return tuple(entry_points(group=group))


class PartRegistry(Generic[T]):
    """Parts of one kind. ``group``: the entry points that have more; ``what``: the kind in words, for messages.

    ``parts``: those that come with lmerge, and ``later``: those of them that take long to import, as ``module:name``.
    Nothing is imported before it is asked for. Two parts of one name are an error that names where both come from.
    """

    def __init__(self, group: str, what: str, parts: Mapping[str, T], later: Mapping[str, str] | None = None) -> None:
        self._group = group
        self._what = what
        self._parts: dict[str, T] = dict(parts)
        self._later = {name: EntryPoint(name, value, group) for name, value in (later or {}).items()}

    def register(self, name: str, part: T) -> None:
        """Make a part known by a name. Raises UsageError if the name is taken."""
        if name in self.names():
            raise UsageError(f"there is a {self._what} {name!r:.64} already: {self._origin(name)}")
        self._parts[name] = part

    def forget(self, name: str) -> None:
        """Make a registered part unknown."""
        self._parts.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of all parts, those that come with lmerge first."""
        others = sorted(one.name for one in installed(self._group))
        return list(dict.fromkeys([*self._parts, *self._later, *others]))

    def find(self, name: str) -> T:
        """Return the part of a name. Raises UsageError if there is none, if several have it, or if it does not load."""
        found = [one for one in installed(self._group) if one.name == name]
        if name in self._later:
            found.append(self._later[name])
        if len(found) + (name in self._parts) > 1:
            where = ", ".join(one.value for one in found)
            raise UsageError(f"several packages have a {self._what} {name!r:.64}: {self._origin(name)} ({where})")
        if name in self._parts:
            return self._parts[name]
        if not found:
            raise UsageError(f"there is no {self._what} {name!r:.64}; there are {', '.join(self.names())}")
        try:
            part: T = found[0].load()
        except Exception as problem:
            raise UsageError(
                f"the {self._what} {name!r:.64} ({found[0].value}) cannot be loaded: {problem}"
            ) from problem
        return part

    def _origin(self, name: str) -> str:
        packages = [one.dist.name for one in installed(self._group) if one.name == name and one.dist]
        own = ["this process"] if name in self._parts else ["lmerge"] if name in self._later else []
        return " and ".join([*own, *(f"package {package}" for package in packages)])
