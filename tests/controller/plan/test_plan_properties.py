"""The plan from every state: it converges, never ends the last good replica, and acts on each fact once.

Three kinds of states: random worlds with random events, observations that no world would give, and every state of up to
three replicas and two versions.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations_with_replacement, product
from typing import Final

import pytest
from controller_world import STABLE, SimulatedQuery, described
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmerge.core.elements import INF, NEG_INF
from lmerge_controller.plan.actions import DetachInput, ReplaceReplica, StartReplica, StopReplica
from lmerge_controller.plan.observed import (
    ObservedInput,
    ObservedProcess,
    ObservedQuery,
    ObservedServer,
    ProcessPhase,
    RunningParts,
)
from lmerge_controller.plan.planning import plan
from lmerge_controller.plan.record import (
    ActedFact,
    AttemptStage,
    CutoverAttempt,
    NotedKind,
    NotedState,
    Record,
    RefusedVersion,
    record_of,
)

STATES: Final = (
    "absent",
    "starting",
    "joining",
    "joined",
    "observing",
    "lagging",
    "stuck",
    "exited",
    "stopping",
    "refused",
)
RECORDS: Final = ("none", "serving", "certifying", "promoting", "given up", "taken over")


def put(world: SimulatedQuery, version: str, index: int, state: str) -> None:
    """Put a replica into a state."""
    phases = {"starting": ProcessPhase.STARTING, "exited": ProcessPhase.EXITED, "stopping": ProcessPhase.STOPPING}
    if state == "absent":
        return
    role = "observe" if state == "observing" else "active"
    is_attached = state not in ("starting", "stuck", "exited", "refused")
    age = 0 if state == "joining" else 5
    phase = phases.get(state, ProcessPhase.RUNNING)
    equal = 3 if version == "v2" else 0
    replica = world.add(version, index, phase, role=role, attached=is_attached, age=age, equal=equal)
    replica.lags = state == "lagging"
    replica.is_stuck = state == "stuck"
    if state == "refused":
        for server in world.servers.values():
            server.quarantined.add(replica.process.name)


def record_named(kind: str, world: SimulatedQuery) -> Record | None:
    version = world.query.version("v2")
    assert version is not None
    begun = CutoverAttempt("v2", version.fingerprint, world.now_s - 5.0)
    refused = RefusedVersion("v2", version.fingerprint, world.now_s - 5.0, "it differed")
    record = Record(world.now_s - 50.0, "v1")
    return {
        "none": None,
        "serving": record,
        "certifying": replace(record, attempt=begun),
        "promoting": replace(record, attempt=replace(begun, stage=AttemptStage.PROMOTING)),
        "given up": replace(record, refused=(refused,)),
        "taken over": replace(record, serving="v2"),
    }[kind]


def lives_acted_on(world: SimulatedQuery) -> list[str]:
    """Return the facts about one life that had an effect; each may have one once only."""
    return [fact for fact in world.effects if " life " in fact and not fact.endswith("none")]


def check_settled(world: SimulatedQuery) -> None:
    """Check that the world is as its description asks for, or as it was if the new version is bad."""
    record = world.record
    assert record is not None
    assert world.harm == []
    assert len(set(lives_acted_on(world))) == len(lives_acted_on(world))
    good = all(world.behaviour.get(version, "good") == "good" for version in ("v1", "v2"))
    refused = any(found.name == world.query.active for found in record.refused)
    if good:
        assert record.attempt is None
        assert record.serving == world.query.active or refused
        assert world.serving() == {record.serving: list(range(world.query.replicas))}
        assert {replica.process.version for replica in world.replicas.values()} == {record.serving}


EVENTS: Final = st.one_of(
    st.tuples(st.just("kill"), st.integers(0, 5)),
    st.tuples(st.just("lag"), st.integers(0, 5)),
    st.tuples(st.just("server"), st.integers(0, 1)),
    st.tuples(st.just("hide"), st.integers(0, 1)),
    st.tuples(st.just("active"), st.integers(0, 1)),
    st.tuples(st.just("replicas"), st.integers(1, 3)),
    st.tuples(st.just("change"), st.integers(0, 2)),
    st.tuples(st.just("forget"), st.just(0)),
    st.tuples(st.just("pass"), st.integers(1, 12)),
)


def happen(world: SimulatedQuery, kind: str, number: int) -> None:
    names = sorted(world.replicas)
    name = names[number % len(names)] if names else ""
    query = world.query
    if kind == "kill" and name and world.replicas[name].process.phase is ProcessPhase.RUNNING:
        world.kill(name)
    elif kind == "lag" and name:
        world.replicas[name].lags = True
    elif kind == "server" and number in world.servers and world.servers[number].is_up:
        server = world.servers[number]
        server.phase, server.exits, server.exited_at_s = ProcessPhase.EXITED, server.exits + 1, world.now_s
        server.inputs.clear()
    elif kind == "hide" and number in world.servers:
        world.servers[number].is_seen = not world.servers[number].is_seen
    elif kind == "active":
        world.query = replace(query, active=f"v{number + 1}")
    elif kind == "replicas":
        world.query = replace(query, replicas=number)
    elif kind == "change":
        changed = described(query.replicas, query.active, mark=str(number))
        world.query = replace(query, versions=changed.versions)
    elif kind == "forget":
        world.record = None
    elif kind == "pass":
        for _ in range(number):
            world.round()
            world.tick()


@settings(max_examples=40, deadline=None)
@given(
    replicas=st.integers(1, 3),
    states=st.lists(st.sampled_from(STATES), min_size=6, max_size=6),
    kind=st.sampled_from(RECORDS),
    events=st.lists(EVENTS, max_size=12),
    active=st.sampled_from(["v1", "v2"]),
)
@example(  # a server that was hidden while the refused process was ended still refuses its successor, the only replica
    replicas=1,
    states=["refused", *["absent"] * 5],
    kind="none",
    events=[("lag", 0), ("hide", 0), *[("kill", 0)] * 6, ("lag", 0)],
    active="v1",
)
def test_from_a_random_world_it_converges_without_harm(
    replicas: int, states: list[str], kind: str, events: list[tuple[str, int]], active: str
) -> None:
    world = SimulatedQuery(described(replicas, active))
    for number, state in enumerate(states):
        put(world, f"v{number // 3 + 1}", number % 3, state)
    world.record = record_named(kind, world)
    for event in events:
        happen(world, *event)
        world.round()
        world.tick()
    for server in world.servers.values():
        server.is_seen = True
    for replica in world.replicas.values():
        replica.is_stuck = replica.lags = False
    world.settle(600, stable_for=70)
    check_settled(world)


@settings(max_examples=40, deadline=None)
@given(
    behaviour=st.sampled_from(["good", "differs", "crashes", "stuck"]),
    replicas=st.integers(1, 3),
    kills=st.lists(st.integers(0, 60), max_size=2),
    late=st.integers(0, 3),
)
def test_a_cutover_ends_in_one_version_whatever_the_new_one_does(
    behaviour: str, replicas: int, kills: list[int], late: int
) -> None:
    """``late``: so many seconds old is each observation, as from a cache."""
    world = SimulatedQuery(described(replicas), {"v2": behaviour})
    for index in range(replicas):
        put(world, "v1", index, "joined")
    world.round()
    world.query = described(replicas, "v2", timeout_s=30.0)
    past = [world.observed()]
    for second in range(60):
        seen = past[max(0, len(past) - 1 - late)]
        parts = replace(seen.parts, record=world.record)
        world.round(replace(seen, now_s=world.now_s, parts=parts))
        if second in kills and world.replicas and late == 0:
            world.kill(max(world.replicas))
        world.tick()
        past.append(world.observed())
    world.settle(600, stable_for=70)
    assert world.harm == []
    serving = world.record.serving if world.record is not None else ""
    assert world.serving() == {serving: list(range(replicas))}
    if behaviour != "good":
        assert serving == "v1"


# Observations that no world gives.

NAMES: Final = ["q-v1-0", "q-v1-1", "q-v2-0", "q-v2-1", "q-v9-0", "q-v1-77", "other", "q-v1-00", "q--0"]
INPUTS: Final = st.builds(
    ObservedInput,
    replica=st.sampled_from(NAMES),
    incarnation=st.integers(0, 3),
    role=st.sampled_from(["active", "observe"]),
    state=st.sampled_from(["joining", "joined", "skipping", "held", "leaving", "observing", "newer"]),
    stable_point=st.sampled_from([NEG_INF, 0, STABLE, INF]),
    attached_s=st.floats(0, 100),
    equal_intervals=st.integers(0, 4),
    unequal_intervals=st.integers(0, 1),
)
SERVERS: Final = st.builds(
    ObservedServer,
    address=st.sampled_from(["", "s0:1", "s1:1"]),
    is_reachable=st.booleans(),
    has_merge=st.booleans(),
    stable_point=st.sampled_from([NEG_INF, 0, STABLE, INF]),
    survives_losses=st.integers(0, 2),
    store=st.sampled_from(["", "memory", "disk full"]),
    inputs=st.lists(INPUTS, max_size=5, unique_by=lambda found: found.replica).map(tuple),
    quarantined=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
)
FINGERPRINTS: Final = [version.fingerprint for version in described().versions]
PROCESSES: Final = st.builds(
    ObservedProcess,
    name=st.sampled_from(NAMES),
    uid=st.sampled_from(["1", "2", ""]),
    phase=st.sampled_from(list(ProcessPhase)),
    version=st.sampled_from(["v1", "v2", "v9", ""]),
    index=st.integers(0, 3),
    fingerprint=st.sampled_from([*FINGERPRINTS, "", described().servers_fingerprint]),
    started_at_s=st.floats(0, 2_000),
    exits=st.integers(0, 10**6),
    exited_at_s=st.none() | st.floats(0, 2_000),
    exit_code=st.none() | st.integers(0, 2),
    problem=st.sampled_from(["", "no image"]),
)
RECORDED: Final = st.none() | st.builds(
    Record,
    started_s=st.floats(0, 2_000),
    serving=st.sampled_from(["v1", "v2", "v9", ""]),
    attempt=st.none()
    | st.builds(
        CutoverAttempt,
        to=st.sampled_from(["v1", "v2", "v9"]),
        fingerprint=st.sampled_from(FINGERPRINTS),
        since_s=st.floats(0, 2_000),
        stage=st.sampled_from(list(AttemptStage)),
    ),
    refused=st.lists(
        st.builds(
            RefusedVersion,
            name=st.sampled_from(["v1", "v2"]),
            fingerprint=st.sampled_from(FINGERPRINTS),
            at_s=st.floats(0, 2_000),
            reason=st.just("it differed"),
        ),
        max_size=2,
    ).map(tuple),
    noted=st.lists(
        st.builds(
            NotedState,
            kind=st.sampled_from(list(NotedKind)),
            name=st.sampled_from([*NAMES, "server-0"]),
            uid=st.sampled_from(["1", "2"]),
            since_s=st.floats(0, 2_000),
        ),
        max_size=3,
    ).map(tuple),
    acted=st.lists(
        st.builds(ActedFact, fact=st.just("replica q-v1-0 life 1"), at_s=st.floats(0, 2_000)), max_size=1
    ).map(tuple),
    starts_s=st.lists(st.floats(0, 2_000), max_size=3).map(tuple),
)
OBSERVED: Final = st.builds(
    lambda now_s, servers, server_processes, replicas, record: ObservedQuery(
        now_s,
        RunningParts(tuple(server.address for server in servers), tuple(server_processes), tuple(replicas), record),
        tuple(servers),
    ),
    st.floats(0, 2_000),
    st.lists(SERVERS, max_size=3),
    st.lists(PROCESSES, max_size=3),
    st.lists(PROCESSES, max_size=5, unique_by=lambda process: process.name),
    RECORDED,
)


@settings(max_examples=400, deadline=None)
@given(observed=OBSERVED, replicas=st.integers(1, 3), active=st.sampled_from(["v1", "v2"]))
def test_every_observation_has_a_plan_that_is_safe_and_is_not_repeated(
    observed: ObservedQuery, replicas: int, active: str
) -> None:
    query = described(replicas, active)
    made = plan(query, observed)
    assert made == plan(query, observed)
    assert made.next_check_s > 0
    assert len(made.conditions) == 5
    assert record_of(json.loads(json.dumps(made.record.as_json()))) == made.record
    facts = [action.fact for action in made.actions]
    assert len(set(facts)) == len(facts)
    assert all(action.reason for action in made.actions)
    again = plan(query, replace(observed, parts=replace(observed.parts, record=made.record)))
    assert {action.fact for action in again.actions}.isdisjoint(facts), "the same observation again repeats nothing"
    check_spared(observed, made.record.serving, {a.replica for a in made.actions if isinstance(a, ENDING)})


ENDING: Final = (StopReplica, ReplaceReplica, DetachInput)


def check_spared(observed: ObservedQuery, serving: str, ended: set[str]) -> None:
    """Check that where an active input is ended, another replica of the serving version counts at every server."""
    reachable = observed.reachable
    counting = {found.replica for server in reachable for found in server.inputs if found.role == "active"}
    over = {process.name for process in observed.parts.replicas if process.phase is ProcessPhase.EXITED}
    if not ended & counting - over:
        return
    versions = {process.version for process in observed.parts.replicas if process.name in ended}
    spared = [
        process.name
        for process in observed.parts.replicas
        if process.phase is ProcessPhase.RUNNING and process.name not in ended
        if process.version == serving or versions == {serving}
    ]
    assert any(
        all((found := server.input(name)) is not None and found.is_joined for server in reachable) for name in spared
    )


# Every state.

FEW: Final = ("absent", "joining", "joined", "lagging", "exited", "refused")
NEW: Final = ("absent", "observing", "joined", "exited")


def converges(states: tuple[str, ...], new: tuple[str, ...], kind: str, active: str) -> None:
    world = SimulatedQuery(described(len(states), active, servers=1, timeout_s=20.0))
    for index, state in enumerate(states):
        put(world, "v1", index, state)
    for index, state in enumerate(new):
        put(world, "v2", index, state)
    world.record = record_named(kind, world)
    world.settle(200, stable_for=25)
    check_settled(world)


@pytest.mark.parametrize("active", ["v1", "v2"])
@pytest.mark.parametrize("kind", RECORDS)
def test_every_state_of_one_replica_and_two_versions_converges(kind: str, active: str) -> None:
    for state, new in product(STATES, STATES):
        converges((state,), (new,), kind, active)


@pytest.mark.long
@pytest.mark.parametrize("active", ["v1", "v2"])
@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("count", [2, 3])
def test_every_state_of_up_to_three_replicas_and_two_versions_converges(count: int, kind: str, active: str) -> None:
    """Of three new replicas, all choices of states, in one order: the old ones beside them come in all orders."""
    for states in product(FEW, repeat=count):
        for new in product(NEW, repeat=count) if count == 2 else combinations_with_replacement(NEW, count):
            converges(states, new, kind, active)


def test_every_state_of_three_replicas_is_planned_for_without_ending_the_last_good_one() -> None:
    """Each state once, with one plan; the test above lets each of them converge."""
    for states, new, kind in product(product(FEW, repeat=3), NEW, RECORDS):
        world = SimulatedQuery(described(3, "v2", servers=1))
        for index, state in enumerate(states):
            put(world, "v1", index, state)
            put(world, "v2", index, new)
        world.record = record_named(kind, world)
        made = world.round()
        assert world.harm == []
        started = [action.replica for action in made.actions if isinstance(action, StartReplica)]
        assert len(set(started)) == len(started)
