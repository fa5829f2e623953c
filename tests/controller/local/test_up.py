"""`lmerge up` with real servers and real replicas: they are killed, cut over and ended, and the stream goes on."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ticking_app
from up_world import SECONDS_MAX, TicksReader, Up, process, version

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is left is found in /proc")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with Up(tmp_path) as made:
        yield made


def test_the_stream_is_merged_and_ctrl_c_ends_everything(up: Up) -> None:
    up.start(up.describe("q.yaml", version("v1")))
    status = up.settled("v1")
    shown = up.command("ps")
    assert f"merged stream ticks at {','.join(status['addresses'])}" in shown.stdout
    assert shown.stdout.count("joined") == 2
    assert json.loads(up.command("ps", "--json").stdout)["serving"] == "v1"
    assert up.process is not None
    os.killpg(up.process.pid, signal.SIGINT)
    assert up.process.wait(SECONDS_MAX) == 0
    assert up.left() == []
    text = up.output.read_text()
    assert "ticks is up: it survives the loss of 1 input" in text
    assert f"read it: lmerge subscribe ticks --server {','.join(status['addresses'])}" in text
    assert text.splitlines()[-1].startswith("ticks has ended; logs are in")
    assert up.command("ps").stdout == "no query is up in '.lmerge'\n"


def test_replicas_and_servers_are_killed_under_a_reader_and_nothing_is_lost_or_doubled(up: Up) -> None:
    up.start(up.describe("q.yaml", version("v1")))
    status = up.settled("v1")
    reader = TicksReader(status["addresses"], "ticks")
    for name in ("ticks-v1-0", "ticks-v1-1", "server-1"):
        old = process(status, name)["pid"]
        os.kill(old, signal.SIGKILL)
        up.until(lambda status, name=name, old=old: process(status, name)["pid"] not in (None, old))  # type: ignore[misc]  # bound now
        status = up.settled("v1")
    assert [event["text"] for event in status["events"] if "SIGKILL" in event["text"]]
    end = up.end_stream()
    assert reader.table() == sorted(ticking_app.events(end))


def test_another_version_takes_over_and_a_wrong_one_is_rolled_back(up: Up) -> None:
    one = version("v1")
    up.start(up.describe("one.yaml", one))
    reader = TicksReader(up.settled("v1")["addresses"], "ticks")
    wrong = up.describe("wrong.yaml", one + version("v2", LIES_FROM=5), active="v2", cutover="{intervals: 2}")
    up.command("up", str(wrong), "--wait", "1")
    refused = up.until(lambda status: any("v2" in event["text"] and event["is_warning"] for event in status["events"]))
    assert refused["serving"] == "v1"
    up.settled("v1")
    right = up.describe("right.yaml", one + version("v3"), active="v3", cutover="{intervals: 2}")
    taken = up.command("up", str(right))
    assert taken.returncode == 0, taken.stdout + taken.stderr
    assert "has taken" in taken.stdout
    up.settled("v3")
    end = up.end_stream()
    assert reader.table() == sorted(ticking_app.events(end))


def test_a_description_that_changes_in_the_middle_of_a_cutover_is_followed(up: Up) -> None:
    one = version("v1")
    up.start(up.describe("one.yaml", one))
    up.settled("v1")
    never = up.describe("never.yaml", one + version("v2"), active="v2", cutover="{intervals: 100000}")
    up.command("up", str(never), "--wait", "0")
    up.until(lambda status: any(found["name"] == "ticks-v2-0" and found["pid"] for found in status["processes"]))
    back = up.describe("back.yaml", one)
    assert up.command("up", str(back)).returncode == 0
    up.settled("v1")


def test_a_killed_supervisor_is_followed_by_another_one_or_by_down(up: Up) -> None:
    file = up.describe("q.yaml", version("v1"))
    begun = up.command("up", str(file), "--background")
    assert begun.returncode == 0, begun.stdout + begun.stderr
    before = up.settled("v1")
    kill_supervisor(up)
    assert "its supervisor has died" in up.command("ps").stdout
    again = up.command("up", str(file), "--background")
    assert again.returncode == 0, again.stdout + again.stderr
    after = up.settled("v1")
    assert [(p["name"], p["pid"]) for p in after["processes"]] == [(p["name"], p["pid"]) for p in before["processes"]]
    kill_supervisor(up)
    ended = up.command("down")
    assert ended.stdout.startswith("ticks: ended what was left behind: processes ")
    assert up.left() == []
    assert up.command("down").stdout == "ticks was not up\n"


def test_down_all_names_only_what_it_has_ended(up: Up, tmp_path: Path) -> None:
    with Up(tmp_path, "tocks") as other:
        for each in (up, other):
            file = each.describe(f"{each.name}.yaml", version("v1"))
            assert each.command("up", str(file), "--background").returncode == 0
        assert up.command("down", "ticks").stdout == "ticks has ended\n"
        assert up.command("down", "--all").stdout == "tocks has ended\n"
        assert up.command("down", "--all").stdout == "no query was up\n"


def test_down_ends_a_run_in_the_background(up: Up) -> None:
    assert up.command("up", str(up.describe("q.yaml", version("v1"))), "--background").returncode == 0
    assert up.command("down", "ticks").stdout == "ticks has ended\n"
    assert up.left() == []
    assert up.state.holder() is None


def test_what_cannot_be_run_is_refused_before_anything_starts(up: Up) -> None:
    missing = up.describe("missing.yaml", "    - {name: v1, run: {command: [no-such-program]}}\n")
    none = up.describe("none.yaml", version("v1"), replicas="0")
    program = up.describe("program.yaml", "    - {name: v1, run: {program: not_there.py}}\n")
    for file, text in (
        (missing, "version v1: there is no program 'no-such-program'"),
        (none, "spec.replicas: 0 is below the minimum of 1"),
        (program, "not_there.py'"),
        (up.folder / "nowhere.yaml", "No such file"),
    ):
        done = up.command("up", str(file))
        assert (done.returncode, done.stdout) == (2, "")
        assert text in done.stderr
    assert up.command("ps").stdout == "no query is up in '.lmerge'\n"
    assert up.command("down", "ticks").returncode == 2 or up.left() == []


def test_a_running_query_refuses_what_it_cannot_run_and_goes_on(up: Up) -> None:
    up.start(up.describe("q.yaml", version("v1")))
    before = up.settled("v1")
    missing = up.describe("missing.yaml", "    - {name: v1, run: {command: [no-such-program]}}\n")
    refused = up.command("up", str(missing))
    assert refused.returncode == 2
    assert "there is no program 'no-such-program'" in refused.stderr
    assert up.settled("v1")["processes"] == before["processes"]


def test_a_version_that_does_not_start_is_shown_with_the_end_of_its_log(up: Up) -> None:
    command = json.dumps([sys.executable, "-c", "raise SystemExit('no such table')"])
    up.start(up.describe("q.yaml", f"    - {{name: v1, run: {{command: {command}}}}}\n"))
    status = up.until(lambda status: any(found["exits"] >= 2 for found in status["processes"]))
    assert any("its log ends with: no such table" in found["problem"] for found in status["processes"])
    assert "no such table" in up.command("logs", "ticks-v1-0").stdout
    assert "no such table" in up.command("ps").stdout
    assert "no such table" in up.output.read_text()


def kill_supervisor(up: Up) -> None:
    """Kill the supervisor with SIGKILL and wait until the system has freed its lock."""
    holder = up.state.holder()
    assert holder is not None
    holder.signal(signal.SIGKILL)
    while up.state.holder() is not None:
        os.sched_yield()
