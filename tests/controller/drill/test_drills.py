"""Drills on real processes: they pass, they find faults, they refuse, and they leave nothing behind."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from certificates import Authority
from cli_world import Served, run
from drilled import drill, long_freeze, processes_of, scenario_file, started, wait_for_line, wait_until_gone

from lmerge_controller.drill.run import SANDBOX_ABILITIES
from lmerge_controller.drill.scenario_file import builtin_scenarios

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc; servers end with their parent")

LOCAL = [name for name, scenario in builtin_scenarios().items() if SANDBOX_ABILITIES.issuperset(scenario.abilities)]
SHORT = """
- name: kill
  summary: The winner is killed, and a server.
  needs: {replicas: 2, servers: 2}
  steps:
    - {fault: kill, victim: {replica: winner}, after: 0.3, hold: 0.2}
    - {fault: kill, victim: {server: 1}, after: 0.3, hold: 0.2}
  limits: {pauseMs: 20000, recoverySeconds: 60}
- name: freeze
  summary: A replica, then a server, stands still.
  needs: {replicas: 2, servers: 2}
  steps:
    - {fault: freeze, victim: {replica: 1}, after: 0.3, hold: 1.5}
    - {fault: freeze, victim: {server: 2}, after: 0.3, hold: 0.5}
  limits: {pauseMs: 20000, recoverySeconds: 60}
- name: links
  summary: Links are cut and slowed.
  needs: {replicas: 2}
  steps:
    - {fault: kill, victim: {replica: winner}, after: 0.3, hold: 0.2}
    - {fault: cut, victim: {replica: winner}, direction: both, after: 0.2, hold: 0.5}
    - {fault: slow, victim: {replica: 1}, delayMs: 200, after: 0.2, hold: 0.5}
  limits: {pauseMs: 20000, recoverySeconds: 60}
- name: one
  summary: A replica is killed.
  needs: {replicas: 2}
  steps:
    - {fault: kill, victim: {replica: winner}, after: 0.3, hold: 0.2}
  limits: {pauseMs: 20000, recoverySeconds: 60}
- name: too-strict
  summary: No output is that steady.
  needs: {replicas: 2}
  steps:
    - {fault: kill, victim: {replica: winner}, after: 0.3, hold: 0.1}
  limits: {pauseMs: 0.001}
