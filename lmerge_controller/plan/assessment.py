"""What an observation means for each replica: where it is joined, whether it lags, whether it is good. Pure.

A replica is *joined* if its input is active and counts at every server that answers. It is *silent* while it has
published no stable point there, though the output has one: how far it lags is not known. It is *good* if it is joined,
does not lag, is quarantined nowhere, runs, and has not just been asked to end. Only good replicas of the serving
version allow that another one is ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from lmerge.core.elements import INF, NEG_INF
from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.plan.observed import ObservedInput, ObservedProcess, ObservedQuery, ObservedServer, ProcessPhase
from lmerge_controller.plan.record import NotedKind, NotedState, Record

# An observation may be so old, on Kubernetes. After that an action whose fact is still there is taken again.
RETRY_S: Final = 10.0


@dataclass(frozen=True)
class ReplicaView:
    """One replica: its process, and its input at each server that answers.

    ``servers_count``: how many answer. ``is_ending``: it was asked to end a moment ago, though it may still be seen.
    ``lag``: how far its stable point is behind the output, None if it is joined nowhere or silent. ``lagging_for_s``,
    ``apart_for_s``: how long it has lagged or been silent where a lag is limited, or has not been where it belongs
    (joined, or observing); None: it does not lag, or is there. ``quarantined_at``: servers.
    """

    name: str
    version: str
    index: int
    process: ObservedProcess | None
    inputs: tuple[tuple[ObservedServer, ObservedInput], ...]
    servers_count: int
    is_ending: bool = False
    quarantined_at: tuple[str, ...] = ()
    lag: int | None = None
    is_silent: bool = False
    lagging_for_s: float | None = None
    apart_for_s: float | None = None

    @property
    def is_joined(self) -> bool:
        """Whether it is joined at every server that answers; no server answers: False."""
        return self.servers_count > 0 and sum(found.is_joined for _, found in self.inputs) == self.servers_count

    @property
    def is_attached(self) -> bool:
        """Whether it is attached at every server that answers, in whatever role and state."""
        return self.servers_count > 0 and len(self.inputs) == self.servers_count

    @property
    def is_complete(self) -> bool:
        """Whether every server that answers reports that this input has come to the end of its stream."""
        return self.is_attached and all(found.stable_point == INF for _, found in self.inputs)

    @property
    def carries(self) -> bool:
        """Whether it is active somewhere, so that its end could matter to the output."""
        return any(found.role == "active" for _, found in self.inputs)

    @property
    def runs(self) -> bool:
        """Whether its process runs, and has not been asked to end."""
        return self.process is not None and self.process.phase is ProcessPhase.RUNNING and not self.is_ending

    @property
    def is_good(self) -> bool:
        """Whether it could carry the output: see the module's documentation."""
        return self.runs and self.is_joined and self.lagging_for_s is None and not self.quarantined_at


@dataclass(frozen=True)
class QueryView:
    """All replicas that run, that should run, or that are attached without a process, and the record that fits them."""

    now_s: float
    observed: ObservedQuery
    replicas: tuple[ReplicaView, ...]
    record: Record

    def of(self, version: str) -> tuple[ReplicaView, ...]:
        """Return the replicas of a version, in order of index."""
        return tuple(view for view in self.replicas if view.version == version)

    def good(self, version: str) -> tuple[ReplicaView, ...]:
        """Return the good replicas of a version."""
        return tuple(view for view in self.of(version) if view.is_good)

    @property
    def all_reachable(self) -> bool:
        """Whether every server answers."""
        return bool(self.observed.servers) and all(server.is_reachable for server in self.observed.servers)

    @property
    def is_complete(self) -> bool:
        """Whether the output has ended: every server that answers has emitted stable(+inf)."""
        reachable = self.observed.reachable
        return bool(reachable) and all(server.has_merge and server.stable_point == INF for server in reachable)


def kept_count(query: ReplicatedQuery, observed: ObservedQuery, version: str) -> int:
    """Return how many replicas of a version that serves are kept.

    It is one more while a single one runs an earlier description: the new one must be good before the old one may end.
    """
    described = query.version(version)
    if described is None or query.replicas != 1:
        return query.replicas
    process = observed.process(query.replica_name(version, 0))
    return 1 + (process is not None and process.is_alive and process.fingerprint != described.fingerprint)


def first_record(query: ReplicatedQuery, observed: ObservedQuery) -> Record:
    """Return the record of a query that has none: it is new, or its record was lost.

    Then the version that has most joined replicas serves; the active one if there are none.
    """
    counts: dict[str, int] = {}
    for process in observed.parts.replicas:
        joined = sum(
            found is not None and found.is_joined for found in (s.input(process.name) for s in observed.reachable)
        )
        counts[process.version] = counts.get(process.version, 0) + joined
    most = max(counts.values(), default=0)
    if most == 0 or counts.get(query.active, 0) == most:
        serving = query.active
    else:
        serving = min(version for version, count in counts.items() if count == most)
    return Record(started_s=observed.now_s, serving=serving)


