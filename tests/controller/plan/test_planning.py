"""What the plan does, by examples: each rule on a small world."""

from __future__ import annotations

from dataclasses import replace

import pytest
from controller_world import SimulatedQuery, described

from lmerge.core.elements import INF, NEG_INF
from lmerge_controller.plan.actions import PromoteInput, ReplaceReplica, StartReplica, StopReplica, target_of
from lmerge_controller.plan.conditions import ConditionStatus, ConditionType
from lmerge_controller.plan.observed import ObservedProcess, ObservedQuery, ProcessPhase
from lmerge_controller.plan.planning import plan
from lmerge_controller.plan.record import AttemptStage


def running(replicas: int = 2, **more: object) -> SimulatedQuery:
    world = SimulatedQuery(described(replicas, **more))  # type: ignore[arg-type]  # options of the query
    for index in range(replicas):
        world.add("v1", index)
    return world


def test_a_new_query_starts_its_servers_then_its_replicas() -> None:
    world = SimulatedQuery(described(3))
    world.servers.clear()
    first = world.round()
    assert [type(action).__name__ for action in first.actions] == ["StartServer", "StartServer"]
    world.settle()
    assert world.serving() == {"v1": [0, 1, 2]}
    assert world.plans[-1].condition(ConditionType.REDUNDANT).status is ConditionStatus.TRUE


def test_nothing_is_done_where_all_is_as_described() -> None:
    world = running()
    assert world.round().actions == ()
    assert {found.type: found.status for found in world.plans[-1].conditions} == {
        ConditionType.AVAILABLE: ConditionStatus.TRUE,
        ConditionType.REDUNDANT: ConditionStatus.TRUE,
        ConditionType.CERTIFIED: ConditionStatus.UNKNOWN,
        ConditionType.PROGRESSING: ConditionStatus.FALSE,
        ConditionType.DEGRADED: ConditionStatus.FALSE,
    }


def test_a_dead_replica_is_started_again_after_its_back_off() -> None:
    world = running()
    world.kill("q-v1-1")
    assert world.round().actions == ()
    assert world.plans[-1].next_check_s == pytest.approx(1.01)
    world.tick()
    (action,) = world.round().actions
    assert isinstance(action, StartReplica)
    assert (action.replica, action.reason) == ("q-v1-1", "it has ended with exit code 1")
    world.settle()
    assert world.serving() == {"v1": [0, 1]}


def test_what_goes_on_is_looked_at_again_after_a_quarter_of_its_time_and_what_is_settled_seldom() -> None:
    world = running()
    assert world.round().next_check_s == 5.0
    world.servers[1].is_seen = False
    assert world.round().next_check_s == pytest.approx(0.21)
    for _ in range(4):
        world.tick()
    assert world.round().next_check_s == pytest.approx(1.01)
    world.servers[1].is_seen = True
    assert world.round().next_check_s == 5.0
    world.servers.pop(1)
    assert world.round().next_check_s == pytest.approx(0.21), "a server was started a moment ago"


def test_a_lagging_replica_is_replaced_once_it_has_lagged_for_long() -> None:
    world = running()
    world.replicas["q-v1-0"].lags = True
    for _ in range(6):
        assert world.round().actions == ()
        world.tick()
    (action,) = world.round().actions
    assert isinstance(action, ReplaceReplica)
    assert action.reason == "it has been 5,000 behind the output for 6 s, more than 1,000"


def test_a_replica_that_has_joined_and_published_no_stable_point_is_joining_until_it_takes_too_long() -> None:
    world = running()
    world.replicas["q-v1-0"].is_silent = True
    for _ in range(6):
        made = world.round()
        assert made.actions == ()
        assert made.condition(ConditionType.DEGRADED).status is ConditionStatus.FALSE
        assert made.condition(ConditionType.PROGRESSING).message == "q-v1-0 are not joined yet"
        assert made.condition(ConditionType.REDUNDANT).message.startswith("1 good replicas")
        world.tick()
    made = world.round()
    (action,) = made.actions
    assert isinstance(action, ReplaceReplica)
    assert action.reason == "it has published no stable point for 6 s, though the output has one"
    degraded = made.condition(ConditionType.DEGRADED)
    assert degraded.message == "q-v1-0 has published no stable point, though the output has one"


