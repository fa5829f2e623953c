"""A small simulated world that the plan acts in: servers, processes, inputs, versions that behave in different ways.

It is a dumb twin of what backends and servers do. It keeps the truth; ``observed`` shows it, perhaps partly or late.
Actions are conditional on their facts, as everywhere. ``harm`` collects what must never happen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lmerge.core.elements import NEG_INF
from lmerge_controller.model.query import (
    CutoverSpec,
    HealthSpec,
    MergeSpec,
    ReplicatedQuery,
    RestartSpec,
    RunSpec,
    ServersSpec,
    VersionSpec,
)
from lmerge_controller.plan.actions import (
    Action,
    DemoteInput,
    DetachInput,
    PromoteInput,
    ReleaseInput,
    ReplaceReplica,
    StartReplica,
    StartServer,
    StopReplica,
    StopServer,
)
from lmerge_controller.plan.conditions import QueryPlan
from lmerge_controller.plan.observed import (
    ObservedInput,
    ObservedProcess,
    ObservedQuery,
    ObservedServer,
    ProcessPhase,
    RunningParts,
)
from lmerge_controller.plan.planning import plan
from lmerge_controller.plan.record import Record

TICK_S = 1.0
STABLE = 1_000_000
LAG_MAX = 1_000
CATCH_UP = 15  # ticks; a replica that lags is replaced earlier, if it may be


def described(
    replicas: int = 2,
    active: str = "v1",
    *,
    versions: tuple[str, ...] = ("v1", "v2"),
    servers: int = 2,
    mark: str = "",
    timeout_s: float = 60.0,
) -> ReplicatedQuery:
    """Return a query; its servers are lmerge's own. ``mark`` changes what its versions run."""
    return ReplicatedQuery(
        name="q",
        merge=MergeSpec("q"),
        servers=ServersSpec(count=servers),
        versions=tuple(VersionSpec(name, RunSpec(command=(name, mark))) for name in versions),
        active=active,
        replicas=replicas,
        cutover=CutoverSpec(intervals=2, timeout_s=timeout_s),
        health=HealthSpec(lag_max=LAG_MAX, lag_for_s=5.0, join_within_s=20.0),
        restart=RestartSpec(backoff_s=1.0, backoff_max_s=8.0, per_minute_max=1000),
    )


@dataclass
class SimInput:
    """An input at one server. ``age``: ticks since it attached."""

    incarnation: int
    role: str
    uid: str
    age: int = 0
    equal: int = 0
    unequal: int = 0

    @property
    def counts(self) -> bool:
        return self.role == "active" and self.age > 0


@dataclass
class SimServer:
    """A server: its process, what is attached, and the names that it refuses. ``is_seen``: the plan sees it."""

    phase: ProcessPhase = ProcessPhase.RUNNING
    uid: str = "s"
    fingerprint: str = ""
    exits: int = 0
    exited_at_s: float | None = None
    is_seen: bool = True
    inputs: dict[str, SimInput] = field(default_factory=dict)
    quarantined: set[str] = field(default_factory=set)

    @property
    def is_up(self) -> bool:
        return self.phase is ProcessPhase.RUNNING


@dataclass
class SimReplica:
    """A process of a replica.

    ``lags``: it is behind, until it catches up; ``is_stuck``: it never attaches; ``is_silent``: it publishes no stable.
    """

    process: ObservedProcess
    lags: bool = False
    lagged_for: int = 0
    is_stuck: bool = False
    is_silent: bool = False


