"""What the controller sees of a cluster: copies of queries, Deployments, pods and budgets, by query.

Called by the controller, which a change wakes, and by the backends, which read. Nothing here writes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from lmerge_controller.kubernetes.api import BUDGETS, DEPLOYMENTS, PODS, QUERIES, Api, Json, Resource
from lmerge_controller.kubernetes.api_errors import ApiUnreachable, NotAllowed
from lmerge_controller.kubernetes.manifests import MANAGER, QUERY_LABEL
from lmerge_controller.kubernetes.object_cache import ObjectKey, key_of
from lmerge_controller.kubernetes.reflector import Reflector, run_all

_OWN: Final = f"app.kubernetes.io/managed-by={MANAGER}"
_PARTS: Final = (DEPLOYMENTS, PODS, BUDGETS)


class ClusterCopy:
    """Copies of one namespace, or of all (None). ``changed(key)``: something about the query ``key`` has changed."""

    def __init__(self, api: Api, namespace: str | None, changed: Callable[[ObjectKey], None]) -> None:
        self._changed = changed
        self._parts: dict[str, dict[ObjectKey, dict[str, Json]]] = {one.plural: defaultdict(dict) for one in _PARTS}
        self._queries = Reflector(api, QUERIES, namespace, self._query_changed)
        self.reflectors = [self._queries]
        for resource in _PARTS:
            self.reflectors.append(Reflector(api, resource, namespace, self._noting(resource), selector=_OWN))

    async def run(self) -> None:
        """Keep the copies current until it is cancelled."""
        await run_all(self.reflectors)

    def relist(self) -> None:
        """List everything again; ``listed`` waits for it."""
        for reflector in self.reflectors:
            reflector.relist()

    async def listed(self) -> None:
        """Wait until everything has been listed."""
        await asyncio.gather(*(reflector.listed() for reflector in self.reflectors))

    @property
    def were_listed(self) -> bool:
        """Return whether everything has been listed since the start."""
        return all(reflector.lists for reflector in self.reflectors)

    def check(self) -> None:
        """Raise NotAllowed or ApiUnreachable if a copy is not current, with the reason."""
        for reflector in self.reflectors:
            attempted = f"watch {reflector.resource.plural}"
            if reflector.missing_right is not None:
                raise NotAllowed(attempted, reflector.problem, 403, reflector.missing_right)
            if reflector.problem:
                raise ApiUnreachable(attempted, reflector.problem)

    def missing_rights(self) -> list[str]:
        """Return the rights that RBAC does not give."""
        return [one.missing_right for one in self.reflectors if one.missing_right is not None]

    def queries(self) -> list[Json]:
        """Return the queries that are not being deleted."""
        return [one for one in self._queries.cache if not one["metadata"].get("deletionTimestamp")]

    def query(self, key: ObjectKey) -> Json | None:
        """Return a query, or None."""
        return self._queries.cache.get(key)

    def parts(self, resource: Resource, key: ObjectKey) -> dict[str, Json]:
        """Return what a query has of a kind, by name. Objects that something else owns are left out."""
        query = self.query(key)
        uid = query["metadata"].get("uid") if query is not None else None
        found = self._parts[resource.plural].get(key) or {}
        if resource is PODS:
            return dict(found)
        return {name: one for name, one in found.items() if _owner(one) == uid}

    def take(self, resource: Resource, found: Json) -> None:
        """Take in the answer to an own write."""
        for reflector in self.reflectors:
            if reflector.resource == resource:
                reflector.cache.put(found)

    def _query_changed(self, old: Json | None, new: Json | None) -> None:
        # Own writes of the status are no reason to look again.
        marks = [
            (one["metadata"].get("generation"), one["metadata"].get("deletionTimestamp")) for one in (old, new) if one
        ]
        if len(marks) < 2 or marks[0] != marks[1]:
            self._changed(key_of(new or old or {}))

    def _noting(self, resource: Resource) -> Callable[[Any, Any], None]:
        parts = self._parts[resource.plural]

        def note(old: Json | None, new: Json | None) -> None:
            found = new or old or {}
            namespace, name = key_of(found)
            key = namespace, str((found["metadata"].get("labels") or {}).get(QUERY_LABEL) or "")
            if new is not None:
                parts[key][name] = new
            else:
                parts[key].pop(name, None)
                if not parts[key]:
                    del parts[key]
            self._changed(key)

        return note


def _owner(found: Json) -> str | None:
    owners = found["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), None)