def test_two_lagging_replicas_are_replaced_one_after_the_other() -> None:
    world = running(3)
    for index in (0, 1):
        world.replicas[f"q-v1-{index}"].lags = True
    for _ in range(8):
        world.round()
        world.tick()
    replaced = [action for made in world.plans for action in made.actions]
    assert len(replaced) == 1
    world.settle()
    assert world.serving() == {"v1": [0, 1, 2]}
    assert world.harm == []


def test_the_last_good_replica_is_not_replaced() -> None:
    world = running(1)
    world.replicas["q-v1-0"].lags = True
    for _ in range(10):
        assert world.round().actions == ()
        world.tick()
    assert "q-v1-0 is not replaced" in world.plans[-1].condition(ConditionType.DEGRADED).message


def test_a_single_replica_whose_program_changed_is_replaced_once_a_second_one_is_good() -> None:
    world = running(1, mark="old")
    world.query = described(1, mark="new")
    world.settle()
    assert world.serving() == {"v1": [0]}
    assert sorted(world.replicas) == ["q-v1-0"]
    assert world.replicas["q-v1-0"].process.fingerprint == world.query.versions[0].fingerprint
    assert world.harm == []
    acted = [(type(action).__name__, target_of(action)) for made in world.plans for action in made.actions]
    assert acted == [("StartReplica", "q-v1-1"), ("ReplaceReplica", "q-v1-0"), ("StopReplica", "q-v1-1")]
    assert not any(note.reason == "LastGood" for made in world.plans for note in made.notes)


def test_a_single_replica_goes_on_while_its_changed_program_does_not_run() -> None:
    world = running(1, mark="old")
    old = world.replicas["q-v1-0"].process
    world.query = described(1, mark="new")
    world.round()
    world.replicas["q-v1-1"].is_stuck = True
    for _ in range(15):
        world.tick()
        world.round()
    assert world.replicas["q-v1-0"].process == old
    world.query = described(1, mark="old")
    world.settle()
    assert {name: replica.process for name, replica in world.replicas.items()} == {"q-v1-0": old}


def ended(world: SimulatedQuery, name: str, phase: ProcessPhase) -> ObservedQuery:
    """Return what is seen once a replica has ended with exit code 0, and the output has come to its end."""
    seen = world.observed()
    replicas = tuple(
        replace(process, phase=phase, exit_code=0, exits=1, exited_at_s=world.now_s - 100.0)
        if process.name == name
        else process
        for process in seen.parts.replicas
    )
    servers = tuple(
        replace(server, stable_point=INF, inputs=tuple(found for found in server.inputs if found.replica != name))
        for server in seen.servers
    )
    return replace(seen, parts=replace(seen.parts, replicas=replicas), servers=servers)


def test_a_replica_that_has_completed_its_stream_is_not_started_again() -> None:
    world = running()
    seen = ended(world, "q-v1-1", ProcessPhase.EXITED)
    assert plan(world.query, seen).actions == ()
    gone = replace(seen, parts=replace(seen.parts, replicas=seen.parts.replicas[:1]))
    assert plan(world.query, gone).actions == ()
    emptied = replace(seen, servers=(seen.servers[0], replace(seen.servers[1], has_merge=False, stable_point=NEG_INF)))
    (action,) = plan(world.query, emptied).actions
    assert isinstance(action, StartReplica)


def test_a_replica_that_has_completed_its_own_stream_is_not_started_while_the_output_goes_on() -> None:
    world = running()
    seen = world.observed()
    process = replace(seen.parts.replicas[1], phase=ProcessPhase.EXITED, exit_code=0, exits=1, exited_at_s=900.0)
    inputs = tuple(tuple(replace(found, stable_point=INF) for found in server.inputs) for server in seen.servers)
    held = tuple(replace(server, inputs=found) for server, found in zip(seen.servers, inputs, strict=True))
    over = replace(seen, parts=replace(seen.parts, replicas=(seen.parts.replicas[0], process)), servers=held)
    assert plan(world.query, over).actions == ()
    (action,) = plan(world.query, replace(over, servers=seen.servers)).actions
    assert isinstance(action, StartReplica)


