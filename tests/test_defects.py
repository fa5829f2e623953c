"""Every seeded defect can be seeded, and the test that must catch it is there. `make test-long` seeds them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from defect_list import defects_below
from defects import COPIED
from seeded import Defect

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


def test_what_tests_import_is_in_the_copy_that_defects_are_seeded_in(pytestconfig: pytest.Config) -> None:
    assert {folder.relative_to(ROOT).parts[0] for folder in pytestconfig.getini("pythonpath")} <= set(COPIED)


def test_no_two_have_one_name() -> None:
    for of_rust in (False, True):  # a script each
        names = [defect.name for defect in DEFECTS if defect.file.startswith("native/") is of_rust]
        assert len(names) > 30
        assert len(set(names)) == len(names)
