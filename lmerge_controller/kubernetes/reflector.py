"""Keeps a local copy of a kind of objects current: list, then watch from there, for as long as it runs.

What ends a watch, and what follows:

    the server ends it after its time     watch again from the last resource version (bookmarks keep it recent)
    the connection is cut                 likewise, after a back-off
    the server does not end it in time    likewise: the connection was lost without notice
    it ends at once, without a change     likewise, after a back-off: something in between refuses watches
    410 Gone                              list again: changes may have been missed
    429, or 503 with Retry-After          wait for as long as the server asks for
    403                                   the missing right is reported; likewise: an API server that has just started
                                          refuses everything until it has read its roles
    ``relist()``                          list again at once: a new leader acts on nothing that is older than itself
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from lmerge.clock import random
from lmerge_controller.kubernetes.api import Api, Resource
from lmerge_controller.kubernetes.api_errors import ApiProblem, HistoryGone, NotAllowed, Throttled
from lmerge_controller.kubernetes.election import steady_s
from lmerge_controller.kubernetes.object_cache import ChangeCallback, ObjectCache

log = logging.getLogger(__name__)

# A server ends a watch after a time between these, so that not all watches begin at one moment. The time is short
# because nothing else shows a lost connection: a watch without changes is silent. Beginning again costs one request.
WATCH_S: Final = (25, 35)
# A watch that ends sooner, without a change, counts as one that failed.
WATCH_S_MIN: Final = 1.0
BACKOFF_S: Final = 0.2
BACKOFF_S_MAX: Final = 15.0


class Reflector:
    """A current copy of the objects of one kind, in one namespace or in all (None).

    ``problem`` is why it is not current, for people, or empty. ``problem_changed`` is called when it changes.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        namespace: str | None,
        on_change: ChangeCallback,
        *,
        selector: str = "",
        problem_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.resource = resource
        self.cache = ObjectCache(on_change)
        self.problem = ""
        self.missing_right: str | None = None
        self.lists = 0
        self.watches = 0
        self._api, self._namespace, self._selector = api, namespace, selector
        self._problem_changed = problem_changed
        self._version: str | None = None
        self._backoff_s = 0.0
        self._listed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def listed(self) -> None:
        """Wait until a list has been made since the start, or since the last ``relist``."""
        await self._listed.wait()

    def relist(self) -> None:
        """List again at once. Call ``listed`` to wait for it."""
        self._version = None
        self._backoff_s = 0.0
        self._listed.clear()
        if self._watching is not None:
            self._watching.cancel()

    async def run(self) -> None:
        """Keep the copy current until it is cancelled."""
        while True:
            # A turn is a task of its own, so that ``relist`` can end it without ending this one.
            self._watching = asyncio.create_task(self._turn(), name=f"watch {self.resource.plural}")
            try:
                await asyncio.wait([self._watching])
            finally:
                self._watching.cancel()
            if not self._watching.cancelled() and (failed := self._watching.exception()) is not None:
                raise failed

    async def _turn(self) -> None:
        try:
            if self._version is None:
                await self._list()
            await self._watch()
        except HistoryGone:
            self._version = None
        except ApiProblem as problem:
            self._note(problem)
            await asyncio.sleep(self._wait_s(problem))

    async def _list(self) -> None:
        """Take in all objects. A page may take long, so a list is consistent only as its last page is."""
        found: list[dict[str, Any]] = []
        more = ""
        while True:
            page = await self._api.page(self.resource, self._namespace, more, self._selector)
            meta = page["metadata"]
            # Objects of a list have neither kind nor version of their own.
            kind = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
            found += [kind | one for one in page.get("items") or ()]
            more = meta.get("continue") or ""
            if not more:
                break
        version = str(meta["resourceVersion"])
        self.cache.replace(found, int(version) if version.isdigit() else 0)
        self._version = version
        self.lists += 1
        self._backoff_s = 0.0
        self._note_current()
        self._listed.set()

    async def _watch(self) -> None:
        assert self._version is not None
        self.watches += 1
        began, has_changes = steady_s(), False
        changes = self._api.watch(
            self.resource, self._namespace, self._version,
            seconds=random.randint(*WATCH_S), selector=self._selector, accepted=self._note_current,
        )  # fmt: skip
        async for kind, found in changes:
            self._version = str(found["metadata"]["resourceVersion"])
            has_changes, self._backoff_s = True, 0.0
            if kind == "DELETED":
                self.cache.remove(found)
            elif kind in ("ADDED", "MODIFIED"):
                self.cache.put(found)
        if has_changes or steady_s() - began >= WATCH_S_MIN:
            self._backoff_s = 0.0
        else:
            await asyncio.sleep(self._wait_s())

    def _wait_s(self, problem: ApiProblem | None = None) -> float:
        """Return the seconds to wait after a problem; the back-off doubles while nothing succeeds."""
        self._backoff_s = min(BACKOFF_S_MAX, max(BACKOFF_S, self._backoff_s * 2))
        wished = problem.retry_after_s if isinstance(problem, Throttled) else None
        return max(self._backoff_s, wished or 0.0) * random.uniform(0.8, 1.2)

    def _note(self, problem: ApiProblem) -> None:
        if str(problem) == self.problem:
            return
        log.warning("%s are not current: %s", self.resource.plural, problem)
        self.problem = str(problem)
        self.missing_right = problem.missing if isinstance(problem, NotAllowed) else None
        self._problem_changed()

    def _note_current(self) -> None:
        if self.problem:
            self.problem, self.missing_right = "", None
            self._problem_changed()


async def run_all(reflectors: list[Reflector]) -> None:
    """Run reflectors until this is cancelled, or one fails."""
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
