"""The replicas of `lmerge demo`: their processes, their states and their counts over all incarnations.

Called by `run`. `DemoReplicas` starts and kills processes and reads their messages and the server's description of
them. It does not decide when to kill and which replica: `run` does.

Three replicas are plain Python, and one runs a plan of ``lmerge.temporal``. Where PySpark runs, a query of PySpark is
the fifth. It publishes by the batch, so it is rarely the first, and the demo does not depend on it.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from lmerge.demo.observe import Seen
from lmerge.demo.processes import Child
from lmerge.demo.verdict import ReplicaTotals
from lmerge.demo.view import SPARK, TEMPORAL, ReplicaScene
from lmerge.errors import Unavailable
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.style import STYLES

MERGE = "flights"
SPARK_PLAN = "update"  # the one that publishes at once and revises
TEMPORAL_PLAN = "revising"  # as well
ESSENTIAL = (*STYLES, TEMPORAL)  # the replicas that the demo depends on
WINDOW_S = 2.0  # over which rates and the leading replica are measured


class Replica:
    """One replica over all incarnations. ``gone``: why it has ended by itself, or empty."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gone = ""
        self.state = "starting"
        self.has_attached = False  # in this incarnation, as its process reports
        self.child: Child | None = None
        self.life = 0
        self.seen: Seen | None = None  # of the present incarnation
        self._before = ReplicaTotals()  # of the incarnations that have ended
        self._window: deque[tuple[float, ReplicaTotals]] = deque()

    @property
    def is_spark(self) -> bool:
        """Whether it is the query of PySpark."""
        return self.name == SPARK

    @property
    def totals(self) -> ReplicaTotals:
        """Its counts over all incarnations."""
        present = self.seen.totals if self.seen else ReplicaTotals()
        return self._before.plus(present)._replace(incarnations=self.life)

    @property
    def recent(self) -> tuple[float, ReplicaTotals]:
        """The length of the window in seconds, and the counts in it."""
        if len(self._window) < 2:
            return 1.0, ReplicaTotals()
        (start, first), (end, last) = self._window[0], self._window[-1]
        return end - start, ReplicaTotals(*(b - a for a, b in zip(first, last, strict=True)))

    def observe(self, seen: Seen | None, now: float) -> None:
        """Take the server's description at monotonic time ``now``.

        The replica has joined if both its process and the server report it.
        """
        if seen is not None and self.state in ("joining", "joined"):
            self.seen = seen
            self.state = seen.state if self.has_attached else "joining"
        self._window.append((now, self.totals))
        while now - self._window[0][0] > WINDOW_S:
            self._window.popleft()

    def end_incarnation(self, state: str = "killed") -> None:
        """Add the counts of the present incarnation to the earlier ones."""
        if self.seen is not None:
            self._before = self._before.plus(self.seen.totals)
        self.seen, self.child, self.state = None, None, state


