"""The bench on a cluster: which faults it draws, what it counts as their pauses, and what it finds in a recording."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from bench.cluster_faults import drawn, judged, pauses_of
from bench.rig.kube_faults import (
    BYSTANDER_KILLED,
    CONTROLS,
    CUT,
    DRAINED,
    OUTAGE,
    REPLICA_KILLED,
    SERVER_KILLED,
    UserCommands,
)
from bench.rig.kube_release import query_of
from bench.rig.stalls import CONTROL, InjectedFault
from lmerge.core.batch import Row
from lmerge.core.elements import INSERT
from lmerge_controller.drill.judging.truth import ProbeTruth
from lmerge_controller.drill.probe.presentation import ProbePresentation
from lmerge_controller.drill.probe.trace import trace_line
from lmerge_controller.model.reading import query_of as read_query

TRUTH = ProbeTruth(1_000_000_000, 500)
EVENTS = 5_000


@pytest.mark.parametrize("faults", [20, 200])
def test_as_many_faults_are_drawn_as_asked_for(faults: int) -> None:
    kinds = drawn(faults, True, [], Random(1))
    assert len([kind for kind in kinds if kind not in CONTROLS]) == faults
    assert kinds.count(CONTROL) == kinds.count(BYSTANDER_KILLED) >= 1
    assert kinds.count(OUTAGE) == 1
    assert kinds[-1] == OUTAGE
    assert CUT in kinds
    assert SERVER_KILLED in kinds


def test_what_cannot_be_broken_is_not_drawn() -> None:
    kinds = Counter(drawn(200, False, [CUT, OUTAGE], Random(1)))
    assert kinds[CUT] == kinds[OUTAGE] == 0
    assert kinds.total() - sum(kinds[control] for control in CONTROLS) == 200


def test_after_a_drain_a_replica_comes_back_to_the_node() -> None:
    for seed in range(5):
        kinds = drawn(200, True, [], Random(seed))
        assert {kinds[at + 1] for at, kind in enumerate(kinds) if kind == DRAINED} == {REPLICA_KILLED}


def test_without_both_commands_a_fault_is_left_out() -> None:
    assert UserCommands(cut="true").lacks(CUT) == "no --cut and --heal"
    assert UserCommands(cut="true", heal="true").lacks(CUT) == ""
    assert UserCommands().lacks(OUTAGE) == "no --stop-api and --start-api"


def test_a_pause_belongs_to_the_fault_in_whose_window_it_begins() -> None:
    arrivals = [at / 100 for at in range(1000) if not 300 <= at < 340]
    faults = [InjectedFault(CONTROL, "", 1.0, 1.0), InjectedFault(SERVER_KILLED, "server 0", 2.9, 2.0)]
    pauses = pauses_of(arrivals, faults, 9.99)
    assert pauses[CONTROL][0] == pytest.approx(10.0, abs=0.1)
    assert pauses[SERVER_KILLED][0] == pytest.approx(410.0, abs=0.1)


def recorded(path: Path, rows: list[Row]) -> Path:
    path.write_bytes(b"".join(trace_line(rows[at : at + 50], at / 50) for at in range(0, len(rows), 50)))
    return path


def test_a_stream_that_goes_on_is_judged_up_to_what_has_ended(tmp_path: Path) -> None:
    rows = ProbePresentation(TRUTH, 1).rows_to(EVENTS)
    found = judged(TRUTH, recorded(tmp_path / "output.jsonl", rows))
    assert found.is_right, found
    assert EVENTS - 1_100 < found.expected < EVENTS


def test_a_lost_event_and_a_second_copy_are_found(tmp_path: Path) -> None:
    rows = ProbePresentation(TRUTH, 1).rows_to(EVENTS)
    first, second = [row for row in rows if row[0] == INSERT and row[4].endswith((b"-3000", b"-3001"))]
    rows.insert(rows.index(second), second)
    rows = [row for row in rows if row[4] != first[4]]
    found = judged(TRUTH, recorded(tmp_path / "output.jsonl", rows))
    assert (found.lost, found.duplicated) == (1, 1)


def test_the_query_of_the_bench_is_a_valid_description() -> None:
    assert read_query(query_of("streams", TRUTH, 3, "known"), source="bench").replicas == 3
