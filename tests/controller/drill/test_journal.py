"""What a drill has broken is on disk before it is broken, and is undone once, by whoever comes next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from drilled import state_of

from lmerge.errors import StoreDamaged, UsageError
from lmerge_controller.drill.journal import UndoJournal, default_folder, left_over
from lmerge_controller.drill.process_marks import is_alive, mark_of, send_signal
from lmerge_controller.drill.undo import undo_all

SLEEPER = "import sys; sys.stdin.read()"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdin=subprocess.PIPE) as started:
        try:
            yield started
        finally:
            started.kill()


def wait_for(pid: int, states: str) -> None:
    while state_of(pid) not in states:
        os.sched_yield()


def test_an_entry_is_there_before_the_journal_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "one.journal"
    with UndoJournal(path) as journal:
        first = journal.note("continue-process", pid=1, mark="x")
        second = journal.note("remove-folder", path="y")
        assert path.read_bytes().count(b"\n") == 2
        assert [entry.number for entry in journal.pending] == [second, first]
        journal.done(second)
    with UndoJournal(path) as journal:
        assert [entry.action for entry in journal.pending] == ["continue-process"]
        assert journal.note("remove-folder", path="z") == second
        for entry in journal.pending:
            journal.done(entry.number)
    assert not path.exists()


def test_a_journal_of_a_running_drill_is_left_alone(tmp_path: Path) -> None:
    with UndoJournal(tmp_path / "one.journal") as journal:
        journal.note("remove-folder", path="y")
        assert list(left_over(tmp_path)) == []
    assert [found.pending[0].action for found in left_over(tmp_path)] == ["remove-folder"]


def test_a_line_that_was_cut_off_is_dropped_and_a_damaged_one_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "one.journal"
    with UndoJournal(path) as journal:
        journal.note("remove-folder", path="y")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"number": 2, "act')
    with UndoJournal(path) as journal:
        assert len(journal.pending) == 1
        journal.note("remove-folder", path="z")
    with UndoJournal(path) as journal:
        assert len(journal.pending) == 2
    path.write_bytes(b"?\n" + whole)
    with pytest.raises(StoreDamaged, match=r"line 1 of the drill's journal .*one\.journal"):
        UndoJournal(path)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_process_that_stands_still_goes_on_again(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    mark = mark_of(process.pid)
    with UndoJournal(tmp_path / "one.journal") as journal:
        journal.note("continue-process", pid=process.pid, mark=mark)
        assert send_signal(process.pid, mark, signal.SIGSTOP)
        wait_for(process.pid, "T")
    done: list[str] = []
    for journal in left_over(tmp_path):
        assert undo_all(journal, done.append) == []
    wait_for(process.pid, "SR")
    assert done == [f"continue-process pid={process.pid}"]
    assert list(left_over(tmp_path)) == []


def test_a_later_process_of_the_same_id_is_not_touched(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    with UndoJournal(tmp_path / "one.journal") as journal:
        journal.note("end-process", pid=process.pid, mark="another life")
        assert undo_all(journal, lambda text: None) == []
    assert process.poll() is None
    assert is_alive(process.pid, mark_of(process.pid))
    with UndoJournal(tmp_path / "one.journal") as journal:
        journal.note("end-process", pid=process.pid, mark=mark_of(process.pid))
        assert undo_all(journal, lambda text: None) == []
    assert process.wait() == -signal.SIGKILL
    assert mark_of(process.pid) == ""


def test_only_folders_of_drills_are_removed(tmp_path: Path) -> None:
    own, other = tmp_path / "lmerge-drill-1", tmp_path / "data"
    for folder in (own, other):
        folder.mkdir()
        (folder / "file").touch()
    (tmp_path / "lmerge-drill-link").symlink_to(other)
    with UndoJournal(tmp_path / "one.journal") as journal:
        for path in (own, other, tmp_path / "lmerge-drill-link"):
            journal.note("remove-folder", path=str(path))
        assert undo_all(journal, lambda text: None) == []
    assert not own.exists()
    assert (other / "file").exists()


def test_what_cannot_be_undone_stays_in_the_journal(tmp_path: Path) -> None:
    path, done = tmp_path / "one.journal", list[str]()
    with UndoJournal(path) as journal:
        journal.note("heal-the-world")
        journal.note("remove-folder", path="y")
        failures = undo_all(journal, done.append)
        assert ["heal-the-world" in str(failure) for failure in failures] == [True]
        assert done == ["remove-folder path=y"]
    with UndoJournal(path) as journal:
        assert [entry.action for entry in journal.pending] == ["heal-the-world"]


def test_without_a_home_journals_are_in_a_temporary_folder_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LMERGE_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".local" / "state" / "lmerge" / "drills"
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = default_folder()
    assert folder == tmp_path / f"lmerge-drills-{os.getuid()}"
    folder.mkdir()
    assert default_folder() == folder
    monkeypatch.setattr("os.getuid", lambda: 987_654)
    (tmp_path / "lmerge-drills-987654").mkdir()
    with pytest.raises(UsageError, match="belongs to another user"):
        default_folder()
