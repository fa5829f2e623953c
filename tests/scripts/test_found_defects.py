"""The list of defects that scenarios find: its lines become a table, and its options are checked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from found_defects import Found, main, shown, table
from seeded import Defect

ROOT = Path(__file__).parents[2]
DEFECTS = [Defect(name, "lmerge/file.py", "old", "new", "tests/test_file.py::test_it") for name in ("a", "b: c", "d")]


def printed(found: list[Found], unit: str) -> str:
    """Return what a run prints for defects."""
    lines = [f"{number:4} {shown(one, unit)}" for number, one in enumerate(found, 1)]
    return "\n".join(["x86_64, 2 cores, Python 3.11.7, 1 at once", *lines, "2 of 3 defects found (67%)"])


def test_a_table_has_each_line_that_a_run_prints() -> None:
    a, b, d = DEFECTS
    assert list(table([printed([Found(a, 3, "", (2, 1, 0.31)), Found(b, None), Found(d, 12)], "trees")])) == [
        "| defect | found by | smallest case: elements | smallest case: operators | smallest case: seconds |",
        "|---|---|---|---|---|",
        "| a | 3 trees | 2 | 1 | 0.3 |",
        "| b: c | not found |  |  |  |",
        "| d | 12 trees |  |  |  |",
    ]


def test_a_table_without_cases_has_no_columns_of_them() -> None:
    assert list(table([printed([Found(DEFECTS[0], 3)], "sessions")]))[1:] == ["|---|---|", "| a | 3 sessions |"]


def test_the_last_run_of_a_defect_counts() -> None:
    a, b, _ = DEFECTS
    logs = [printed([Found(a, None), Found(b, 1)], "trees"), printed([Found(a, 7)], "trees")]
    assert list(table(logs))[2:] == ["| a | 7 trees |", "| b: c | 1 trees |"]


@pytest.mark.parametrize("text", ["3", "0/3", "4/3", "a/b", "1/3/3"])
def test_a_wrong_part_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["found_defects.py", "--part", text])
    with pytest.raises(SystemExit):
        main()
    assert f"{text!r} is no part such as 2/3: the second of three" in capsys.readouterr().err


def test_a_file_gives_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "found.txt"
    log.write_text(printed([Found(DEFECTS[2], 5)], "trees"))
    monkeypatch.setattr(sys, "argv", ["found_defects.py", "--table", str(log)])
    main()
    assert capsys.readouterr().out.splitlines()[-1] == "| d | 5 trees |"


@pytest.mark.parametrize("results", ["found_defects.txt", "found_merge_defects.txt"])
def test_the_docs_have_the_tables_of_what_runs_printed(results: str) -> None:
    page = (ROOT / "docs" / "found-defects.md").read_text()
    assert "\n".join(table([(ROOT / "bench" / "results" / results).read_text()])) in page
