"""The page of the benchmarks: its figures are those of the results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.document import PAGE, TEXT, UnknownFigure, number, rendered
from bench.harness import RESULTS


@pytest.fixture
def results(tmp_path: Path) -> Path:
    document = {
        "command": "python -m bench.some",
        "machine": {"commit": "abc1234"},
        "rows": [
            {"name": "native, r3: p50", "unit": "ms", "values": [7.0, 7.1, 6.9]},
            {"name": "rate", "unit": "elements/s", "values": [2e7, 3e7, 2.1e7]},
            {"name": "cost", "unit": "%", "values": [1.46, -2.2, 3.0]},
        ],
        "notes": ["native: 1,000 / 10 = 1.50; target 2: reached", "other = x"],
    }
    (tmp_path / "some.json").write_text(json.dumps(document))
    return tmp_path


def test_the_page_has_the_figures_of_the_results() -> None:
    assert rendered(TEXT.read_text(), RESULTS) == PAGE.read_text(), "python -m bench.document writes it"


def test_a_figure_is_a_command_a_row_or_a_note(results: Path) -> None:
    text = "| {some} | {some: native, r3: p50}; {some: rate}; {some: cost} | {some# native: 1,000 / 10} |"
    expected = "| `python -m bench.some` at abc1234 | 7.0 ms; 21.0 M (48 %); 1.5 % (-2 to 3) | 1.50 |"
    assert rendered(text, results) == expected


@pytest.mark.parametrize("figure", ["{other}", "{some: rat}", "{some# other}", "{some# native}"])
def test_an_unknown_figure_is_named(results: Path, figure: str) -> None:
    with pytest.raises(UnknownFigure, match=r"no such|there is no"):
        rendered(f"before {figure}", results)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (171_300_000, "elements/s", "171 M"),
        (20_600_000, "elements/s", "20.6 M"),
        (270_000, "rows/s", "0.27 M"),
        (41_234, "rows/s", "41,234"),
        (7.04, "ms", "7.0 ms"),
        (432.1, "us", "432 us"),
        (1.998, "times", "2.00"),
        (80.9, "B/live event", "81"),
        (0.0132, "sd/mean", "0.013"),
    ],
)
def test_numbers_are_as_a_reader_needs_them(value: float, unit: str, shown: str) -> None:
    assert number(value, unit) == shown
