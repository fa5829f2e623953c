"""The live data of the status page: samples, and messages that all viewers of one topic share.

A topic is the list of merges, or one merge. The feed's task *refreshes* the topics that are watched, once a second and
when something has occurred: it makes the message with what has changed, once for all viewers. A viewer takes the newest
message when it is ready to write. If it has missed one, it takes a whole report instead. So there are no queues, and a
slow viewer costs no memory.

    version     1       2       3       4
    fast      whole  changed changed changed
    slow      whole  ......writes......whole

The task also samples the histories, whether anybody watches or not: who opens the page in an incident sees what came
before it. What the task costs is bounded: ``page_history_merges`` merges a second, ``ROWS_MAX`` rows of the list a
second, and the topics that are watched. It works in steps, and the merges run in between.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from lmerge import clock
from lmerge.errors import LimitExceeded, LmergeError
from lmerge.service import log
from lmerge.service.admin import commands
from lmerge.service.admin.status import lmerge_version
from lmerge.service.admin.status_history import MergeHistory
from lmerge.service.admin.status_report import differences_report, merge_report, merge_row, occurrence_list
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.registry import Registry
from lmerge.service.settings import Settings

# How often the feed looks whether something has occurred in a merge that is watched, per interval between samples. A
# viewer sees a death so much earlier than the next sample.
_LOOKS: Final = 5
# Merges in one step: about a millisecond.
_STEP_MERGES: Final = 16
# Rows of the list of merges that are made in one interval. With more merges each row is renewed less often.
ROWS_MAX: Final = 128
# A wall clock that has drifted by so much from the loop's is taken anew.
_CLOCK_JUMP_S: Final = 0.5


class Topic:
    """What some viewers watch. ``version`` counts the refreshes. ``changed``: the message of the last one."""

    def __init__(self) -> None:
        self.version = 0
        self.viewers = 0
        self.changed = b""
        self._whole: bytes | None = None
        self._next: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def publish(self, changed: bytes) -> None:
        """Offer a new version to all viewers."""
        self.version += 1
        self.changed, self._whole = changed, None
        done, self._next = self._next, asyncio.get_running_loop().create_future()
        done.set_result(None)

    async def beyond(self, version: int) -> None:
        """Wait until there is a version above this one."""
        while self.version <= version:
            await asyncio.shield(self._next)

    def message_after(self, version: int | None) -> bytes:
        """Return what a viewer needs that has ``version``; None: it has nothing yet."""
        if version is not None and version == self.version - 1:
            return self.changed
        if self._whole is None:
            self._whole = self.whole()
        return self._whole

    def whole(self) -> bytes:
        """Return a whole report, as the message of an event stream."""
        raise NotImplementedError


class MergeTopic(Topic):
    """One merge, which need not exist."""

    def __init__(self, feed: StatusFeed, name: str) -> None:
        super().__init__()
        self.name = name
        self.noted = 0  # occurrences in the last message
        self._feed = feed
        self._sampled = 0
        self._hub: Hub | None = None
        self._history: MergeHistory | None = None
        self._differences: dict[bool, tuple[Hub, int, dict[str, Any]]] = {}

    @property
    def has_news(self) -> bool:
        """Whether something has occurred since the last message."""
        hub = self._feed.hub(self.name)
        return (0 if hub is None else hub.state.occurrences.count) != self.noted

    def refresh(self) -> None:
        """Publish what has changed since the last refresh."""
        hub, history = self._feed.hub(self.name), self._feed.histories.get(self.name)
        if hub is not self._hub or history is not self._history:  # the numbers begin anew
            self._hub, self._history, self.noted, self._sampled = hub, history, 0, 0
        self.publish(event("merge", self.report(since=self._sampled, after=self.noted)))
        self.noted = 0 if hub is None else hub.state.occurrences.count
        self._sampled = 0 if history is None else history.count

    def whole(self) -> bytes:
        return event("merge", self.report())

    async def differences(self, *, with_payloads: bool) -> dict[str, Any] | None:
        """Report where the inputs differ, newest first. ``with_payloads``: with the events that differ.

        Made once for each number of differences, for all viewers. None: there is no such merge.
        """
        hub = self._feed.hub(self.name)
        if hub is None:
            return None
        count = hub.state.certifier.divergences
        made = self._differences.get(with_payloads)
        if made is not None and made[:2] == (hub, count):
            return made[2]
        report: dict[str, Any] = {"count": count, "withheld": not with_payloads, "intervals": []}
        if count:
            try:
                certified = await commands.certify_merge(hub)
            except LmergeError:  # the merge has failed, or the server drains
                return report
            report["intervals"] = differences_report(certified, hub.state.schema, with_payloads=with_payloads)
        self._differences[with_payloads] = (hub, count, report)
        return report

    def report(self, since: int = 0, after: int = 0) -> dict[str, Any]:
        """Report the merge, with the samples from ``since`` on and the occurrences after the number ``after``."""
        offset_s = self._feed.wall_offset_s
        report: dict[str, Any] = {"whole": not (since or after), **self._feed.head()}
        hub, history = self._feed.hub(self.name), self._feed.histories.get(self.name)
        report["merge"] = None if hub is None else merge_report(hub, history)
        report["history"] = None if history is None else history.since(since, offset_s)
        noted = [] if hub is None else [one for one in hub.state.occurrences.recent if one.number > after]
        report["occurrences"] = occurrence_list(noted, offset_s)
        return report


class MergesTopic(Topic):
    """The list of merges. Rows are renewed in turn, at most ``ROWS_MAX`` in one refresh."""

    def __init__(self, feed: StatusFeed) -> None:
        super().__init__()
        self._feed = feed
        self._rows: dict[str, dict[str, Any]] = {}
        self._counted: dict[str, tuple[float, int, float | None]] = {}  # when, output elements by then, rate
        self._noted: dict[str, int] = {}
        self._place = 0

    @property
    def has_news(self) -> bool:
        """Whether something has occurred in one of the merges, or one has come or gone."""
        hubs = self._feed.hubs
        return len(hubs) != len(self._rows) or any(
            hub.state.occurrences.count != self._noted.get(name) for name, hub in hubs.items()
        )

    async def refresh(self, *, only_news: bool = False) -> None:
        """Renew rows, and publish those that have changed. ``only_news``: of the merges in which something occurred."""
        names = self._due_names(only_news)
        changed = []
        for at in range(0, len(names), _STEP_MERGES):
            changed += [row for name in names[at : at + _STEP_MERGES] if (row := self._renewed(name)) is not None]
            await asyncio.sleep(0)
        gone = [name for name in self._rows if name not in self._feed.hubs]
        for name in gone:
            del self._rows[name], self._counted[name], self._noted[name]
        self.publish(event("merges", {"whole": False, **self._feed.head(), "rows": changed, "gone": gone}))

    def whole(self) -> bytes:
        return event("merges", self.report())

    def report(self) -> dict[str, Any]:
        """Report all rows as they were made last, and those of merges without a row as they are now."""
        if len(self._rows) < len(self._feed.hubs) <= ROWS_MAX:
            for name in self._feed.hubs:
                self._renewed(name)
        return {"whole": True, **self._feed.head(), "rows": list(self._rows.values()), "gone": []}

    def _due_names(self, only_news: bool) -> list[str]:
        hubs = self._feed.hubs
        news = [name for name, hub in hubs.items() if hub.state.occurrences.count != self._noted.get(name)]
        if only_news:
            return news[:ROWS_MAX]
        names = list(hubs)
        start = self._place % max(1, len(names))
        self._place = start + ROWS_MAX
        return list(dict.fromkeys([*news[:ROWS_MAX], *(names[start:] + names[:start])[:ROWS_MAX]]))

    def _renewed(self, name: str) -> dict[str, Any] | None:
        """Make the row of a merge; return it if it has changed."""
        hub = self._feed.hubs.get(name)
        if hub is None:
            return None
        row = merge_row(hub, self._rate(name, hub), self._feed.wall_offset_s)
        self._noted[name] = hub.state.occurrences.count
        if row == self._rows.get(name):
            return None
        self._rows[name] = row
        return row

    def _rate(self, name: str, hub: Hub) -> float | None:
        """Return the output elements a second since the row was made last, if that is long enough ago."""
        now_s = asyncio.get_running_loop().time()
        emitted = hub.state.observed.emitted
        count = emitted.inserts + emitted.adjusts
        before_s, before, rate = self._counted.get(name, (now_s, count, None))
        if now_s - before_s >= 0.9 * self._feed.settings.page_interval_s:
            rate = max(0, count - before) / (now_s - before_s)
        elif name in self._counted:
            return rate
        self._counted[name] = (now_s, count, rate)
        return rate


class StatusFeed:
    """The feed of one server.

    ``histories``: those that are kept, by merge. ``wall_offset_s``: what makes a time of the loop's clock one of the
    wall clock. It is constant unless that clock jumps, so what has not changed has the same time in each message.
    """

    def __init__(self, registry: Registry, settings: Settings, why_not_ready: Callable[[], str | None]) -> None:
        self.settings = settings
        self.histories: dict[str, MergeHistory] = {}
        self.viewers = 0
        self._registry = registry
        self._why_not_ready = why_not_ready
        self._started_at = time.monotonic()
        self._version = lmerge_version()  # which reads a file
        self._engine = settings.resolved_engine
        self.wall_offset_s = _wall_offset_s()
        self._topics: dict[str | None, MergeTopic | MergesTopic] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to sample and refresh."""
        self._task = asyncio.create_task(self._run(), name="status feed")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @contextmanager
    def watch(self, merge: str | None) -> Iterator[Topic]:
        """Give the topic of a merge, or of the list of merges, to one more viewer. Raises LimitExceeded."""
        if self.viewers >= self.settings.page_viewers_max:
            raise LimitExceeded(f"{self.viewers} status pages are open on this server, the limit; close one")
        topic = self._topic(merge)
        topic.viewers += 1
        self.viewers += 1
        try:
            yield topic
        finally:
            self.viewers -= 1
            topic.viewers -= 1
            if not topic.viewers:
                self._topics.pop(merge, None)

    def report(self, merge: str | None) -> dict[str, Any]:
        """Report the list of merges, or one merge, as of now."""
        return MergesTopic(self).report() if merge is None else MergeTopic(self, merge).report()

    @property
    def hubs(self) -> dict[str, Hub]:
        return self._registry.hubs

    def hub(self, merge: str) -> Hub | None:
        return self._registry.hubs.get(merge)

    def head(self) -> dict[str, Any]:
        """Report the server, for the head of each message."""
        return {
            "now_ms": clock.wall_us() // 1000,
            "interval_ms": round(1000 * self.settings.page_interval_s),
            "server": {
                "version": self._version,
                "engine": self._engine,
                "uptime_s": round(time.monotonic() - self._started_at),
                "merges": len(self._registry.hubs),
                "viewers": self.viewers,
                "not_ready": self._why_not_ready() or "",
                "security": self.settings.transport_security,
            },
        }

    def _topic(self, merge: str | None) -> MergeTopic | MergesTopic:
        topic = self._topics.get(merge)
        if topic is None:
            topic = MergesTopic(self) if merge is None else MergeTopic(self, merge)
            self._topics[merge] = topic
            if merge is not None and merge in self.hubs:
                self._keep_history_of(merge)
        return topic

    async def _run(self) -> None:
        while True:
            try:
                await self._sample()
                for topic in list(self._topics.values()):
                    if isinstance(topic, MergeTopic):
                        topic.refresh()
                    else:
                        await topic.refresh()
                for _ in range(_LOOKS):
                    await asyncio.sleep(self.settings.page_interval_s / _LOOKS)
                    await self._refresh_those_with_news()
            except Exception:  # the page is no part of the data path: the server and the page go on
                log.logger.exception("the status page cannot be refreshed")
                await asyncio.sleep(self.settings.page_interval_s)

    async def _refresh_those_with_news(self) -> None:
        for topic in list(self._topics.values()):
            if not topic.has_news:
                continue
            if isinstance(topic, MergeTopic):
                topic.refresh()
            else:
                await topic.refresh(only_news=True)

    async def _sample(self) -> None:
        offset_s = _wall_offset_s()
        if abs(offset_s - self.wall_offset_s) > _CLOCK_JUMP_S:
            self.wall_offset_s = offset_s
        for name in [name for name in self.histories if name not in self.hubs]:
            del self.histories[name]
        for name in list(self.hubs):
            if len(self.histories) >= self.settings.page_history_merges:
                break
            self.histories.setdefault(name, MergeHistory(self.settings.page_history_samples))
        for at, (name, history) in enumerate(list(self.histories.items())):
            hub = self.hubs.get(name)
            if hub is not None:
                history.take(hub, asyncio.get_running_loop().time())
            if at % _STEP_MERGES == _STEP_MERGES - 1:
                await asyncio.sleep(0)

    def _keep_history_of(self, merge: str) -> None:
        """Keep the history of a merge that is watched, if need be in place of one that is not."""
        history = self.histories.pop(merge, None) or MergeHistory(self.settings.page_history_samples)
        if len(self.histories) >= self.settings.page_history_merges:
            unwatched = [name for name in self.histories if name not in self._topics]
            if not unwatched:
                return
            del self.histories[unwatched[0]]
        self.histories[merge] = history  # at the end: what was watched last is given up last


def _wall_offset_s() -> float:
    return clock.wall_us() / 1e6 - asyncio.get_running_loop().time()


def event(name: str, data: Any) -> bytes:
    """Return the message of an event stream that carries ``data`` as JSON, on one line."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"event: {name}\ndata: {text}\n\n".encode()
