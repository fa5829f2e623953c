"""Every legal stream of a few elements over a small axis of time: every kind of window, form and cut (L1, L2, L4).

Starts are 0 and 1, ends up to 2 and +inf; events have one row, so streams that differ by the names of rows are one. A
stream comes element by element, and with all changes up to the next stable in one step. The default takes streams of
three elements in turn; the long tests take all, of up to five.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from operator_world import every_stream
from temporal_world import StreamTable
from window_definition import WindowDefinition
from window_modules import MODULES

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots, WindowKind
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator

KINDS: dict[str, WindowKind] = {
    "tumbling": Hopping(2, 2),
    "hopping": Hopping(2, 1),
    "gaps": Hopping(1, 2),
    "snapshot": Snapshots(),
    "two starts": CountWindows(2),
    "two ends": CountWindows(2, CountedEnd.ENDS),
    "session": Sessions(0),
}
ROW: Values = (0, 3)


def whole(row: Values) -> Values:
    return ()


def batches(stream: list[Delta], together: bool) -> list[Delta]:
    """Return the elements one by one, or with all changes up to the next stable in one batch."""
    if not together:
        return stream
    found, changes = list[Delta](), list[Change]()
    for delta in stream:
        changes += delta.changes
        if delta.stable is not None:
            found.append(Delta(changes, delta.stable))
            changes = []
    return [*found, Delta(changes)] if changes else found


@cache
def streams(elements: int) -> list[list[Delta]]:
    """Return every stream of up to so many elements."""
    return [[delta for _, delta in stream] for stream in every_stream([[ROW]], elements, 1)]


def judge(rules: WindowRules, chosen: Sequence[list[Delta]]) -> None:
    for deltas in chosen:
        for together in (False, True):
            cut = batches(deltas, together)
            if together and len(cut) == len(deltas):
                continue
            operator, output = WindowOperator("windows", rules, lambda row: row), StreamTable()
            definition = WindowDefinition(rules, whole)
            for delta in cut:
                mark = max((change.vs for change in delta.changes), default=None)
                output.apply(operator.step([delta._replace(mark=mark)]))
                expected = definition.take(delta)
            operator.check()
            assert output.events == expected, deltas
            assert output.stable == definition.output_stable, deltas
            if definition.table.stable == INF:
                assert operator.live() == 0, deltas


def rules_of(kind: str, module: str, form: Form) -> WindowRules:
    operator = MODULES[module].operator
    clip = Clip.NONE if module != "own lifetimes" else Clip.FULL
    stamp = Stamp.UNCHANGED if operator.stamps else Stamp.ALIGN
    return WindowRules(KINDS[kind], operator, clip, stamp, form, lambda row: row)


CASES = [(kind, module, form) for kind in KINDS for module in MODULES for form in Form]


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: ", ".join(map(str, CASES[at])))
def test_streams_of_three_elements_have_their_windows(at: int) -> None:
    """Each case takes one of seven; together they take every one, for each kind of window and form."""
    judge(rules_of(*CASES[at]), streams(3)[at % 7 :: 7])


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("elements", [3, 4, 5])
@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: ", ".join(map(str, CASES[at])))
def test_every_stream_of_up_to_five_elements_has_its_windows(at: int, elements: int) -> None:
    judge(rules_of(*CASES[at]), streams(elements))


def test_there_are_hundreds_of_streams() -> None:
    assert len(streams(3)) > 500
