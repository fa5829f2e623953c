"""The files of a run: one supervisor at a time, ports that stay, and files that are old or new, never half."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lmerge.errors import UsageError
from lmerge_controller.local.process_table import process_id
from lmerge_controller.local.state_folder import QueryIsUp, StateFolder, free_port, state_folders

HOLD = (
    "import pathlib, sys; from lmerge_controller.local.state_folder import StateFolder\n"
    "with StateFolder(pathlib.Path(sys.argv[1])).locked():\n"
    "    print('held', flush=True); sys.stdin.read()\n"
)


def test_one_supervisor_holds_the_lock_until_it_dies(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "flights")
    assert state.holder() is None
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert state.holder() == process_id(holder.pid)
        with pytest.raises(QueryIsUp, match=f"flights is run by process {holder.pid}"), state.locked():
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert state.holder() is None
    with state.locked():
        assert state.holder() == process_id(os.getpid())
    assert state.holder() is None


def test_ports_are_free_differ_and_stay_until_the_end_of_the_run(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "flights")
    state.make()
    ports = [state.port(f"server-{index}") for index in range(5)]
    assert len(set(ports)) == 5
    assert [StateFolder(state.path).port(f"server-{index}") for index in range(5)] == ports
    assert state.port("server-0", asked=ports[1]) == ports[1]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", ports[0]))
    mark = state.run_mark()
    assert state.run_mark() == mark
    assert state.port("server-0") == ports[0]
    state.forget_run()
    assert state.run_mark() != mark
    assert free_port(taken=set(range(65536)) - {ports[0], ports[1]}) in ports[:2]


def test_only_its_owner_can_read_the_folder(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "base" / "flights")
    with state.locked():
        state.write("record", {"a": 1}, sync=True)
    for path in (state.path.parent, *state.path.parent.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert state.read("record") == {"a": 1}
    assert [found.name for found in state_folders(state.path.parent)] == ["flights"]
    assert state_folders(tmp_path / "nowhere") == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '"a"'])
def test_a_damaged_file_reads_as_an_empty_one(tmp_path: Path, text: str) -> None:
    state = StateFolder(tmp_path)
    (tmp_path / "record.json").write_text(text)
    assert state.read("record") == state.read("nothing") == {}
    (tmp_path / "processes.json").write_text('{"a": {"pid": 1, "started": "5"}, "b": {"pid": "x"}, "c": 3}')
    assert [process.pid for process in state.recorded()] == [1]


def test_a_folder_that_cannot_be_made_is_the_callers_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make the folder"), StateFolder(tmp_path / "file" / "flights").locked():
        pass
    with pytest.raises(UsageError, match="cannot write"):
        StateFolder(tmp_path / "nowhere").write("record", {})