class SimulatedQuery:
    """The world of one query. ``behaviour``: good, crashes, differs or stuck, by version."""

    def __init__(self, query: ReplicatedQuery, behaviour: dict[str, str] | None = None) -> None:
        self.query = query
        self.behaviour = behaviour or {}
        self.now_s = 1_000.0
        self.record: Record | None = None
        self.servers = {
            index: SimServer(uid=f"s{index}", fingerprint=query.servers_fingerprint)
            for index in range(query.servers.count)
        }
        self.replicas: dict[str, SimReplica] = {}
        self.harm: list[str] = []
        self.effects: list[str] = []
        self.plans: list[QueryPlan] = []
        self._lives = 0

    # Making a state.

    def add(
        self,
        version: str,
        index: int,
        phase: ProcessPhase = ProcessPhase.RUNNING,
        *,
        role: str = "active",
        attached: bool = True,
        age: int = 5,
        equal: int = 0,
        fingerprint: str | None = None,
    ) -> SimReplica:
        """Add a replica in a state."""
        name = self.query.replica_name(version, index)
        described_version = self.query.version(version)
        if fingerprint is None:
            fingerprint = "" if described_version is None else described_version.fingerprint
        self._lives += 1
        process = ObservedProcess(
            name,
            f"p{self._lives}",
            phase,
            version,
            index,
            fingerprint,
            role,
            started_at_s=self.now_s - 10.0,
            exits=int(phase is ProcessPhase.EXITED),
            exited_at_s=self.now_s - 5.0 if phase is ProcessPhase.EXITED else None,
            exit_code=1 if phase is ProcessPhase.EXITED else None,
        )
        replica = self.replicas[name] = SimReplica(process)
        if attached and phase in (ProcessPhase.RUNNING, ProcessPhase.STOPPING):
            for server in self.servers.values():
                self._lives += 1
                server.inputs[name] = SimInput(self._lives, role, process.uid, age, equal)
        return replica

    # What is seen.

    def observed(self) -> ObservedQuery:
        servers = tuple(self._server(index) for index in range(max([*self.servers, self.query.servers.count - 1]) + 1))
        parts = RunningParts(
            addresses=tuple(server.address for server in servers),
            servers=tuple(self._server_process(index) for index in sorted(self.servers)),
            replicas=tuple(self.replicas[name].process for name in sorted(self.replicas)),
            record=self.record,
        )
        return ObservedQuery(self.now_s, parts, servers)

    def _server(self, index: int) -> ObservedServer:
        server, address = self.servers.get(index), f"s{index}:1"
        if server is None or not server.is_up or not server.is_seen:
            return ObservedServer(address, is_reachable=False, problem="it does not answer")
        inputs = tuple(self._input(name, found) for name, found in sorted(server.inputs.items()))
        active = sum(found.state == "joined" for found in inputs)
        return ObservedServer(
            address,
            is_reachable=True,
            has_merge=bool(inputs),
            stable_point=STABLE,
            survives_losses=max(0, active - 1),
            store="memory",
            inputs=inputs,
            quarantined=tuple(sorted(server.quarantined)),
        )

    def _input(self, name: str, found: SimInput) -> ObservedInput:
        state = "observing" if found.role == "observe" else "joined" if found.counts else "joining"
        replica = self.replicas.get(name)
        lag = 5 * LAG_MAX if replica is not None and replica.lags else 0
        return ObservedInput(
            name,
            found.incarnation,
            found.role,
            state,
            NEG_INF if replica is not None and replica.is_silent else STABLE - lag,
            attached_s=found.age * TICK_S,
            equal_intervals=found.equal,
            unequal_intervals=found.unequal,
        )

    def _server_process(self, index: int) -> ObservedProcess:
        server = self.servers[index]
        return ObservedProcess(
            f"server-{index}",
            server.uid,
            server.phase,
            index=index,
            fingerprint=server.fingerprint,
            started_at_s=self.now_s - 1.0,
            exits=server.exits,
            exited_at_s=server.exited_at_s,
        )

    # What happens by itself.

    def tick(self) -> None:
        """Let a second pass."""
        self.now_s += TICK_S
        for index, server in list(self.servers.items()):
            self._tick_server(index, server)
        for name, replica in list(self.replicas.items()):
            self._tick_replica(name, replica)
        for server in self.servers.values():
            self._compare(server)

    def _tick_server(self, index: int, server: SimServer) -> None:
        if server.phase is ProcessPhase.STARTING:
            server.phase = ProcessPhase.RUNNING
        elif server.phase is ProcessPhase.STOPPING:
            if index >= self.query.servers.count:
                del self.servers[index]
            else:
                server.phase, server.exited_at_s = ProcessPhase.EXITED, self.now_s
        if not server.is_up:
            server.inputs.clear()

    def _tick_replica(self, name: str, replica: SimReplica) -> None:
        process = replica.process
        replica.lagged_for += replica.lags
        replica.lags = replica.lags and replica.lagged_for < CATCH_UP
        behaviour = self.behaviour.get(process.version, "good")
        if process.phase is ProcessPhase.STARTING:
            replica.process = replace(process, phase=ProcessPhase.RUNNING, started_at_s=self.now_s)
        elif process.phase is ProcessPhase.STOPPING:
            self._leave(process.uid)
            del self.replicas[name]
        elif process.phase is ProcessPhase.RUNNING and behaviour == "crashes":
            self.kill(name)
        elif process.phase is ProcessPhase.RUNNING and not replica.is_stuck and behaviour != "stuck":
            for server in self.servers.values():
                self._attach(server, name, replica.process)

    def _attach(self, server: SimServer, name: str, process: ObservedProcess) -> None:
        found = server.inputs.get(name)
        if not server.is_up or name in server.quarantined:
            return
        if found is not None and found.uid == process.uid:
            found.age += 1
            return
        self._lives += 1
        server.inputs[name] = SimInput(self._lives, process.role, process.uid)

    def _compare(self, server: SimServer) -> None:
        for name, found in server.inputs.items():
            replica = self.replicas.get(name)
            others = [other for other_name, other in server.inputs.items() if other_name != name and other.counts]
            if replica is None or not others or not found.age:
                continue
            if self.behaviour.get(replica.process.version) == "differs":
                found.equal, found.unequal = 0, found.unequal + 1
            else:
                found.equal += 1

    def kill(self, name: str) -> None:
        """End a process by itself."""
        process = self.replicas[name].process
        self._leave(process.uid)
        self.replicas[name].process = replace(
            process, phase=ProcessPhase.EXITED, exits=process.exits + 1, exited_at_s=self.now_s, exit_code=1
        )

    def _leave(self, uid: str) -> None:
        for server in self.servers.values():
            server.inputs = {name: found for name, found in server.inputs.items() if found.uid != uid}

    # What the plan does.

    def round(self, seen: ObservedQuery | None = None) -> QueryPlan:
        """Plan for what is seen (by default the truth), persist, and act."""
        made = plan(self.query, self.observed() if seen is None else seen)
        self.plans.append(made)
        self.record = made.record
        for action in made.actions:
            self.act(action)
        return made

    def act(self, action: Action) -> None:
        """Do what an action asks for, if its fact is still so. Notes an effect, and harm."""
        had = self.carriers()
        if isinstance(action, StartServer | StopServer):
            done = self._act_on_server(action)
        elif isinstance(action, StartReplica | StopReplica | ReplaceReplica):
            done = self._act_on_replica(action)
        else:
            done = self._act_on_input(action)
        if done:
            self.effects.append(action.fact)
            if had and not self.carriers():
                self.harm.append(f"nothing carries the output after {action}")

    def carriers(self) -> set[str]:
        """Return the replicas that carry the output now: they count at a server, do not lag, and are not ending."""
        return {
            name
            for server in self.servers.values()
            if server.is_up
            for name, found in server.inputs.items()
            if found.counts and name in self.replicas
            if self.replicas[name].process.phase is ProcessPhase.RUNNING and not self.replicas[name].lags
        }

    def _act_on_server(self, action: StartServer | StopServer) -> bool:
        server = self.servers.get(action.index)
        if isinstance(action, StartServer):
            if server is not None and server.phase is not ProcessPhase.EXITED:
                return False
            self._lives += 1
            self.servers[action.index] = SimServer(ProcessPhase.STARTING, f"s{self._lives}", action.fingerprint)
            return True
        if server is None or server.uid != action.uid or server.phase is not ProcessPhase.RUNNING:
            return False
        server.phase = ProcessPhase.STOPPING
        return True

    def _act_on_replica(self, action: StartReplica | StopReplica | ReplaceReplica) -> bool:
        replica = self.replicas.get(action.replica)
        if isinstance(action, StartReplica):
            if replica is not None and replica.process.is_alive:
                return False
            self._start(action, 0 if replica is None else replica.process.exits)
            return True
        if replica is None or replica.process.uid != action.uid or replica.process.phase is ProcessPhase.STOPPING:
            return False
        if isinstance(action, ReplaceReplica):
            self._leave(action.uid)
            self._start(action, 0)
        elif replica.process.phase is ProcessPhase.EXITED:
            del self.replicas[action.replica]
        else:
            replica.process = replace(replica.process, phase=ProcessPhase.STOPPING)
        return True

    def _start(self, action: StartReplica | ReplaceReplica, exits: int) -> None:
        self._lives += 1
        process = ObservedProcess(
            action.replica,
            f"p{self._lives}",
            ProcessPhase.STARTING,
            action.version,
            action.index,
            action.fingerprint,
            action.role,
            started_at_s=self.now_s,
            exits=exits,
        )
        self.replicas[action.replica] = SimReplica(process)

    def _act_on_input(self, action: PromoteInput | DemoteInput | DetachInput | ReleaseInput) -> bool:
        server = self.servers[int(action.server[1:].partition(":")[0])]
        if not server.is_up:
            return False
        if isinstance(action, ReleaseInput):
            done = action.replica in server.quarantined
            server.quarantined.discard(action.replica)
            return done
        found = server.inputs.get(action.replica)
        if found is None or found.incarnation != action.incarnation:
            return False
        if isinstance(action, DetachInput):
            del server.inputs[action.replica]
            return True
        self._lives += 1
        role = "active" if isinstance(action, PromoteInput) else "observe"
        server.inputs[action.replica] = SimInput(self._lives, role, found.uid)
        return True

    def settle(self, ticks: int = 200, *, stable_for: int = 25) -> None:
        """Let rounds and seconds pass until nothing has been done for a while. Fails if that does not happen."""
        quiet = 0
        for _ in range(ticks):
            quiet = 0 if self.round().actions else quiet + 1
            if quiet >= stable_for:
                return
            self.tick()
        raise AssertionError(f"it does not converge: {self.plans[-1]}")

    def serving(self) -> dict[str, list[int]]:
        """Return version -> indexes of the replicas that count at every server that is up."""
        up = [server for server in self.servers.values() if server.is_up]
        found: dict[str, list[int]] = {}
        for name, replica in sorted(self.replicas.items()):
            if up and all((sim := server.inputs.get(name)) is not None and sim.counts for server in up):
                found.setdefault(replica.process.version, []).append(replica.process.index)
        return found
