"""A drill refuses where the loss would not be survived, and names what is missing."""

from __future__ import annotations

from dataclasses import replace

from lmerge_controller.drill.redundancy import MergeReports, ServerReport, is_noticed, refusal, unmet_needs
from lmerge_controller.drill.scenario import DrillStep, FaultKind, StepVictim, VictimKind
from lmerge_controller.drill.scenario_file import builtin_scenarios

NAMES = frozenset({"a", "b", "c"})
ONE = ServerReport("s1", "probe", joined=NAMES, won=(("a", 5), ("b", 9)), survives_losses=2, store="memory")
TWO = replace(ONE, address="s2", won=(("a", 7), ("b", 1)))
PROBE = MergeReports("probe", (ONE, TWO), NAMES)
KILL = DrillStep(FaultKind.KILL, StepVictim(VictimKind.REPLICA, "winner"))
KILL_SERVER = DrillStep(FaultKind.KILL, StepVictim(VictimKind.SERVER, 1))
LIE = DrillStep(FaultKind.LIE, StepVictim(VictimKind.REPLICA, 2))


def users(*servers: ServerReport) -> MergeReports:
    return MergeReports("flights", tuple(replace(server, merge="flights") for server in servers))


def test_a_loss_that_is_survived_is_not_refused() -> None:
    assert refusal(KILL, 1, [PROBE]) == []
    assert refusal(KILL, 2, [PROBE]) == []
    assert refusal(KILL_SERVER, 1, [PROBE, users(ONE, TWO)]) == []


def test_too_few_replicas_are_named() -> None:
    assert refusal(KILL, 3, [PROBE]) == [
        "probe: at s1 it survives the loss of 2, not of 3",
        "probe: at s2 it survives the loss of 2, not of 3",
    ]


def test_a_replica_that_has_not_joined_is_named() -> None:
    behind = replace(TWO, joined=frozenset({"a", "b"}), survives_losses=1)
    assert refusal(KILL, 1, [replace(PROBE, servers=(ONE, behind))]) == ["probe: server s2: c not joined"]


def test_the_last_server_is_not_broken() -> None:
    gone = ServerReport("s2", "probe", problem="it does not answer")
    found = refusal(KILL_SERVER, 1, [replace(PROBE, servers=(ONE, gone))])
    assert found == ["probe: server s2: it does not answer", "probe: 1 servers could carry it, and 1 would go"]


def test_a_users_merge_on_one_server_protects_that_server() -> None:
    empty = replace(TWO, joined=frozenset(), survives_losses=0)
    found = refusal(KILL_SERVER, 1, [PROBE, users(ONE, empty)])
    assert found == ["flights: 1 servers could carry it, and 1 would go"]


def test_a_users_merge_whose_servers_differ_protects_both() -> None:
    fewer = replace(TWO, joined=frozenset({"a"}))
    found = refusal(KILL_SERVER, 1, [PROBE, users(ONE, fewer)])
    assert found == ["flights: its servers do not have the same replicas: a | a, b, c"]


def test_a_users_merge_without_a_spare_replica_is_not_touched_by_the_probes_own() -> None:
    assert refusal(KILL, 1, [PROBE, users(replace(ONE, survives_losses=0))]) == []


def test_two_must_contradict_a_liar() -> None:
    assert refusal(LIE, 1, [PROBE]) == []
    two = frozenset({"a", "b"})
    pair = MergeReports("probe", (replace(ONE, joined=two, survives_losses=1),), two)
    assert refusal(LIE, 1, [pair]) == ["probe: at s1 1 would be left to contradict a liar, and 2 must"]


def test_the_winner_is_counted_over_all_servers() -> None:
    assert PROBE.winner() == "a"


def test_unmet_needs_are_all_named() -> None:
    scenario = builtin_scenarios()["full-disk"]
    able = frozenset({"fill-disk server"})
    durable = replace(PROBE, servers=tuple(replace(server, store="durable") for server in PROBE.servers))
    assert unmet_needs(scenario, able, 2, durable) == []
    found = unmet_needs(scenario, frozenset(), 1, replace(PROBE, servers=(ONE,)))
    assert found == [
        "this target cannot fill-disk server",
        "it needs 2 replicas, and there are 1",
        "it needs 2 servers, and there are 1",
        "server s1 has no store that can be written (serve --store): memory",
    ]


def test_a_liar_needs_servers_that_compare() -> None:
    scenario = builtin_scenarios()["lying-replica"]
    able = frozenset({"lie replica"})
    alarm = replace(PROBE, servers=(replace(ONE, divergence_policy="alarm"),))
    assert unmet_needs(scenario, able, 3, alarm) == [
        "server s1 compares with --on-divergence alarm; it needs majority, hold, quarantine"
    ]
    assert unmet_needs(scenario, able, 3, replace(PROBE, servers=(replace(ONE, divergence_policy="majority"),))) == []


def test_a_fault_without_an_effect_is_not_noticed() -> None:
    gone = replace(PROBE, servers=(ONE, replace(TWO, joined=NAMES - {"b"})))
    assert not is_noticed(KILL, ["b"], PROBE)
    assert not is_noticed(KILL, ["b"], gone)
    assert is_noticed(KILL, ["b"], replace(gone, servers=(gone.servers[1],)))
    assert not is_noticed(LIE, ["c"], PROBE)
    assert not is_noticed(KILL_SERVER, ["1"], PROBE)
    assert is_noticed(KILL_SERVER, ["1"], replace(PROBE, servers=(ServerReport("s1", "probe", "gone"), TWO)))
    full = DrillStep(FaultKind.FILL_DISK, StepVictim(VictimKind.SERVER, 2))
    durable = replace(PROBE, servers=(ONE, replace(TWO, store="durable")))
    assert not is_noticed(full, ["2"], durable)
    assert is_noticed(full, ["2"], replace(PROBE, servers=(ONE, replace(TWO, store="disk full"))))
    slow = DrillStep(FaultKind.SLOW, StepVictim(VictimKind.REPLICA, 1))
    assert is_noticed(slow, ["a"], PROBE)


def test_an_input_that_was_away_between_two_looks_has_another_incarnation() -> None:
    def reports(first: int, second: int) -> MergeReports:
        servers = [
            replace(ONE, address=f"s{n}", incarnations=(("a", at), ("b", 7))) for n, at in ((1, first), (2, second))
        ]
        return MergeReports("probe", tuple(servers), NAMES)

    assert not reports(3, 4).came_back_since(reports(3, 4))
    assert reports(3, 5).came_back_since(reports(3, 4))
    away = replace(reports(3, 4), servers=(ServerReport("s1", "probe", problem="gone"), reports(3, 4).servers[1]))
    assert not away.came_back_since(reports(3, 4))
    assert not reports(3, 4).came_back_since(away)  # nothing is known of the time before
