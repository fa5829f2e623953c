"""Every seeded defect can be seeded, and the test that must catch it is there. `make test-long` seeds them all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from defect_list import defects_below
from defects import COPIED
from seeded import Defect

from lmerge.core.engines import selection

ROOT = Path(__file__).resolve().parent.parent
DEFECTS = defects_below("")


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_it_can_be_seeded_and_its_test_is_there(defect: Defect) -> None:
    assert (ROOT / defect.file).read_text().count(defect.old) == 1
    if defect.file.startswith("native/"):
        module, *_, name = defect.test.split("::")
        crate = ROOT / Path(*Path(defect.file).parts[:2])
        suite = crate / "tests" / "suite"
        text = ((suite if suite.exists() else crate / "src") / f"{module}.rs").read_text()
        assert f"fn {name}(" in text
        return
    file, name = defect.test.split("::")
    assert re.search(rf"def {re.escape(name.split('[')[0])}\(", (ROOT / file).read_text())


@pytest.mark.skipif(selection.native_problem() is not None, reason="the native core is not built")
def test_a_case_of_a_parametrised_test_is_there() -> None:
    """Pytest gives each case its name, so a new parameter of a test renames all of them."""
    cases = sorted({defect.test for defect in DEFECTS if defect.test.endswith("]")})
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *cases]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert collected.returncode == 0, collected.stdout + collected.stderr


def test_what_tests_import_is_in_the_copy_that_defects_are_seeded_in(pytestconfig: pytest.Config) -> None:
    assert {folder.relative_to(ROOT).parts[0] for folder in pytestconfig.getini("pythonpath")} <= set(COPIED)


def test_no_two_have_one_name() -> None:
    for of_rust in (False, True):  # a script each
        names = [defect.name for defect in DEFECTS if defect.file.startswith("native/") is of_rust]
        assert len(names) > 30
        assert len(set(names)) == len(names)
