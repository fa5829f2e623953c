"""A local copy of objects of one kind that never goes back in time. Pure, but for the callback.

Two sources fill it: the watch, and the answers to own writes. Either may come late. An object is taken only if its
``resourceVersion`` is above that of the copy, or of the deletion that was noticed; so a write of one's own is not
undone by an older event, and a deleted object does not come back by the late answer to a write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

ObjectKey: TypeAlias = tuple[str, str]
ChangeCallback: TypeAlias = Callable[[Any, Any], None]

# Deletions that are remembered. The answer to a write comes within seconds, not after so many deletions.
_DELETIONS_MAX: Final = 10_000


def key_of(found: dict[str, Any]) -> ObjectKey:
    """Return (namespace, name) of an object."""
    meta = found["metadata"]
    return str(meta.get("namespace") or ""), str(meta["name"])


def version_of(found: dict[str, Any]) -> int:
    """Return the resource version as a number: the API server compares them so, and documents it since 1.35."""
    text = str(found["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0


class ObjectCache:
    """Objects by (namespace, name). ``on_change(old, new)`` is called for each change; None: there is none."""

    def __init__(self, on_change: ChangeCallback) -> None:
        self._objects: dict[ObjectKey, dict[str, Any]] = {}
        self._deleted: OrderedDict[ObjectKey, int] = OrderedDict()
        self._on_change = on_change

    def get(self, key: ObjectKey) -> dict[str, Any] | None:
        """Return an object, or None. It is shared: do not change it."""
        return self._objects.get(key)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, found: dict[str, Any]) -> bool:
        """Take an object in, if it is newer. Returns whether it was taken."""
        key, version = key_of(found), version_of(found)
        old = self._objects.get(key)
        newest = version_of(old) if old is not None else self._deleted.get(key, 0)
        if version <= newest and newest:
            return False
        found["metadata"].pop("managedFields", None)  # half of the bytes of an object, and not used here
        self._objects[key] = found
        self._deleted.pop(key, None)
        self._on_change(old, found)
        return True

    def remove(self, found: dict[str, Any]) -> None:
        """Take in a deletion; ``found`` is the object in its last state."""
        key, version = key_of(found), version_of(found)
        old = self._objects.get(key)
        if old is not None and version_of(old) > version:
            return
        self._note_deleted(key, version)
        if old is not None:
            del self._objects[key]
            self._on_change(old, None)

    def replace(self, listed: Iterable[dict[str, Any]], version: int) -> None:
        """Take in a whole list, made at resource version ``version``. What it lacks and is not newer is gone."""
        keys = set()
        for found in listed:
            keys.add(key_of(found))
            self.put(found)
        for key, old in list(self._objects.items()):
            if key not in keys and version_of(old) <= version:
                self._note_deleted(key, version)
                del self._objects[key]
                self._on_change(old, None)

    def _note_deleted(self, key: ObjectKey, version: int) -> None:
        self._deleted[key] = max(version, self._deleted.pop(key, 0))
        while len(self._deleted) > _DELETIONS_MAX:
            self._deleted.popitem(last=False)