"""


@pytest.fixture
def scenarios(tmp_path: Path) -> str:
    return scenario_file(tmp_path, SHORT, long_freeze("server: 1"))


def left_behind(folder: Path) -> list[str]:
    """Return what a drill has left: processes, journals and temporary folders."""
    journals = [path.name for path in (folder / "lmerge" / "drills").glob("*")]
    temporary = [path.name for path in (folder / "tmp").glob("lmerge-drill-*")]
    return [command for _, _, command in wait_until_gone(folder)] + journals + temporary


def test_a_replica_and_a_server_are_killed_and_nothing_is_lost(tmp_path: Path, scenarios: str) -> None:
    found = drill(tmp_path, "run", "--file", scenarios, "kill")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "PASSED   kill" in found.stdout
    assert "0 lost, 0 duplicated, 0 contradictions" in found.stdout
    assert found.stdout.endswith("1 passed; 2 faults\n")
    assert left_behind(tmp_path) == []


def test_what_is_frozen_goes_on_and_counts_again(tmp_path: Path, scenarios: str) -> None:
    found = drill(tmp_path, "run", "--file", scenarios, "freeze")
    assert found.returncode == 0, found.stdout + found.stderr
    assert left_behind(tmp_path) == []


def test_a_limit_that_is_exceeded_fails_with_its_reason(tmp_path: Path, scenarios: str) -> None:
    kept = tmp_path / "kept"
    found = drill(tmp_path, "run", "--file", scenarios, "too-strict", "--keep", str(kept))
    assert found.returncode == 1
    assert "the limit is 0 ms" in found.stdout
    assert (kept / "too-strict" / "output.jsonl").stat().st_size > 1_000
    assert left_behind(tmp_path) == []


def test_a_drill_against_servers_that_run_leaves_their_merges_alone(tmp_path: Path, scenarios: str) -> None:
    served = Served(tmp_path, "--merge", "flights")
    try:
        refused = drill(tmp_path, "run", "--file", scenarios, "--server", served.target, "kill")
        assert refused.returncode == 2
        assert "this target cannot kill server; it needs 2 servers, and there are 1" in refused.stdout
        found = drill(tmp_path, "run", "--file", scenarios, "--server", served.target, "links")
        assert found.returncode == 0, found.stdout + found.stderr
        status = drill(tmp_path, "run", "--file", scenarios, "--server", served.target, "links")
        assert status.returncode == 0, status.stdout + status.stderr  # the merge of the first drill is there already
        # The last stable of a drill lies ahead of the clock, at the end of its last event.
        both = drill(tmp_path, "run", "--file", scenarios, "--server", served.target, "one", "links")
        assert both.returncode == 0, both.stdout + both.stderr
    finally:
        served.stop()
    assert left_behind(tmp_path) == []


def test_a_cutover_is_refused_where_servers_compare_too_seldom_to_certify_in_time(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        refused = drill(tmp_path, "run", "--server", served.target, "cutover")
        assert refused.returncode == 2, refused.stdout
        assert f"server {served.target} compares intervals of 60 s" in refused.stdout
        assert "--certify-interval of at most 2000000 (2 s)" in refused.stdout
    finally:
        served.stop()
    assert left_behind(tmp_path) == []


def test_servers_with_certificates_and_tokens_are_drilled(tmp_path: Path, scenarios: str) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue_server()
    roles = [part for role in ("publish", "subscribe", "status", "admin") for part in ("--role", role)]
    files = ["--file", str(tmp_path / "access.json"), "--out", str(tmp_path / "drill.token")]
    made = run("token", "make", "drill", *roles, "--merge", "lmerge-drill", "--replica", "probe-*", *files)
    assert made.returncode == 0, made.stderr
    served = Served(tmp_path, "--tls-cert", pair.cert, "--tls-key", pair.key, "--tokens", str(tmp_path / "access.json"))
    try:
        target = ["--file", scenarios, "--server", f"localhost:{served.ports['port']}", "--ca", authority.path]
        token = ["--token-file", str(tmp_path / "drill.token")]
        found = drill(tmp_path, "run", *target, *token, "one")
        assert found.returncode == 0, found.stdout + found.stderr
        cut = drill(tmp_path, "run", *target, *token, "links")
        assert cut.returncode == 0, cut.stdout + cut.stderr
        assert "cut" in cut.stdout
        assert drill(tmp_path, "run", *target, "one").returncode == 2  # without a token
    finally:
        served.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_drill_leaves_nothing_behind(tmp_path: Path, scenarios: str, number: signal.Signals) -> None:
    with started(tmp_path, "run", "--file", scenarios, "long") as process:
        wait_for_line(process, "freeze server 1")
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert left_behind(tmp_path) == []


def test_what_a_killed_drill_has_left_is_undone_by_the_next_command(tmp_path: Path, scenarios: str) -> None:
    with started(tmp_path, "run", "--file", scenarios, "long") as process:
        wait_for_line(process, "freeze server 1")
        while not [state for _, state, command in processes_of(tmp_path) if state == "T"]:
            assert process.poll() is None
        process.kill()
        process.wait()
        frozen = [command for _, state, command in processes_of(tmp_path) if state == "T"]
        assert "serve" in frozen[0]
        undone = drill(tmp_path, "undo")
        assert undone.returncode == 0
        assert "undone: continue-process" in undone.stderr
        assert "undone: remove-folder" in undone.stderr
        assert left_behind(tmp_path) == []
        assert drill(tmp_path, "undo").stderr == ""


def test_a_dry_run_starts_nothing(tmp_path: Path, scenarios: str) -> None:
    found = drill(tmp_path, "run", "--file", scenarios, "kill", "--dry-run")
    assert found.returncode == 0
    assert "after 0.3 s of whole redundancy: kill replica winner for 0.2 s" in found.stdout
    assert not (tmp_path / "lmerge").exists()


def test_without_a_name_a_sandbox_runs_what_it_can(tmp_path: Path) -> None:
    planned = drill(tmp_path, "run", "--dry-run").stdout
    assert [line.split(":")[0] for line in planned.splitlines() if line[0] != " "] == LOCAL
    assert {"kill-winner", "cutover", "clock-apart"} <= set(LOCAL)
    assert "drain-node" not in LOCAL


def test_an_unknown_drill_is_a_usage_error(tmp_path: Path) -> None:
    found = drill(tmp_path, "run", "kill-everything")
    assert found.returncode == 2
    assert "no drill is named 'kill-everything'; there are: kill-winner, " in found.stderr


def test_the_list_names_every_drill(tmp_path: Path) -> None:
    assert list(json.loads(drill(tmp_path, "list", "--json").stdout)) == list(builtin_scenarios())
    assert "kill-durable-pair" in drill(tmp_path, "list").stdout


@pytest.mark.long
@pytest.mark.parametrize("name", LOCAL)
def test_every_drill_passes_in_a_sandbox(tmp_path: Path, name: str) -> None:
    found = drill(tmp_path, "run", name)
    assert found.returncode == 0, found.stdout + found.stderr
    assert left_behind(tmp_path) == []
