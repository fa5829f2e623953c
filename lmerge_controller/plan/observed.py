"""What was seen of a merged query at one moment: the input of ``plan``. Pure values.

Two sources fill it. A backend reports what it runs (``RunningParts``): processes, and the addresses of servers. The
loop asks each server (``lmerge_controller.observe``). Either may be missing or old; the plan expects that.

Times are seconds of the wall clock (``now_s`` and ``*_at_s``); stable points are in the merge's units of time.
"""

from __future__ import annotations

from dataclasses import dataclass

from lmerge.text_enum import TextEnum
from lmerge_controller.plan.record import Record


class ProcessPhase(TextEnum):
    """Where a process is in its life.

    STARTING: it has been asked for and is not seen to run yet (on Kubernetes: Pending). RUNNING. STOPPING: it has been
    asked to end. EXITED: it has ended, and only a new action starts it again. RESTARTING: it has ended, and something
    else starts it again (on Kubernetes: the kubelet). UNKNOWN: its machine does not answer.
    """

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    RESTARTING = "restarting"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ObservedProcess:
    """A process of a replica or of a server that a backend runs.

    ``name``: of the replica, or ``server-INDEX``. ``uid``: of this one life of it, different for each (a pod's UID; the
    process id with its start time). ``version``, ``index``: which replica of the query it is; for a server ``version``
    is empty. ``fingerprint``: of the description that it was started with (``VersionSpec.fingerprint``,
    ``ReplicatedQuery.servers_fingerprint``). ``role``: the role it was started in. ``started_at_s``: of this life.
    ``exits``: how often in a row it has ended; the count begins again when it has run for
    ``RestartSpec.backoff_max_s``. ``exited_at_s``, ``exit_code``: of the last end. ``problem``: why it does not run,
    for people, such as ImagePullBackOff or the last line of its log.
    """

    name: str
    uid: str
    phase: ProcessPhase
    version: str = ""
    index: int = 0
    fingerprint: str = ""
    role: str = "active"
    started_at_s: float = 0.0
    exits: int = 0
    exited_at_s: float | None = None
    exit_code: int | None = None
    problem: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether it may have an input at the servers: everything but EXITED."""
        return self.phase is not ProcessPhase.EXITED


@dataclass(frozen=True)
class ObservedInput:
    """An input, as one server reports it.

    ``role``: active or observe. ``state``: joining, joined, skipping, held, leaving, observing. ``lacks``: why it could
    not carry the output alone now; empty: it could. ``equal_intervals``: in a row. ``compared_intervals``,
    ``unequal_intervals``: of this incarnation.
    """

    replica: str
    incarnation: int
    role: str
    state: str
    stable_point: int
    attached_s: float = 0.0
    lacks: str = ""
    equal_intervals: int = 0
    compared_intervals: int = 0
    unequal_intervals: int = 0

    @property
    def is_joined(self) -> bool:
        """Whether it is active and counts; one that is held or skips has joined too."""
        return self.role == "active" and self.state in ("joined", "held", "skipping")


@dataclass(frozen=True)
class ObservedServer:
    """A server and the merge on it.

    ``address``: HOST:PORT; empty while it is not known. ``is_reachable``: it has answered; otherwise ``problem`` is why
    not, and the rest is empty. ``has_merge`` is False until the first publisher has come. ``divergences``: intervals in
    which inputs differed. ``quarantined``: replicas that may not attach. ``store``: memory, durable, or what is wrong.
    """

    address: str
    is_reachable: bool
    problem: str = ""
    version: str = ""
    has_merge: bool = False
    stable_point: int = -(2**63)
    survives_losses: int = 0
    divergences: int = 0
    divergence_policy: str = ""
    store: str = ""
    inputs: tuple[ObservedInput, ...] = ()
    quarantined: tuple[str, ...] = ()

    def input(self, replica: str) -> ObservedInput | None:
        """Return the input of a replica, or None if it is not attached."""
        return next((found for found in self.inputs if found.replica == replica), None)


@dataclass(frozen=True)
class RunningParts:
    """What a backend reports.

    ``addresses``: of all servers, in order of index; an address that is not known yet is empty. ``servers``: the
    processes of servers, if lmerge runs them. ``replicas``: those of replicas of every version, also of versions that
    are no longer described. ``record``: what was persisted last; None before the first plan.
    """

    addresses: tuple[str, ...]
    servers: tuple[ObservedProcess, ...] = ()
    replicas: tuple[ObservedProcess, ...] = ()
    record: Record | None = None


@dataclass(frozen=True)
class ObservedQuery:
    """Everything that was seen at ``now_s``. ``servers`` are in the order of ``parts.addresses``."""

    now_s: float
    parts: RunningParts
    servers: tuple[ObservedServer, ...]

    @property
    def reachable(self) -> tuple[ObservedServer, ...]:
        """The servers that have answered."""
        return tuple(server for server in self.servers if server.is_reachable)

    @property
    def survives_losses(self) -> int:
        """How many inputs may be lost at the server that could lose fewest; 0 if none answers."""
        return min((server.survives_losses for server in self.reachable), default=0)

    def process(self, name: str) -> ObservedProcess | None:
        """Return the process of a replica, or None if there is none."""
        return next((found for found in self.parts.replicas if found.name == name), None)
