"""The merges of one server, by name.

A merge is made when it is declared or first published to. Subscribers that come earlier can wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from lmerge.errors import Draining, LimitExceeded, UnknownMerge, UsageError
from lmerge.service import log
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.reset import begin_epoch
from lmerge.service.merge.staged_parts import Staging
from lmerge.service.output.durable_merges import DurableOutput, RecoveredMerge, StoreFolder
from lmerge.service.output.session_recorder import Recorder, record_file
from lmerge.service.settings import Settings


class Registry:
    """All hubs of the server. Used on the server's loop only."""

    def __init__(self, settings: Settings, on_crash: Callable[[BaseException], None]) -> None:
        self.hubs: dict[str, Hub] = {}
        self.draining = False
        self.staging = Staging(settings)
        self._settings = settings
        self._on_crash = on_crash
        self._pool = ThreadPoolExecutor(settings.merge_threads, "merge")  # starts its threads when they are needed
        self._folder: StoreFolder | None = None
        self._measured: Future[None] | None = None
        self._disk = ThreadPoolExecutor(settings.store_threads, "store")
        self._awaited: dict[str, list[asyncio.Future[Hub]]] = {}

    def declare(self) -> None:
        """Make the merges that are in the store, and the declared ones. Raises UsageError, StoreInUse."""
        if self._settings.store is not None:
            self._folder = StoreFolder(self._settings)
            for recovered, store in self._folder.recover():
                self._start(recovered.name, DurableOutput(store, recovered.name, self._disk, self._settings), recovered)
        for name in self._settings.merges:
            if name not in self.hubs and not self._is_damaged(name):
                self._create(name)

    def get(self, name: str) -> Hub:
        """Return the hub of a merge. Raises UnknownMerge, StoreDamaged."""
        self._check_damage(name)
        hub = self.hubs.get(name)
        if hub is None or (not hub.state.attached_ever and name not in self._settings.merges):
            raise UnknownMerge(f"there is no merge {name!r} on this server")
        return hub

    def for_publisher(self, name: str) -> Hub:
        """Return the hub of a merge; make it if needed. Raises UnknownMerge, LimitExceeded, UsageError, Draining."""
        if self.draining:
            raise Draining(Draining.MESSAGE)
        hub = self.hubs.get(name)
        if hub is not None:
            return hub
        if not self._settings.allow_create:
            raise UnknownMerge(f"there is no merge {name!r} on this server, and publishers cannot make one here")
        return self._create(name)

    def staging_for(self, name: str) -> Staging:
        """Return the staging area for parts of a merge, which need not exist yet. Raises UnknownMerge, Draining."""
        if self.draining:
            raise Draining(Draining.MESSAGE)
        if name not in self.hubs and not self._settings.allow_create:
            raise UnknownMerge(f"there is no merge {name!r} on this server, and publishers cannot make one here")
        return self.staging

    def settle(self, hub: Hub) -> None:
        """Settle a merge after a publisher's attempt to attach: wake those that wait for it, or drop it.

        It is dropped if no input ever attached.
        """
        if hub.state.attached_ever:
            for waiter in self._awaited.pop(hub.name, ()):
                if not waiter.done():
                    waiter.set_result(hub)
        elif hub.is_unused and hub.name not in self._settings.merges and self.hubs.get(hub.name) is hub:
            del self.hubs[hub.name]
            hub.abandon()

    async def reset(self, name: str, epoch: int, reason: str, caller: str) -> int:
        """Begin a new epoch of a merge; return its number.

        The store of the merge may be damaged, and the merge may have failed. Raises UnknownMerge, UsageError, Draining,
        StoreFull.
        """
        if self.draining:
            raise Draining(Draining.MESSAGE)
        hub = self.hubs.get(name)
        is_damaged = self._is_damaged(name)
        if hub is not None and not hub.task.is_alive:
            del self.hubs[name]
            await hub.close()
            hub, is_damaged = None, True
        if is_damaged:
            if self._folder is not None:
                self._folder.remove(name)
            hub = self._create(name)
            hub.state.attached_ever = True  # the merge existed before, and must go on existing
        return await begin_epoch(self.get(name) if hub is None else hub, epoch, reason, caller)

    async def wait_for(self, name: str) -> Hub:
        """Wait until the merge exists; return its hub. Raises LimitExceeded, Draining."""
        if self.draining:
            raise Draining(Draining.MESSAGE)
        try:
            return self.get(name)
        except UnknownMerge:
            pass
        if sum(map(len, self._awaited.values())) >= self._settings.waiting_subscribers:
            raise LimitExceeded(f"{self._settings.waiting_subscribers} subscribers wait for merges already, the limit")
        waiter: asyncio.Future[Hub] = asyncio.get_running_loop().create_future()
        waiters = self._awaited.setdefault(name, [])
        waiters.append(waiter)
        try:
            return await waiter
        finally:
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters and self._awaited.get(name) is waiters:
                del self._awaited[name]

    @property
    def store_free_bytes(self) -> int | None:
        """The space that the file system of the store has left; None if there is no store."""
        return None if self._folder is None else self._folder.free_bytes

    def measure_store(self) -> None:
        """Measure the free space, in a thread. A disk that does not answer is not measured twice at a time."""
        if self._folder is not None and (self._measured is None or self._measured.done()):
            self._measured = self._disk.submit(self._folder.measure)

    async def drain(self) -> None:
        """Take nothing new; merge and send what was received."""
        self.draining = True
        for waiters in self._awaited.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(Draining(Draining.MESSAGE))
        await asyncio.gather(*(hub.drain() for hub in self.hubs.values()))

    async def close(self) -> None:
        await asyncio.gather(*(hub.close() for hub in self.hubs.values()))
        self._pool.shutdown(wait=False)
        self._disk.shutdown(wait=False)
        if self._folder is not None:
            self._folder.close()

    def _check_damage(self, name: str) -> None:
        if self._folder is not None:
            self._folder.check(name)

    def _is_damaged(self, name: str) -> bool:
        return self._folder is not None and self._folder.path_of(name) in self._folder.damaged

    def _create(self, name: str) -> Hub:
        settings = self._settings
        self._check_damage(name)
        if len(self.hubs) >= settings.merges_max:
            raise LimitExceeded(f"merge {name!r} cannot be made: there are {len(self.hubs)} merges, the limit")
        durable = None
        if self._folder is not None:
            durable = DurableOutput(self._folder.store_of(name), name, self._disk, settings)
        hub = self._start(name, durable)
        log.event(logging.INFO, "merge made", merge=name)
        return hub

    def _start(self, name: str, durable: DurableOutput | None, recovered: RecoveredMerge | None = None) -> Hub:
        hub = Hub(name, self._settings, self._recorder(name), self._pool, durable, recovered)
        hub.start(self._on_crash)
        self.hubs[name] = hub
        if recovered is not None:
            log.event(
                logging.INFO,
                "merge recovered",
                merge=name,
                stable_point=hub.state.merge.stable_point,
                live_events=hub.state.merge.live_count,
                retained_from=hub.state.retained_from,
            )
        return hub

    def _recorder(self, name: str) -> Recorder | None:
        path = self._settings.record_path
        if path is None:
            return None
        if self.hubs and "{merge}" not in path:
            raise UsageError(
                f"merge {name!r} cannot be made: the server records merge {next(iter(self.hubs))!r} to "
                f'{path!r}; a record path with "{{merge}}" in it takes several'
            )
        return Recorder(record_file(path, name))