def test_a_completed_replica_that_something_else_restarts_is_stopped() -> None:
    world = running()
    (action,) = plan(world.query, ended(world, "q-v1-1", ProcessPhase.RESTARTING)).actions
    assert isinstance(action, StopReplica)
    assert action.reason == "the stream has come to its end"


def test_a_quarantined_replica_is_stopped_released_and_started() -> None:
    world = running()
    for server in world.servers.values():
        server.quarantined.add("q-v1-1")
        del server.inputs["q-v1-1"]
    world.settle()
    assert world.serving() == {"v1": [0, 1]}
    kinds = [type(action).__name__ for made in world.plans for action in made.actions]
    assert kinds == ["StopReplica", "ReleaseInput", "ReleaseInput", "StartReplica"]


def test_surplus_replicas_are_stopped() -> None:
    world = running(3)
    world.query = described(2)
    world.settle()
    assert world.serving() == {"v1": [0, 1]}
    assert sorted(world.replicas) == ["q-v1-0", "q-v1-1"]


def test_a_cutover_starts_certifies_promotes_and_lets_go() -> None:
    world = running()
    world.query = described(active="v2")
    made = world.round()
    assert [action.role for action in made.actions if isinstance(action, StartReplica)] == ["observe", "observe"]
    world.settle()
    assert world.serving() == {"v2": [0, 1]}
    assert sorted(world.replicas) == ["q-v2-0", "q-v2-1"]
    assert world.harm == []
    reasons = [note.reason for made in world.plans for note in made.notes if not note.is_warning]
    assert reasons == ["CutoverBegun", "Certified", "Serving"]
    assert world.record is not None
    assert (world.record.serving, world.record.attempt) == ("v2", None)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [("differs", "publishes other events"), ("crashes", "has ended"), ("stuck", "not taken over within 15 s")],
)
def test_a_bad_version_is_given_up_and_not_tried_again(behaviour: str, reason: str) -> None:
    world = running()
    world.behaviour["v2"] = behaviour
    world.query = described(active="v2", timeout_s=15.0)
    world.settle()
    assert world.serving() == {"v1": [0, 1]}
    assert sorted(world.replicas) == ["q-v1-0", "q-v1-1"]
    degraded = world.plans[-1].condition(ConditionType.DEGRADED)
    assert degraded.reason == "VersionRefused"
    assert reason in degraded.message
    assert not any(isinstance(action, PromoteInput) for made in world.plans for action in made.actions)
    world.behaviour["v2"] = "good"
    world.query = described(active="v2", mark="mended")
    world.settle()
    assert world.serving() == {"v2": [0, 1]}


def test_a_death_while_promoting_goes_back() -> None:
    world = running()
    world.query = described(active="v2")
    while world.record is None or world.record.attempt is None or world.record.attempt.stage is AttemptStage.CERTIFYING:
        world.round()
        world.tick()
    world.kill("q-v2-0")
    world.settle()
    assert world.serving() == {"v1": [0, 1]}
    assert world.harm == []


def test_the_end_of_a_process_of_an_earlier_cutover_is_no_failure_of_this_one() -> None:
    world = running()
    world.query = described(active="v2")
    begun = world.round()
    version = world.query.version("v2")
    assert version is not None
    left = ObservedProcess(
        "q-v2-1",
        "left",
        ProcessPhase.STOPPING,
        "v2",
        1,
        version.fingerprint,
        started_at_s=-60.0,
        exits=1,
        exit_code=137,
    )  # of a Deployment that was deleted: its pod is killed after its grace
    seen = world.observed()

    def with_end(process: ObservedProcess) -> ObservedQuery:
        others = tuple(found for found in seen.parts.replicas if found.name != process.name)
        return replace(seen, parts=replace(seen.parts, replicas=(*others, process), record=begun.record))

    assert plan(world.query, with_end(left)).record.attempt is not None
    own = replace(left, started_at_s=seen.now_s + 1.0)
    assert plan(world.query, with_end(own)).record.attempt is None  # one of this attempt that has died


