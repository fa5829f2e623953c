"""Systems under test (TESTING 5): each behind one protocol, and what is wrong with them is a verdict of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from judged_world import inputs_by_hand, payload, tree_of

import lmerge.temporal as lt
from lmerge.core.elements import INF, Element, Insert, Stable
from lmerge.errors import UsageError
from lmerge.testing import FunctionSystem, ProcessSystem
from lmerge.testing.checking.tree_verdict import check
from lmerge.testing.judging.verdict import Judge, Judgement
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.systems.registered import SYSTEMS
from lmerge.testing.systems.system import SystemRun
from lmerge.testing.transforming.concrete import ConcreteTree

LEFT = lt.source("left", {"k": "int"})
ELEMENTS: list[Element] = [Insert(payload(LEFT, 1), 0, 3), Insert(payload(LEFT, 2), 1, 4), Stable(2), Stable(INF)]
INPUTS = inputs_by_hand([("left", ELEMENTS[:2]), ("left", ELEMENTS[2:])])

# A program that passes its source on: it takes the name of the source out of each line.
PASSING = """
import json, sys
for line in sys.stdin:
    item = json.loads(line)
    if item["op"] != "attach":
        del item["input"]
        print(json.dumps(item))
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as one:
        yield one


def program(folder: Path, code: str) -> ProcessSystem:
    path = folder / "program.py"
    path.write_text(code)
    return ProcessSystem([sys.executable, str(path)], "program")


def test_a_process_that_writes_lines_is_judged_as_a_whole(judge: Judge, tmp_path: Path) -> None:
    """X3 (3): any program that reads a session and writes a stream."""
    passing = program(tmp_path, PASSING)
    assert check(tree_of(LEFT.shift(0)), passing, judge, INPUTS).outcome is Judgement.EQUAL
    verdict = check(tree_of(LEFT.shift(1)), passing, judge, INPUTS)
    assert verdict.outcome is Judgement.DIFFERENT
    assert verdict.blamed is not None
    assert verdict.blamed.name == "result"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import sys; print('why', file=sys.stderr); sys.exit(3)", "exit code 3; its standard error ends with: why"),
        ("print('garbage')", "program wrote what is no element: line 1: not JSON"),
        ('print(\'{"op":"detach","input":"left"}\')', "program wrote line 1, which is no element"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "program ended with exit code -9"),
        ("import sys; sys.stdin.read(); input()", "exit code 1"),
    ],
)
def test_a_process_that_dies_or_writes_garbage_has_a_verdict_of_its_own(
    judge: Judge, tmp_path: Path, code: str, problem: str
) -> None:
    """X1 (3): what a system fails with is kept."""
    verdict = check(tree_of(LEFT.shift(0)), program(tmp_path, code), judge, INPUTS)
    assert verdict.outcome is Judgement.DIFFERENT
    assert problem in verdict.failure
    assert problem in str(verdict)


def test_a_process_that_hangs_is_ended(judge: Judge, tmp_path: Path) -> None:
    """X1 (3): a system has a time-out."""
    hanging = program(tmp_path, "import threading; threading.Event().wait()")
    verdict = check(tree_of(LEFT.shift(0)), hanging, judge, INPUTS, timeout_s=0.5)
    assert "program has not ended in 0.5 s" in verdict.failure


def test_a_process_that_answers_after_its_end_breaks_a_law(judge: Judge, tmp_path: Path) -> None:
    late = '\nprint(json.dumps({"op": "stable", "vc": 3}))'
    verdict = check(tree_of(LEFT.shift(0)), program(tmp_path, PASSING + late), judge, INPUTS)
    assert "stable(3) came after stable(inf)" in str(verdict)


def test_rows_that_are_none_of_the_result_are_a_failure(judge: Judge, tmp_path: Path) -> None:
    rows = 'print(\'{"op":"insert","payload":"A","vs":0,"ve":1}\')'
    verdict = check(tree_of(LEFT.shift(0)), program(tmp_path, rows), judge, INPUTS)
    assert "result 'result': row 0: the payload" in verdict.failure


def test_a_program_that_is_not_there_is_a_failure(judge: Judge) -> None:
    verdict = check(tree_of(LEFT.shift(0)), ProcessSystem(["/nowhere/program"]), judge, INPUTS)
    assert "process cannot be run" in verdict.failure
    assert verdict.versions["command"] == "/nowhere/program"


class Counting:
    """A query with a state."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, batch: object) -> list[Element]:
        self.count += 1
        return ELEMENTS if self.count == 2 else []


def test_a_callable_and_an_object_with_a_state_are_systems(judge: Judge) -> None:
    """X6 (3): five lines; each tree gets a new one."""
    system = FunctionSystem(lambda: Counting().apply, "counting")
    for _ in range(2):
        assert check(tree_of(LEFT.shift(0)), system, judge, INPUTS).outcome is Judgement.EQUAL


def test_the_engine_reports_what_a_query_fails_with(judge: Judge) -> None:
    elements: list[Element] = [Insert(payload(LEFT, INF), 0, 3), Stable(INF)]
    verdict = check(
        tree_of(LEFT.select(e=lt.col.k + 1)), SYSTEMS.find("engine"), judge, inputs_by_hand([("left", elements)])
    )
    assert "the engine failed: ModuleViolation" in verdict.failure


class Silent(FunctionSystem):
    """A system without a result."""

    def run(self, tree: ConcreteTree, inputs: TreeInputs, timeout_s: float = 1.0) -> SystemRun:
        return SystemRun({})


def test_a_result_that_is_missing_is_a_failure(judge: Judge) -> None:
    verdict = check(tree_of(LEFT.shift(0)), Silent(lambda: lambda batch: [], "silent"), judge, INPUTS)
    assert verdict.failure == "there is no result 'result'; there are none"


def test_two_systems_of_one_name_are_an_error() -> None:
    with pytest.raises(UsageError, match="there is a system 'engine' already: this process"):
        SYSTEMS.register("engine", FunctionSystem(lambda: lambda batch: []))
    with pytest.raises(UsageError, match="there is a system 'server' already: lmerge"):
        SYSTEMS.register("server", FunctionSystem(lambda: lambda batch: []))


def test_a_system_is_imported_when_it_is_asked_for() -> None:
    names = "from lmerge.testing.systems.registered import SYSTEMS; print(*SYSTEMS.names(), 'grpc' in sys.modules)"
    code = f"import sys; {names}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["engine", "server", "merge", "False"]
