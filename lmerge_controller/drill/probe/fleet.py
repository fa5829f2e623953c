"""The processes of the probe: its publishers and its reader. They are started, broken and ended here.

Called by the runner. Each client reaches each server through a link of its own (``links``), so that it can be cut off
from one server and not from others. Nothing here decides when a fault takes place.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from lmerge.demo.processes import Child
from lmerge.errors import LmergeError, Unavailable
from lmerge.wire.token import format_token
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.judging.truth import ProbeTruth
from lmerge_controller.drill.links import LinkHub
from lmerge_controller.drill.probe.reader import ReaderOrders
from lmerge_controller.drill.probe.replica import ReplicaOrders
from lmerge_controller.drill.process_marks import mark_of, send_signal

MERGE: Final = "lmerge-drill"
RECORDING: Final = "output.jsonl"
# From the order until the stream begins: every publisher has received it by then.
BEGIN_S: Final = 0.3
# An event lives for some seconds. Beyond this the stable point is no drill's.
AHEAD_S_MAX: Final = 60.0
READER: Final = "reader"


@dataclass
class ReplicaProcess:
    """One publisher of the probe. ``is_broken``: the drill has killed or changed it, so its end is no surprise."""

    orders: ReplicaOrders
    child: Child
    note: int
    is_broken: bool = False
    has_attached: bool = False
    has_joined: bool = False
    is_done: bool = False
    failure: str = ""
    lives: int = 1


@dataclass
class ReaderState:
    """What the reader has reported."""

    joined: int = 0
    stable_point: int = -(2**63)
    is_done: bool = False
    gaps: int = 0
    reconnects: int = 0
    failure: str = ""


class ProbeFleet:
    """The processes of one probe stream. ``run_id`` is part of every name, so that drills do not disturb each other."""

    def __init__(
        self, run_id: str, servers: Sequence[str], folder: Path, journal: UndoJournal, *, security: Any = None
    ) -> None:
        self.run_id = run_id
        self.servers = list(servers)
        self.truth: ProbeTruth | None = None
        self.replicas: dict[str, ReplicaProcess] = {}
        self.reader = ReaderState()
        self.recording = folder / RECORDING
        self._folder, self._journal = folder, journal
        self._security = security
        self._reader_child: Child | None = None
        self._salt = 0
        self.links = LinkHub(folder)
        self._note(self.links.child)

    # Starting.

    def add(self, *, role: str = "active") -> ReplicaProcess:
        """Start a further publisher. Once the stream has begun it joins with the events that are alive."""
        self._salt += 1
        name = f"probe-{self.run_id}-{self._salt}"
        orders = ReplicaOrders(
            name,
            self._through_links(name),
            MERGE,
            self._salt,
            role,
            joins=self.truth is not None,
            truth=None if self.truth is None else asdict(self.truth),
            security=self._credentials(),
        )
        process = self.replicas[name] = self._launch(orders, lives=1)
        return process

    def start_reader(self, stable_point: int, epoch: int) -> None:
        """Start the reader. It begins after ``stable_point``, which the merge has reached before this drill."""
        resume = format_token(MERGE, stable_point, epoch)
        orders = ReaderOrders(
            f"drill-{self.run_id}", self._through_links(READER), MERGE, str(self.recording), resume, self._credentials()
        )
        child = self._reader_child = Child(READER, "lmerge_controller.drill.probe.reader", [], self._folder)
        self._note(child)
        child.send(**asdict(orders))

    def begin(self, events_per_s: int, stable_point: int) -> ProbeTruth:
        """Order all publishers to begin after ``stable_point``, which the merge has reached. Return the truth.

        The last stable of the drill before is at the end of its last event, ahead of the clock. Raises Unavailable if
        the merge is further ahead than that: events of now would be of no effect there.
        """
        now_us = time.time_ns() // 1_000
        ahead_s = (stable_point - now_us) / 1e6
        if ahead_s > AHEAD_S_MAX:
            raise Unavailable(
                f"merge {MERGE} is {ahead_s:.0f} s ahead of this machine's clock: wait, or lmerge reset {MERGE}"
            )
        origin_us = max(now_us + int(BEGIN_S * 1e6), stable_point + 1)
        self.truth = ProbeTruth(origin_us, events_per_s, seed=int(self.run_id, 16) & 0xFFFF)
        for process in self.replicas.values():
            process.child.send(start=asdict(self.truth))
        return self.truth

    # The state.

    @property
    def names(self) -> frozenset[str]:
        """The names of the publishers that should be active and joined."""
        return frozenset(name for name, process in self.replicas.items() if process.orders.role == "active")

    def truth_of(self) -> ProbeTruth:
        """Return the truth of the stream, which has begun."""
        assert self.truth is not None
        return self.truth

    def by_number(self, number: int) -> str:
        """Return the name of an active publisher by its number, from 1, in the order of their start."""
        names = [name for name, process in self.replicas.items() if process.orders.role == "active"]
        return names[number - 1]

    def read_messages(self) -> None:
        """Take what the processes have sent. Raises Unavailable if one has ended that the drill did not break."""
        for process in self.replicas.values():
            while not process.child.messages.empty():
                _take(process, process.child.messages.get())
            if process.is_broken:
                continue
            if process.child.exit_code is not None:
                raise process.child.failure("has ended by itself")
            if process.failure:
                raise Unavailable(f"publisher {process.orders.name} of the probe has failed: {process.failure}")
        if self._reader_child is not None:
            self._read_reader(self._reader_child)
        if self.links.child.exit_code is not None:
            raise self.links.child.failure("has ended by itself")

    # Faults of publishers. Each returns what undoes it.

    def kill(self, name: str) -> Callable[[], None]:
        """Kill a publisher with SIGKILL. Undone: a new process joins under the same name."""
        self._end(name)
        return lambda: self._restart(name)

    def freeze(self, name: str) -> Callable[[], None]:
        """Let a publisher stand still. Undone: it goes on where it stood."""
        pid = self.replicas[name].child.pid
        return frozen(self._journal, pid)

    def lie(self, name: str) -> Callable[[], None]:
        """Let a publisher publish what the truth does not have. Undone: an honest process under the same name."""
        process = self.replicas[name]
        process.is_broken = True  # the servers may refuse it from now on
        process.child.send(lie=True)

        def undo() -> None:
            self._end(name)
            self._forget(name)
            self._restart(name)

        return undo

    def skew(self, name: str, seconds: float) -> Callable[[], None]:
        """Start a publisher again with its clock ``seconds`` ahead. Undone: with the right clock.

        Its incarnation was from the future. So the servers are ordered to forget it, as an operator would.
        """
        self._end(name)
        self._restart(name, skew_s=seconds)
        # A clock that is behind gives an old incarnation, which the servers refuse: that is no end of the drill.
        self.replicas[name].is_broken = True

        def undo() -> None:
            self._end(name)
            self._forget(name)
            self._restart(name, skew_s=0.0)

        return undo

    def cut(self, links: Sequence[str], directions: Sequence[str]) -> Callable[[], None]:
        """Block links. Undone: what waited passes."""
        return self._changed(links, directions, blocked=True)

    def slow(self, links: Sequence[str], delay_s: float) -> Callable[[], None]:
        """Delay links in both directions."""
        return self._changed(links, ("up", "down"), delay_s=delay_s)

    def links_of(self, name: str) -> list[str]:
        """Return the links of a publisher."""
        return [link for link in self.links.opened() if link.startswith(f"{name}>")]

    def links_to(self, server: int) -> list[str]:
        """Return the links to a server by its index."""
        return [link for link in self.links.opened() if link.endswith(f">{server}")]

    def remove(self, name: str) -> None:
        """End a publisher for good, and let the servers forget its name."""
        self._end(name)
        self._forget(name)
        del self.replicas[name]

    def is_running(self, name: str) -> bool:
        """Return whether a publisher's process runs and has not failed."""
        process = self.replicas[name]
        return process.child.exit_code is None and not process.failure

    def promote(self, name: str) -> None:
        """Count an observer that has taken over as active. A process that has ended meanwhile is started again."""
        process = self.replicas[name]
        process.orders = replace(process.orders, role="active")
        if not self.is_running(name):
            self.restart(name)

    def restart(self, name: str) -> None:
        """Start a publisher again that has ended or failed."""
        self._end(name)
        self._restart(name)

    def release(self, name: str) -> None:
        """Let a name attach again that a server refuses."""
        from lmerge.client.admin import release_input

        for server in self.servers:
            with suppress(LmergeError):  # away, or nothing of that name is refused, or the drill may not administer
                release_input(server, MERGE, name, security=self._security)

    # The end.

    def order_end(self) -> int:
        """Order publishers and reader to end. Return the number of events of the whole stream."""
        assert self.truth is not None
        count = self.truth.due(time.time_ns() // 1_000 + int(BEGIN_S * 1e6))
        for process in self.replicas.values():
            if process.orders.role == "active":
                process.child.send(end=count)
        if self._reader_child is not None:
            self._reader_child.send(end=self.truth.end(count))
        return count

    def end(self) -> None:
        """End all processes, and let the servers forget the names of this probe. What was frozen goes on first."""
        at_s = time.monotonic() + 5.0
        children = [process.child for process in self.replicas.values()]
        for child in [*children, *([self._reader_child] if self._reader_child else [])]:
            child.kill()
        self.links.end(at_s)
        for name in self.replicas:
            self._forget(name)

    # Parts.

    def _launch(self, orders: ReplicaOrders, lives: int) -> ReplicaProcess:
        child = Child(f"{orders.name}-{lives}", "lmerge_controller.drill.probe.replica", [], self._folder)
        note = self._note(child)
        child.send(**asdict(orders))
        return ReplicaProcess(orders, child, note, lives=lives)

    def _restart(self, name: str, skew_s: float | None = None) -> None:
        before = self.replicas[name]
        truth = None if self.truth is None else asdict(self.truth)
        skew_s = before.orders.skew_s if skew_s is None else skew_s
        orders = replace(before.orders, joins=True, truth=truth, skew_s=skew_s, salt=before.orders.salt + 100)
        self.replicas[name] = self._launch(orders, before.lives + 1)

    def _end(self, name: str) -> None:
        process = self.replicas[name]
        process.is_broken = True
        process.child.kill()
        self._journal.done(process.note)

    def _forget(self, name: str) -> None:
        from lmerge.client.admin import detach_input

        self.release(name)
        for server in self.servers:
            with suppress(LmergeError):
                detach_input(server, MERGE, name, reason="the drill has ended", forget=True, security=self._security)

    def _changed(
        self, links: Sequence[str], ways: Sequence[str], *, blocked: bool = False, delay_s: float = 0.0
    ) -> Callable[[], None]:
        hub = self.links
        for link in links:
            for way in ways:
                hub.change(link, way, blocked=blocked, delay_s=delay_s)

        def undo() -> None:
            for link in links:
                for way in ways:
                    hub.change(link, way)

        return undo

    def _through_links(self, client: str) -> str:
        return ",".join(self.links.open(f"{client}>{at}", server) for at, server in enumerate(self.servers))

    def _note(self, child: Child) -> int:
        return self._journal.note("end-process", pid=child.pid, mark=mark_of(child.pid))

    def _credentials(self) -> dict[str, Any] | None:
        """Return the arguments of ``Security``. Behind a link is a server, whose certificate has the server's name."""
        if self._security is None:
            return None
        names = {} if self._security.server_name is not None else self.links.hosts
        return asdict(replace(self._security, server_names=names))

    def _read_reader(self, child: Child) -> None:
        state = self.reader
        while not child.messages.empty():
            message = child.messages.get()
            event = message["event"]
            if event == "progress":
                state.joined, state.stable_point = message["joined"], message["stable_point"]
            elif event == "done":
                state.is_done, state.gaps, state.reconnects = True, message["gaps"], message["reconnects"]
            elif event == "failed":
                state.failure = message["reason"]
        if state.failure:
            raise Unavailable(f"the reader of the probe has failed: {state.failure}")
        if child.exit_code is not None and not state.is_done:
            raise child.failure("has ended by itself")


def frozen(journal: UndoJournal, pid: int) -> Callable[[], None]:
    """Stop a process with SIGSTOP, in the journal first. Return what lets it go on."""
    mark = mark_of(pid)
    note = journal.note("continue-process", pid=pid, mark=mark)
    send_signal(pid, mark, signal.SIGSTOP)

    def undo() -> None:
        send_signal(pid, mark, signal.SIGCONT)
        journal.done(note)

    return undo


def _take(process: ReplicaProcess, message: dict[str, Any]) -> None:
    event = message["event"]
    process.has_attached |= event == "attached"
    process.is_done |= event == "done"
    if event == "joined":
        process.has_joined = message["joined"]
    if event == "failed":
        process.failure = message["reason"]