def test_a_description_that_goes_back_ends_the_cutover() -> None:
    world = running()
    world.query = described(active="v2")
    for _ in range(3):
        world.round()
        world.tick()
    world.query = described(active="v1")
    world.settle()
    assert world.serving() == {"v1": [0, 1]}
    assert sorted(world.replicas) == ["q-v1-0", "q-v1-1"]


def test_a_changed_program_is_replaced_one_replica_at_a_time() -> None:
    world = running(3, mark="old")
    world.query = described(3, mark="new")
    world.settle()
    assert world.serving() == {"v1": [0, 1, 2]}
    assert world.harm == []
    replaced = [made for made in world.plans if any(isinstance(a, ReplaceReplica) for a in made.actions)]
    assert len(replaced) == 3


def test_changed_servers_are_replaced_one_at_a_time() -> None:
    world = running()
    for server in world.servers.values():
        server.fingerprint = "old"
    world.settle()
    assert world.serving() == {"v1": [0, 1]}
    assert {server.fingerprint for server in world.servers.values()} == {world.query.servers_fingerprint}
    assert world.harm == []


def test_without_a_record_the_version_that_is_joined_serves() -> None:
    world = running()
    world.query = described(active="v2")
    made = world.round()
    assert made.record.serving == "v1"
    assert made.record.attempt is not None


def test_where_no_server_answers_nothing_is_ended_and_the_state_is_unknown() -> None:
    world = running()
    world.add("v9", 0)
    for server in world.servers.values():
        server.is_seen = False
    made = world.round()
    assert not any(isinstance(action, StopReplica | ReplaceReplica) for action in made.actions)
    assert made.condition(ConditionType.AVAILABLE).status is ConditionStatus.UNKNOWN


def test_a_replica_that_came_back_as_an_observer_is_promoted() -> None:
    world = running()
    for server in world.servers.values():
        server.inputs["q-v1-1"].role = "observe"
    made = world.round()
    assert [type(action).__name__ for action in made.actions] == ["PromoteInput", "PromoteInput"]
    world.settle()
    assert world.serving() == {"v1": [0, 1]}


def test_starts_are_limited_within_a_minute() -> None:
    world = SimulatedQuery(described(3), {"v1": "crashes"})
    limited = world.query.restart.__class__(backoff_s=0.1, backoff_max_s=0.1, per_minute_max=5)
    world.query = world.query.__class__(**{**world.query.__dict__, "restart": limited})
    for _ in range(58):
        world.round()
        world.tick()
    starts = sum(isinstance(action, StartReplica) for made in world.plans for action in made.actions)
    assert starts == 5
    assert world.plans[-1].condition(ConditionType.DEGRADED).status is ConditionStatus.TRUE


def test_a_process_that_is_starting_is_left_alone() -> None:
    world = running(2)
    world.add("v1", 1, ProcessPhase.STARTING)
    assert world.round().actions == ()


def test_a_version_is_promoted_only_when_all_its_replicas_are_certified() -> None:
    world = running()
    world.query = described(active="v2")
    while not any("q-v2-1" in server.inputs for server in world.servers.values()):
        world.round()
        world.tick()
    for equal in (0, 1):  # 2 are required
        for server in world.servers.values():
            server.inputs["q-v2-0"].equal, server.inputs["q-v2-1"].equal = 5, equal
        assert not any(isinstance(action, PromoteInput) for action in world.round().actions)
    for server in world.servers.values():
        server.inputs["q-v2-1"].equal = 2
    promoted = [action for action in world.round().actions if isinstance(action, PromoteInput)]
    assert len(promoted) == 4


def test_a_replica_that_is_joined_at_one_of_two_servers_spares_no_other() -> None:
    world = running(mark="old")
    world.query = described(mark="new")
    world.replicas["q-v1-1"].is_stuck = True
    del world.servers[1].inputs["q-v1-1"]
    made = world.round()
    assert [action.replica for action in made.actions if isinstance(action, ReplaceReplica)] == ["q-v1-1"]
