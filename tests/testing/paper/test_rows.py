"""Every row of the matrix of seed 001 (TESTING) has a test that names it, and its section, in its docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2]
PLACES: Final = ("testing", "spark/test_testing.py", "cli/test_testing.py")
ROWS: Final = {"T": 8, "A": 8, "D": 15, "M": 4, "X": 7, "V": 8, "P": 6, "R": 3, "U": 8}
"""How many rows each section of the matrix has. Its section 9, without ids, is ``tests/temporal/modules``."""
NAMED: Final = re.compile(r"([A-Z]\d+(?:, [A-Z]\d+)*) \([^)]+\): \S")


def named_rows() -> Iterator[str]:
    """Yield the ids that docstrings of tests begin with."""
    for place in PLACES:
        for path in [TESTS / place] if place.endswith(".py") else sorted((TESTS / place).rglob("test_*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    begins = NAMED.match(ast.get_docstring(node) or "")
                    yield from begins[1].split(", ") if begins else ()


def test_every_row_has_a_test_and_no_test_names_another_one() -> None:
    rows = {f"{section}{number}" for section, count in ROWS.items() for number in range(1, count + 1)}
    assert set(named_rows()) == rows
