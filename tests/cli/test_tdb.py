"""``lmerge tdb``: the table that a stream means."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from lmerge.cli import tdb as tdb_command
from lmerge.core.batch import Batch
from lmerge.core.session import format_event, format_row
from lmerge.testing.streams.merge_inputs import present, reference

LMERGE = [sys.executable, "-m", "lmerge"]


def tdb(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LMERGE, "tdb", "-", *options], input=text, capture_output=True, text=True, check=False)


def stream(seed: int, order: int) -> str:
    events = reference(Random(seed), 40, duplicates=True)
    rows = Batch.of(present(Random(order), events)).rows()
    return "".join(format_row(row) + "\n" for row in rows)


def test_equivalent_streams_print_the_same_bytes_in_order() -> None:
    events = reference(Random(3), 40, duplicates=True)
    expected = "".join(format_event(*event) + "\n" for event in sorted(events))
    assert tdb(stream(3, 1)).stdout == tdb(stream(3, 2)).stdout == expected


def test_a_session_gives_the_table_of_one_input() -> None:
    session = (
        '{"op":"attach","input":"a"}\n{"op":"insert","input":"a","payload":"A","vs":1,"ve":2}\n'
        '{"op":"attach","input":"b"}\n{"op":"insert","input":"b","payload":"B","vs":1,"ve":2}\n{"op":"detach","input":"b"}\n'
    )
    assert tdb(session, "--input", "b").stdout == '{"payload":"B","vs":1,"ve":2}\n'
    refused = tdb(session)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "line 4" in refused.stderr
    assert "--input" in refused.stderr
    assert tdb(session.split('{"op":"attach","input":"b"}')[0]).stdout == '{"payload":"A","vs":1,"ve":2}\n'


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"op":"adjust","payload":"A","vs":1,"vold":8,"ve":9}', "unknown-event"),
        ('{"op":"insert","payload":"B","vs":1,"ve":9}', "insert-below-stable"),
        ('{"op":"stable","vc":2}', "stable-backwards"),
        ("nonsense", "not JSON"),
    ],
)
def test_a_stream_that_breaks_its_own_rules_is_named_by_line(line: str, problem: str) -> None:
    result = tdb(f'{{"op":"insert","payload":"A","vs":1,"ve":7}}\n{{"op":"stable","vc":3}}\n{line}\n')
    assert result.returncode == 2
    assert result.stderr.startswith("lmerge: line 3: ")
    assert problem in result.stderr


def test_long_streams_are_sorted_through_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of 5 events, at most 3 files: the external sort, its merging of runs included."""
    monkeypatch.setattr(tdb_command, "RUN_EVENTS_MAX", 5)
    monkeypatch.setattr(tdb_command, "RUN_FILES_MAX", 3)
    data = io.BytesIO()
    output = io.TextIOWrapper(data, encoding="utf-8", write_through=True)
    monkeypatch.setattr("sys.stdout", output)
    path = tmp_path / "stream.jsonl"
    rows = [f'{{"op":"insert","payload":"{at % 7}","vs":{at},"ve":{at + 1 + at * 7 % 5}}}' for at in range(200)]
    path.write_text("\n".join(f'{row}\n{{"op":"stable","vc":{at}}}' for at, row in enumerate(rows)) + "\n")
    tdb_command.tdb(str(path), None)
    printed = data.getvalue().decode().splitlines()
    assert printed == [format_event(at, str(at % 7).encode(), at + 1 + at * 7 % 5) for at in range(200)]