def assess(query: ReplicatedQuery, observed: ObservedQuery) -> QueryView:
    """Return what the observation means, with a record that is without everything that is over."""
    now_s = observed.now_s
    record = observed.parts.record or first_record(query, observed)
    record = replace(
        record,
        # A clock that was set back must not hold actions for longer than usual.
        acted=tuple(acted for acted in record.acted if 0 <= now_s - acted.at_s < RETRY_S),
        starts_s=tuple(at_s for at_s in record.starts_s if 0 <= now_s - at_s < 60.0),
    )
    attempt = "" if record.attempt is None else record.attempt.to
    views = [_view(observed, record, *place) for place in _names(query, observed, record)]
    timed = [_timed(query, view, record, now_s, observes=view.version == attempt) for view in views]
    noted = tuple(note for _, notes in timed for note in notes) + tuple(_noted_servers(observed, record))
    return QueryView(now_s, observed, tuple(view for view, _ in timed), replace(record, noted=noted))


def since(record: Record, kind: NotedKind, name: str, uid: str, now_s: float) -> float:
    """Return since when a life has been in a state, ``now_s`` if that is new. Never later than now."""
    for note in record.noted:
        if (note.kind, note.name, note.uid) == (kind, name, uid):
            return min(note.since_s, now_s)
    return now_s


def _names(query: ReplicatedQuery, observed: ObservedQuery, record: Record) -> list[tuple[str, str, int]]:
    """Return name, version and index of each replica: described, running, or attached without a process."""
    found: dict[str, tuple[str, int]] = {}
    attempt = () if record.attempt is None else (record.attempt.to,)
    counts = dict.fromkeys(attempt, query.replicas)
    counts[record.serving] = kept_count(query, observed, record.serving)
    for version, count in counts.items():
        if query.version(version) is not None:
            for index in range(count):
                found[query.replica_name(version, index)] = version, index
    for process in observed.parts.replicas:
        found.setdefault(process.name, (process.version, process.index))
    versions = {record.serving, *attempt, *(refused.name for refused in record.refused)}
    versions.update(version.name for version in query.versions)
    for name in _attached(observed):
        match = re.fullmatch(rf"{re.escape(query.name)}-(.+)-(0|[1-9][0-9]{{0,3}})", name)
        if match is not None and match[1] in versions:
            found.setdefault(name, (match[1], int(match[2])))
    return sorted(((name, *place) for name, place in found.items()), key=lambda item: (item[1], item[2], item[0]))


def _attached(observed: ObservedQuery) -> Iterator[str]:
    for server in observed.reachable:
        for found in server.inputs:
            yield found.replica


def _view(observed: ObservedQuery, record: Record, name: str, version: str, index: int) -> ReplicaView:
    process = observed.process(name)
    reachable = observed.reachable
    inputs = tuple((server, found) for server in reachable if (found := server.input(name)) is not None)
    joined = [(server, found) for server, found in inputs if found.is_joined]
    is_silent = any(found.stable_point == NEG_INF < server.stable_point < INF for server, found in joined)
    uid = "" if process is None else process.uid
    return ReplicaView(
        name,
        version,
        index,
        process,
        inputs,
        len(reachable),
        is_ending=any(acted.fact == f"replica {name} life {uid}" for acted in record.acted),
        quarantined_at=tuple(server.address for server in reachable if name in server.quarantined),
        lag=None if is_silent else max((_lag(server, found) for server, found in joined), default=None),
        is_silent=is_silent,
    )


def _lag(server: ObservedServer, found: ObservedInput) -> int:
    if server.stable_point in (INF, NEG_INF):
        return 0
    return max(0, server.stable_point - found.stable_point)


def _timed(
    query: ReplicatedQuery, view: ReplicaView, record: Record, now_s: float, *, observes: bool
) -> tuple[ReplicaView, list[NotedState]]:
    """Return the view with how long its states have lasted, and those states for the record."""
    process, notes = view.process, list[NotedState]()
    if process is None or not process.is_alive or view.servers_count == 0:
        return view, notes
    lag_max = query.health.lag_max
    if lag_max is not None and (view.is_silent or (view.lag is not None and view.lag > lag_max)):
        since_s = since(record, NotedKind.LAGGING, view.name, process.uid, now_s)
        notes.append(NotedState(NotedKind.LAGGING, view.name, process.uid, since_s))
        view = replace(view, lagging_for_s=now_s - since_s)
    if not (view.is_attached if observes else view.is_joined):
        since_s = since(record, NotedKind.NOT_JOINED, view.name, process.uid, now_s)
        notes.append(NotedState(NotedKind.NOT_JOINED, view.name, process.uid, since_s))
        view = replace(view, apart_for_s=now_s - since_s)
    return view, notes


def _noted_servers(observed: ObservedQuery, record: Record) -> Iterator[NotedState]:
    for process in observed.parts.servers:
        server = observed.servers[process.index] if process.index < len(observed.servers) else None
        if process.phase is ProcessPhase.RUNNING and server is not None and not server.is_reachable:
            since_s = since(record, NotedKind.UNREACHABLE, process.name, process.uid, observed.now_s)
            yield NotedState(NotedKind.UNREACHABLE, process.name, process.uid, since_s)