class DemoReplicas:
    """The processes of the replicas.

    They publish ``days`` to the servers at ``address``, at ``speed`` days a second, by the clock in the file ``clock``.
    ``spark``: with one in Spark.
    """

    def __init__(
        self, address: str, days: Days, speed: float, folder: Path, clock: Path, *, spark: bool = False
    ) -> None:
        self._arguments = [
            "--server",
            address,
            "--merge",
            MERGE,
            "--first",
            days.first.isoformat(),
            "--last",
            days.last.isoformat(),
            "--clock",
            str(clock),
            "--supervised",
        ]
        self._folder = folder
        self._speed = speed
        self._start: float | None = None
        self.flights = 0
        self.replicas = {name: Replica(name) for name in (*ESSENTIAL, *([SPARK] if spark else []))}

    @property
    def essential(self) -> list[Replica]:
        """The replicas that the demo depends on."""
        return [replica for replica in self.replicas.values() if not replica.is_spark]

    @property
    def spark(self) -> Replica | None:
        """The replica in Spark, if there is one."""
        return self.replicas.get(SPARK)

    @property
    def is_complete(self) -> bool:
        """Whether all that the demo depends on are in the merge."""
        return all(replica.state == "joined" for replica in self.essential)

    def launch(self, name: str) -> None:
        """Start a process for ``name``. It loads the table and waits for the start of the replay."""
        replica = self.replicas[name]
        replica.life += 1
        replica.state, replica.has_attached = "loading", False
        module, own = "lmerge_replicas.flights", [name]
        if name == TEMPORAL:
            module, own = "lmerge_replicas.temporal", [TEMPORAL_PLAN, "--replica", name]
        elif replica.is_spark:
            module = "lmerge_replicas.spark"
            own = [SPARK_PLAN, "--replica", name, "--checkpoint", str(self._folder / name)]
        replica.child = Child(
            f"{name}-{replica.life}", module, [*own, *self._arguments], self._folder, group=replica.is_spark
        )

    def begin(self, start: float) -> None:
        """Start the replay at wall time ``start``, for replicas that are loaded and those that load later."""
        self._start = start
        for replica in self.replicas.values():
            if replica.state == "loaded":
                self._send_start(replica)

    def read_messages(self) -> None:
        """Read the messages of the processes. Raises Unavailable if one has ended that the demo depends on."""
        for replica in self.replicas.values():
            child = replica.child
            if child is None:
                continue
            if child.exit_code is not None:
                failure = child.failure("has ended by itself")
                if not replica.is_spark:
                    raise failure
                replica.gone = str(failure)
                child.kill()  # the processes that it has left behind
                replica.end_incarnation("gone")
                continue
            while not child.messages.empty():
                self._read_message(replica, child.messages.get())
            if replica.state == "loaded" and self._start is not None:
                self._send_start(replica)

    def _read_message(self, replica: Replica, message: Mapping[str, Any]) -> None:
        event = message["event"]
        if event in ("loaded", "done"):
            replica.state = event
        replica.has_attached |= event == "joined"
        self.flights = message.get("flights", self.flights)

    def observe(self, inputs: Mapping[str, Seen]) -> None:
        """Take the server's description of its inputs."""
        now = time.monotonic()
        for replica in self.replicas.values():
            replica.observe(inputs.get(replica.name), now)

    def winner(self, spared: Collection[str]) -> tuple[str, float]:
        """Return the replica that causes most of the output at present, and its share of the output.

        Never one of ``spared``, and never the one in Spark, which takes too long to come back.
        """
        won = {name: replica.recent[1].won for name, replica in self.replicas.items()}
        best = max((name for name in won if name not in spared and name != SPARK), key=lambda name: won[name])
        return best, won[best] / max(sum(won.values()), 1)

    def kill(self, name: str) -> int:
        """Kill the process of a replica with SIGKILL. Return the process id that it had."""
        replica = self.replicas[name]
        assert replica.child is not None
        pid = replica.child.pid
        replica.child.kill()
        replica.end_incarnation()
        return pid

    def end(self, *, at_s: float) -> None:
        """End all processes. Those that still run at monotonic time ``at_s`` are killed."""
        children = [replica.child for replica in self.replicas.values() if replica.child is not None]
        for child in children:
            child.ask_to_end()
        for child in children:
            child.end(at_s=at_s)

    def scenes(self, output_stable_point: int) -> tuple[ReplicaScene, ...]:
        """Return the lines of the view."""
        won = max(sum(replica.totals.won for replica in self.replicas.values()), 1)
        scenes = []
        for replica in self.replicas.values():
            seconds, recent = replica.recent
            behind = None
            if replica.seen is not None and replica.state == "joined":
                behind = max(output_stable_point - replica.seen.stable_point, 0) / 86_400e6 / self._speed * 1e3
            totals = replica.totals
            scenes.append(
                ReplicaScene(
                    replica.name,
                    replica.state,
                    replica.life,
                    totals.elements,
                    recent.elements / max(seconds, 0.1),
                    totals.late,
                    behind,
                    totals.won / won,
                )
            )
        return tuple(scenes)

    def _send_start(self, replica: Replica) -> None:
        assert replica.child is not None
        replica.state = "joining"
        # The one in Spark may be ending at this moment. Its exit code will report it.
        with contextlib.suppress(*([Unavailable] if replica.is_spark else [])):
            replica.child.send(start=self._start)
