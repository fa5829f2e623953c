"""A target that a file describes: commands break and mend it, also after the drill was killed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_world import LMERGE, Served
from drilled import drill, environment, long_freeze, scenario_file, started, state_of, wait_for_line

from lmerge.errors import Unavailable, UsageError
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.scenario import DrillStep, FaultKind, StepVictim, VictimKind
from lmerge_controller.drill.targets.described import DescribedTarget, TargetDescription, target_of_file
from lmerge_controller.drill.undo import undo_all

ADDRESS = "127.0.0.1:0"
GOOD = f"""
servers: ["{ADDRESS}"]
nodes: [left, right]
breaks:
  drain node: {{break: [touch, "{{node}}-{{number}}"], undo: [rm, -f, "{{node}}-{{number}}"]}}
"""
DRAIN = DrillStep(FaultKind.DRAIN, StepVictim(VictimKind.NODE, "each"))
STOP_SERVERS = """
- name: stop-servers
  summary: Each server stands still.
  needs: {replicas: 2, servers: 2}
  steps:
    - {fault: freeze, victim: {server: each}, after: 0.3, hold: 0.3}
  limits: {pauseMs: 20000, recoverySeconds: 60}
"""


def description(folder: Path, breaking: list[str], undoing: list[str]) -> TargetDescription:
    return TargetDescription((ADDRESS,), 0, ("left", "right"), {"drain node": (tuple(breaking), tuple(undoing))}, 20.0)


def test_a_description_is_read(tmp_path: Path) -> None:
    path = tmp_path / "target.yaml"
    path.write_text(GOOD)
    found = target_of_file(path)
    assert found.nodes == ("left", "right")
    assert found.breaks["drain node"][0] == ("touch", "{node}-{number}")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("drain node", "paint node", "breaks: 'paint node' is not one of"),
        ("undo:", "mend:", "breaks.drain node: 'undo' is a required property"),
        ("servers:", "server:", "the file: 'servers' is a required property"),
        (f'"{ADDRESS}"', "here", "'here' is no address of a server"),
        ("nodes: [", "nodes: [[", "cannot read the target"),
    ],
)
def test_a_wrong_description_is_refused_with_its_place(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "target.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError) as refused:
        target_of_file(path)
    assert problem in str(refused.value)


def test_commands_break_and_undo_the_victim_that_is_meant(tmp_path: Path) -> None:
    mark = str(tmp_path / "{node}-{number}-{index}")
    with UndoJournal(tmp_path / "one.journal") as journal:
        target = DescribedTarget(description(tmp_path, ["touch", mark], ["rm", mark]), None, journal)
        assert target.numbers["node"] == 2
        undo = target.breaks["drain node"](2, DRAIN)
        assert (tmp_path / "right-2-1").exists()
        assert [entry.action for entry in journal.pending] == ["run-command"]
        undo()
        assert not (tmp_path / "right-2-1").exists()
        assert journal.pending == []


def test_a_command_that_fails_is_undone_and_named(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    breaking = ["sh", "-c", f"touch {shlex.quote(str(mark))}; echo no such node >&2; exit 3"]
    with UndoJournal(tmp_path / "one.journal") as journal:
        target = DescribedTarget(description(tmp_path, breaking, ["rm", str(mark)]), None, journal)
        with pytest.raises(Unavailable, match="exit code 3: no such node"):
            target.breaks["drain node"](1, DRAIN)
        assert not mark.exists()
        assert journal.pending == []


def test_a_command_that_cannot_be_undone_stays_in_the_journal(tmp_path: Path) -> None:
    with UndoJournal(tmp_path / "one.journal") as journal:
        target = DescribedTarget(description(tmp_path, ["true"], ["false"]), None, journal)
        undo = target.breaks["drain node"](1, DRAIN)
        with pytest.raises(Unavailable, match="exit code 1"):
            undo()
        assert len(undo_all(journal, lambda text: None)) == 1
    with UndoJournal(tmp_path / "one.journal") as journal:
        assert [entry.action for entry in journal.pending] == ["run-command"]


class Pair:
    """Two servers and the file that describes how each stands still and goes on."""

    def __init__(self, folder: Path) -> None:
        self.servers: list[Served] = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            self.servers.append(Served(folder / name))
        (folder / "pids").write_text("\n".join(str(server.process.pid) for server in self.servers))
        command = f'kill -"$0" "$(sed -n "$1p" {shlex.quote(str(folder / "pids"))})"'
        breaks = {
            "freeze server": {
                "break": ["sh", "-c", command, "STOP", "{number}"],
                "undo": ["sh", "-c", command, "CONT", "{number}"],
            }
        }
        self.file = folder / "target.yaml"
        self.file.write_text(json.dumps({"servers": [server.target for server in self.servers], "breaks": breaks}))
        self.scenarios = scenario_file(folder, STOP_SERVERS, long_freeze("server: 1"))

    def states(self) -> str:
        """Return the states of the two processes, as /proc shows them."""
        return "".join(state_of(server.process.pid) for server in self.servers)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    for server in made.servers:
        server.process.send_signal(signal.SIGCONT)
        server.stop()


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_servers_that_run_are_broken_by_commands(tmp_path: Path, pair: Pair) -> None:
    found = drill(tmp_path, "run", "--file", pair.scenarios, "--target", str(pair.file), "stop-servers")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "freeze server 2 for" in found.stdout
    assert "T" not in pair.states()


@linux
def test_a_users_merge_on_one_of_the_servers_is_not_interrupted(tmp_path: Path, pair: Pair) -> None:
    publish = [*LMERGE, "publish", "flights", "--server", pair.servers[0].target, "--replica", "a"]
    with subprocess.Popen(publish, stdin=subprocess.PIPE, text=True, env=environment(tmp_path)) as publisher:
        assert publisher.stdin is not None
        publisher.stdin.write('{"op":"insert","payload":"A","vs":6,"ve":7}\n')
        publisher.stdin.flush()
        while (
            "flights"
            not in subprocess.run(
                [*LMERGE, "status", "--server", pair.servers[0].target], capture_output=True, text=True, check=True
            ).stdout
        ):
            os.sched_yield()
        found = drill(tmp_path, "run", "--file", pair.scenarios, "--target", str(pair.file), "stop-servers")
        publisher.stdin.close()
        publisher.wait()
    assert found.returncode == 2, found.stdout + found.stderr
    assert "flights: 1 servers could carry it, and 1 would go" in found.stdout
    assert "T" not in pair.states()


@linux
def test_the_next_command_undoes_what_a_killed_drill_has_broken(tmp_path: Path, pair: Pair) -> None:
    options = ("run", "--file", pair.scenarios, "--target", str(pair.file), "long")
    with started(tmp_path, *options) as process:
        wait_for_line(process, "freeze server 1")
        while "T" not in pair.states():
            assert process.poll() is None
        process.kill()
        process.wait()
        assert drill(tmp_path, "undo").returncode == 0
        assert "T" not in pair.states()
