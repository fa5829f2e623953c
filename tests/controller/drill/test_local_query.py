"""A query that `lmerge up` runs is drilled: its processes die and stand still, and its supervisor mends it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drilled import drill, long_freeze, scenario_file, started, state_of, wait_for_line, wait_until_gone
from up_world import Up, process, version

from lmerge.errors import Unavailable, UsageError
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.scenario import DrillStep, FaultKind, StepVictim, VictimKind
from lmerge_controller.drill.targets import local_query
from lmerge_controller.drill.targets.local_query import LocalQueryTarget
from lmerge_controller.local.state_folder import StateFolder

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="what is left is found in /proc"),
    pytest.mark.timeout(280),
]
OWN = """
- name: own
  summary: A replica and a server of the query are killed, then a replica stands still.
  needs: {replicas: 2, servers: 2}
  steps:
    - {fault: kill, victim: {input: 1}, after: 1, hold: 0.2}
    - {fault: kill, victim: {server: 2}, after: 1, hold: 0.2}
    - {fault: freeze, victim: {input: 2}, after: 0.5, hold: 0.5}
  limits: {pauseMs: 20000, recoverySeconds: 90}
"""
KILL = DrillStep(FaultKind.KILL, StepVictim(VictimKind.INPUT, 1))
FREEZE = DrillStep(FaultKind.FREEZE, StepVictim(VictimKind.INPUT, 1))


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    scenario_file(tmp_path, OWN, long_freeze("input: 1"))
    own(tmp_path).mkdir()
    with Up(tmp_path) as made:
        yield made


def own(folder: Path) -> Path:
    """Return the folder of the drill's journals. Processes of the query run in another one."""
    return folder / "of-the-drill"


def drilled(up: Up, *arguments: str) -> tuple[str, ...]:
    return (
        "run", "--file", str(up.folder / "mine.yaml"), "--query", up.name, "--state", str(up.folder / ".lmerge"),
        *arguments,
    )  # fmt: skip


def pids(status: dict[str, Any]) -> dict[str, int]:
    return {found["name"]: found["pid"] for found in status["processes"]}


def test_processes_of_the_query_die_and_stand_still_and_its_stream_goes_on(up: Up) -> None:
    up.start(up.describe("q.yaml", version("v1")))
    before = pids(up.settled("v1"))
    found = drill(own(up.folder), *drilled(up, "own", "--json"))
    assert found.returncode == 0, found.stdout + found.stderr + up.logs()
    after = pids(up.settled("v1"))
    assert {name for name in before if before[name] != after[name]} == {"ticks-v1-0", "server-1"}
    (report,) = json.loads(found.stdout)["drills"]
    assert [fault["what"] for fault in report["faults"]] == ["kill input", "kill server", "freeze input"]
    (watched,) = report["watched"]
    assert watched["merge"] == "ticks"
    assert (watched["reasons"], watched["gaps"]) == ([], 0)
    assert watched["elements"] > 100
    assert len(watched["faults"]) == 3
    assert 0.0 < watched["quiet_stall_ms"] < 10_000.0
    assert not list((own(up.folder) / "tmp").iterdir())


def test_a_query_whose_loss_would_not_be_survived_is_refused(up: Up) -> None:
    up.start(up.describe("q.yaml", version("v1"), replicas="1"))
    before = pids(up.settled("v1", 1))
    refused = drill(own(up.folder), *drilled(up, "own"))
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "ticks: at 127.0.0.1:" in refused.stdout
    assert "it survives the loss of 0, not of 1" in refused.stdout
    assert pids(up.settled("v1", 1)) == before


def is_starting(status: dict[str, Any]) -> bool:
    progressing = {found["type"]: found["status"] for found in status["conditions"]}.get("Progressing")
    return bool(status["addresses"]) and progressing == "True"


def test_a_drill_waits_for_a_query_that_settles(up: Up) -> None:
    up.start(up.describe("q.yaml", version("v1")))
    up.until(is_starting)
    with UndoJournal(up.folder / "one.journal") as journal:
        assert LocalQueryTarget(StateFolder(up.state.path), journal).numbers["input"] == 2


def test_a_drill_is_refused_while_a_query_goes_on_changing(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_query, "SETTLE_S_MAX", 0.1)
    idle = "    - {name: v1, run: {command: [sleep, '1000']}}\n"
    up.start(up.describe("q.yaml", idle))
    up.until(is_starting)
    refused = pytest.raises(UsageError, match="ticks is about to change: ")
    with UndoJournal(up.folder / "one.journal") as journal, refused:
        LocalQueryTarget(StateFolder(up.state.path), journal)


def test_a_fault_is_over_when_another_process_runs(up: Up) -> None:
    up.start(up.describe("q.yaml", version("v1")))
    before = pids(up.settled("v1"))["ticks-v1-0"]
    with UndoJournal(up.folder / "one.journal") as journal:
        target = LocalQueryTarget(StateFolder(up.state.path), journal)
        target.breaks["kill input"](1, KILL)()
        now = up.state.read("processes")["ticks-v1-0"]["pid"]
    assert now != before
    assert state_of(now) != "Z"


def test_what_a_killed_drill_has_frozen_goes_on(up: Up) -> None:
    up.start(up.describe("q.yaml", version("v1")))
    victim = process(up.settled("v1"), "ticks-v1-0")["pid"]
    with started(own(up.folder), *drilled(up, "long")) as running:
        wait_for_line(running, "freeze input 1")
        while state_of(victim) != "T":
            assert running.poll() is None
        running.kill()
        running.wait()
        assert state_of(victim) == "T"
        undone = drill(own(up.folder), "undo")
        assert "undone: continue-group" in undone.stderr
        assert state_of(victim) != "T"
    assert wait_until_gone(own(up.folder)) == []


def test_a_query_that_is_not_up_is_a_usage_error(up: Up) -> None:
    found = drill(own(up.folder), *drilled(up, "own"))
    assert found.returncode == 2
    assert "query ticks is not up in" in found.stderr
    both = drill(own(up.folder), *drilled(up, "own", "--server", "elsewhere"))
    assert "exclude each other" in both.stderr


def test_a_supervisor_that_has_died_ends_the_drill_and_what_is_frozen_goes_on(up: Up) -> None:
    up.start(up.describe("q.yaml", version("v1")))
    victim = process(up.settled("v1"), "ticks-v1-0")["pid"]
    with UndoJournal(up.folder / "one.journal") as journal:
        target = LocalQueryTarget(StateFolder(up.state.path), journal)
        assert target.numbers == {"server": 2, "input": 2}
        undo = target.breaks["freeze input"](1, FREEZE)
        assert [entry.action for entry in journal.pending] == ["continue-group"]
        target.check()
        undo()
        assert state_of(victim) != "T"
        with pytest.raises(UsageError, match="no number 3"):
            target.breaks["freeze input"](3, FREEZE)
        holder = up.state.holder()
        assert holder is not None
        holder.signal(signal.SIGKILL)
        while up.state.holder() is not None:
            os.sched_yield()
        with pytest.raises(Unavailable, match="the supervisor of ticks has died"):
            target.check()
