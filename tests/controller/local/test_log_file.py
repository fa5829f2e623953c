"""The log of a process is bounded, and the process goes on writing into it."""

from __future__ import annotations

import os
from pathlib import Path

from lmerge_controller.local.log_file import LogFile


def test_a_long_log_is_copied_and_emptied_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "p.log", bytes_max=20, copies=2)
    descriptor = log.opened()
    try:
        for line in ("first", "second", "third"):
            os.write(descriptor, line.encode() * 5 + b"\n")
            assert log.rotate()
            assert not log.rotate()
        os.write(descriptor, b"last\n")
    finally:
        os.close(descriptor)
    assert log.path.read_text() == "last\n"
    assert log.copy(1).read_text() == ("third" * 5 + "\n")[-20:]
    assert log.copy(2).read_text() == ("second" * 5 + "\n")[-20:]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.log", "p.log.1", "p.log.2"]


def test_a_log_that_is_not_there_has_no_lines_and_is_not_rotated(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "p.log")
    assert not log.rotate()
    assert log.last_lines(3) == []
    log.write("a\udc00b")
    assert log.last_lines(3) == ["a?b"]


def test_only_its_owner_can_read_a_log(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "p.log", bytes_max=0)
    log.write("line")
    log.rotate()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
