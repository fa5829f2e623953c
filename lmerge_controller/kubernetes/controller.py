"""Operates every ReplicatedQuery of a namespace, or of all. Called by `lmerge controller`.

    always          the copies are kept current, also by a process that does not lead: it takes over at once
    while leading   a ``QueryLoop`` for each query; all of them end before the leadership is over

A description that is not valid changes nothing: its query goes on as last described, and its status names the problem.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from lmerge.client.connection.security import Security
from lmerge.errors import LmergeError, UsageError
from lmerge.time_limit import time_limit
from lmerge_controller.kubernetes.api import QUERIES, Api, Json
from lmerge_controller.kubernetes.backend import KubernetesBackend, problem_reason
from lmerge_controller.kubernetes.cluster_copy import ClusterCopy
from lmerge_controller.kubernetes.controller_metrics import ControllerMetrics
from lmerge_controller.kubernetes.election import DEFAULT_TIMES, Election
from lmerge_controller.kubernetes.events import EventWriter
from lmerge_controller.kubernetes.fence import FencedWriter
from lmerge_controller.kubernetes.lease_rules import LeaseTimes, term_of
from lmerge_controller.kubernetes.manifests import PodSettings
from lmerge_controller.kubernetes.object_cache import ObjectKey, key_of
from lmerge_controller.kubernetes.query_status import QueryStatus
from lmerge_controller.loop import QueryLoop
from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.model.reading import query_of
from lmerge_controller.observe.server_calls import ServerCalls

log = logging.getLogger(__name__)

LEASE_NAME: Final = "lmerge-controller"
# So long a new leader waits for its lists before it reports what keeps it from them.
LIST_S: Final = 5.0
# After an error of the program in the loop of one query.
AGAIN_S: Final = 5.0


@dataclass(frozen=True)
class ControllerSettings:
    """``namespace``: whose queries; None: all. ``lease_namespace``: of the Lease. ``identity``: of this process."""

    namespace: str | None
    lease_namespace: str
    identity: str
    pods: PodSettings
    security: Security | None = None
    times: LeaseTimes = field(default=DEFAULT_TIMES)


class Controller:
    """A candidate for the leadership, and while it leads, the loops of all queries."""

    def __init__(self, api: Api, election_api: Api, settings: ControllerSettings) -> None:
        self._settings = settings
        self._api = api
        self._woken = asyncio.Event()
        self._dirty: set[ObjectKey] = set()
        self._operated: dict[ObjectKey, OperatedQuery] = {}
        self._refused: dict[ObjectKey, tuple[str, int]] = {}  # descriptions that are not valid
        self.copies = ClusterCopy(api, settings.namespace, self._note)
        self.metrics = ControllerMetrics(self.copies)
        # Calls of the election have connections of their own: they never wait behind others.
        self.election = Election(
            election_api,
            settings.lease_namespace,
            LEASE_NAME,
            settings.identity,
            lead=self._lead,
            floor=self._highest_term,
            times=settings.times,
        )
        self.metrics.election = self.election
        self.writer = FencedWriter(api, self.election.guard, self.copies.take)
        self._events = EventWriter(api, settings.identity)

    async def run(self) -> None:
        """Run until ``stop``. Raises what a copy or the election cannot go on after."""
        copying = asyncio.create_task(self.copies.run())
        electing = asyncio.create_task(self.election.run())
        try:
            await asyncio.wait((copying, electing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.election.stop()
            await asyncio.wait([electing])
            copying.cancel()
            await asyncio.wait([copying])
        for task in (electing, copying):
            if not task.cancelled() and (failed := task.exception()) is not None:
                raise failed

    def stop(self) -> None:
        """Have ``run`` end: loops end between two actions, then the Lease is released."""
        self.election.stop()

    def why_not_ready(self) -> str | None:
        """Return why this process could not lead now, or None."""
        try:
            self.copies.check()
        except LmergeError as problem:
            return str(problem)
        if not self.copies.were_listed:
            return "the cluster is not listed yet"
        return self.election.problem or None

    def _note(self, key: ObjectKey) -> None:
        """Note that something of a query has changed: once, however often it changes before it is looked at."""
        self._dirty.add(key)
        self._woken.set()

    async def _highest_term(self) -> int:
        """Return the highest term that any query carries, by a list that is not older than this call."""
        highest, more = 0, ""
        while True:
            page = await self._api.page(QUERIES, self._settings.namespace, more)
            for one in page.get("items") or ():
                highest = max(highest, int((one.get("status") or {}).get("term") or 0), term_of(one))
            more = page["metadata"].get("continue") or ""
            if not more:
                return highest

    async def _lead(self, term: int) -> None:
        self.copies.relist()  # nothing that is older than this leadership is acted upon
        await self._await_lists()
        async with ServerCalls(self._settings.security) as servers:
            try:
                self._dirty |= {key_of(one) for one in self.copies.queries()}
                while True:
                    dirty, self._dirty = self._dirty, set()
                    for key in dirty:
                        await self._look_at(key, servers)
                    if not self._dirty:
                        self._woken.clear()
                        await self._woken.wait()
            finally:
                tasks = [one.task for one in self._operated.values()]
                self._operated.clear()
                for task in tasks:
                    task.cancel()
                if tasks:
                    await asyncio.wait(tasks)

    async def _await_lists(self) -> None:
        """Wait until everything is listed. Until then each query that is listed shows what is missing."""
        while True:
            with suppress(asyncio.TimeoutError):
                async with time_limit(LIST_S):
                    await self.copies.listed()
                return
            try:
                self.copies.check()
            except LmergeError as problem:
                log.warning("nothing is operated: %s", problem_reason(problem)[1])
                for found in self.copies.queries():
                    await self._show_problem(key_of(found), problem)

    async def _look_at(self, key: ObjectKey, servers: ServerCalls) -> None:
        """Begin, wake or end the loop of a query, as its object is now."""
        found, operated = self.copies.query(key), self._operated.get(key)
        if found is None or found["metadata"].get("deletionTimestamp"):
            self._refused.pop(key, None)
            if operated is not None:
                del self._operated[key]
                operated.task.cancel()
                await asyncio.wait([operated.task])
            return
        mark = found["metadata"]["uid"], int(found["metadata"].get("generation") or 0)
        if operated is not None and operated.mark[0] != mark[0]:
            operated.task.cancel()  # the query was deleted, and another was made of the same name
            await asyncio.wait([operated.task])
            operated = None
        if self._refused.get(key) == mark or (operated is not None and operated.mark == mark):
            if operated is not None:
                operated.backend.wake()
            return
        try:
            query = self._described(found)
        except UsageError as problem:
            # What ran goes on as last described.
            self._refused[key] = mark
            await self._show_problem(key, problem)
            return
        self._refused.pop(key, None)
        if operated is not None:
            operated.backend.described(query)
            self._operated[key] = replace(operated, mark=mark)
        else:
            self._begin(key, mark, query, servers)

    def _begin(self, key: ObjectKey, mark: tuple[str, int], query: ReplicatedQuery, servers: ServerCalls) -> None:
        pods, events = self._settings.pods, self._events
        backend = KubernetesBackend(query, self.copies, self.writer, events, pods, self.metrics)
        loop = QueryLoop(lambda: backend.query, backend, servers, may_act=lambda: self.election.term > 0)
        task = asyncio.create_task(loop.run(), name=f"query {'/'.join(key)}")
        self._operated[key] = OperatedQuery(mark, backend, task)
        task.add_done_callback(lambda ended: self._note_end(key, ended))

    def _note_end(self, key: ObjectKey, task: asyncio.Task[None]) -> None:
        """Begin the loop of a query again that an error of the program has ended. Others are not concerned."""
        operated = self._operated.get(key)
        if operated is None or operated.task is not task or task.cancelled():
            return
        del self._operated[key]
        log.error("the loop of %s failed; it begins again in %s s", "/".join(key), AGAIN_S, exc_info=task.exception())
        asyncio.get_running_loop().call_later(AGAIN_S, self._note, key)

    async def _show_problem(self, key: ObjectKey, problem: Exception) -> None:
        try:
            await QueryStatus(key, self.copies, self.writer).show_problem(*problem_reason(problem))
        except LmergeError as failed:
            log.warning("the status of %s is not written: %s", "/".join(key), failed)

    def _described(self, found: Json) -> ReplicatedQuery:
        """Return a query as its object describes it. Raises UsageError."""
        meta = found["metadata"]
        query = query_of(found, source=f"{meta['namespace']}/{meta['name']}")
        if query.servers.are_ours:
            raise UsageError("spec.servers.count: on Kubernetes the chart runs the servers; name them in addresses")
        return query


@dataclass(frozen=True)
class OperatedQuery:
    """A query with its loop. ``mark``: uid and generation of the object that is operated."""

    mark: tuple[str, int]
    backend: KubernetesBackend
    task: asyncio.Task[None]
