"""Writes of a leader: each carries its term, and none undoes what a later leader has done.

A leader may be frozen between a decision and its write, and wake up when another leads. So before each write the
leadership is checked, and each write is conditional:

    change an object   its spec must be the one that the decision saw (uid and generation; the write itself is
                       conditional on the resource version); its term must not be above one's own
    create an object   it is created without pods (``replicas: 0``), which changes nothing; the pods come by a second
                       write, on the condition that the spec is that of the first
    delete an object   its uid must be the one that the decision saw
    write the status   likewise, and the API server refuses a term below the one that is there (a rule of the CRD)

What remains is one write under way at the moment of freezing: it takes effect late, and only on what has not changed.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from lmerge_controller.kubernetes.api import QUERIES, Api, Json, Resource
from lmerge_controller.kubernetes.api_errors import ObjectMissing, WriteConflict
from lmerge_controller.kubernetes.election import LeadershipLost
from lmerge_controller.kubernetes.lease_rules import TERM, term_of
from lmerge_controller.kubernetes.manifests import MANAGER

# Writes in flight over all queries. An API server serves 200 writes at a time by default, to all its clients.
WRITES_MAX: Final = 16
# A write that meets changes of others which are not in the spec is tried so often.
_TRIES: Final = 4


class FencedWriter:
    """Writes for as long as ``guard`` gives a term. ``took``: called with each object as the API server has it now."""

    def __init__(self, api: Api, guard: Callable[[], int], took: Callable[[Resource, Json], None]) -> None:
        self._api = api
        self._guard = guard
        self._took = took
        self._places = asyncio.Semaphore(WRITES_MAX)
        self.writes = 0

    @property
    def term(self) -> int:
        """Return the term. Raises LeadershipLost."""
        return self._guard()

    async def apply(self, resource: Resource, body: Json, current: Json | None) -> Json:
        """Apply an object as it should be. ``current``: as the decision saw it; None: it saw none.

        Raises LeadershipLost, WriteConflict, ApiProblem.
        """
        made = copy.deepcopy(body)
        if current is None and "replicas" in made.get("spec", {}):
            made["spec"]["replicas"] = 0
            current = await self._apply(resource, made, None)
        for _ in range(_TRIES - 1):
            with suppress(WriteConflict):
                return await self._apply(resource, copy.deepcopy(body), current)
            # Kubernetes writes a Deployment's status, and its revision at once: that changes no spec, so no generation.
            newer = await self._api.get(resource, body["metadata"]["namespace"], body["metadata"]["name"])
            if current is None or _spec_mark(newer) != _spec_mark(current):
                break
            current = newer
        return await self._apply(resource, copy.deepcopy(body), current)

    async def delete(self, resource: Resource, found: Json) -> None:
        """Delete the object that the decision saw. One that is gone is no error. Raises LeadershipLost, ApiProblem."""
        meta = found["metadata"]
        async with self._places:
            self._check(found)
            try:
                await self._api.delete(resource, meta["namespace"], meta["name"], uid=meta["uid"])
            except (ObjectMissing, WriteConflict):
                return  # it is gone, or another object has its name

    async def status(self, query: Json, status: Json) -> Json:
        """Replace the status of a query. Raises LeadershipLost, WriteConflict, ApiProblem."""
        async with self._places:
            term = self._check(query)
            if int((query.get("status") or {}).get("term") or 0) > term:
                raise LeadershipLost(f"a controller of a later term than {term} has written the status")
            whole = {key: query[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in query}
            # The API server fills in the digest of its own schema.
            fields = {key: value for key, value in status.items() if key != "schema"}
            written = await self._api.replace(QUERIES, whole | {"status": fields | {"term": term}}, "status")
        return self._note(QUERIES, written)

    async def read_again(self, query: Json) -> None:
        """Read a query anew, where the copy was too old for a write. Raises ApiProblem."""
        meta = query["metadata"]
        self._took(QUERIES, await self._api.get(QUERIES, meta["namespace"], meta["name"]))

    async def patch_status(self, resource: Resource, found: Json, status: Json) -> Json:
        """Merge fields into the status of an object that the decision saw. Raises LeadershipLost, ApiProblem."""
        meta = found["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        async with self._places:
            self._check(found)
            written = await self._api.strategic_patch(resource, meta["namespace"], meta["name"], body, "status")
        return self._note(resource, written)

    async def _apply(self, resource: Resource, body: Json, current: Json | None) -> Json:
        async with self._places:
            term = self._check(current)
            meta = body["metadata"]
            meta["annotations"] = (meta.get("annotations") or {}) | {TERM: str(term)}
            if current is not None:
                meta |= {"resourceVersion": current["metadata"]["resourceVersion"], "uid": current["metadata"]["uid"]}
            written = await self._api.apply(resource, body, manager=MANAGER)
        return self._note(resource, written)

    def _check(self, found: Json | None) -> int:
        """Return the term, if this process leads and no later leader has written the object."""
        term = self._guard()
        if term_of(found) > term:
            raise LeadershipLost(f"a controller of term {term_of(found)} has written it; this one has term {term}")
        return term

    def _note(self, resource: Resource, written: dict[str, Any]) -> Json:
        self.writes += 1
        self._took(resource, written)
        return written


def _spec_mark(found: Json) -> tuple[object, object]:
    """Return what changes with each change of an object's spec, by whomever."""
    return found["metadata"].get("uid"), found["metadata"].get("generation")
