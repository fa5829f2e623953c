"""Paper tests of rows P4 and P6 (section 7 of the matrix): outputs that move on, and the same bytes twice."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from judged_world import payload, verdict_of

import lmerge.temporal as lt
from lmerge.core.elements import INF, Element, Insert, Stable
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.testing.judging.verdict import Judge, Judgement

LEFT = lt.source("left", {"k": "int", "v": "int"})

OUTPUTS = """
import hashlib
from lmerge.testing.checking.session import every_operator
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.inputs import inputs_of
from lmerge.testing.transforming.transformer import Transformer

digest = hashlib.sha256()
for tree in Transformer(every_operator(), 3).trees(30):
    for batch in EngineSystem().run(tree, inputs_of(tree), 60).outputs["result"]:
        digest.update(repr((batch.step, batch.elements)).encode())
print(digest.hexdigest())
"""


def test_p4_an_output_that_never_moves_before_the_end_is_different(monkeypatch: pytest.MonkeyPatch) -> None:
    """P4 (6.3): all that is emitted is right, and the stable point moves at the end alone."""
    query = LEFT.tumbling(5).agg(n=lt.count(), form="eager")
    elements: list[Element] = []
    for start in range(0, 30, 3):
        elements += [Insert(payload(LEFT, 1, 1), start, start + 2), Stable(start)]
    batches = [("left", [one]) for one in [*elements, Stable(INF)]]
    with Judge() as judge:
        assert verdict_of(judge, query, batches, "python").outcome is Judgement.EQUAL
        right = WindowOperator._output_stable
        monkeypatch.setattr(
            WindowOperator,
            "_output_stable",
            lambda self: INF if self._input_stable == INF else min(right(self) or 0, -5),
        )
        found = verdict_of(judge, query, batches, "python")
    assert found.outcome is Judgement.DIFFERENT
    assert found.blamed is not None
    assert "its input freezes all before" in found.blamed.reason


def test_p6_equal_inputs_give_equal_bytes_in_another_process() -> None:
    """P6 (6.3): with other hashes of texts, the order of sets is another one; that of the output is not."""
    digests = [
        subprocess.run(
            [sys.executable, "-c", OUTPUTS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(digests[0]) == 65
    assert digests[0] == digests[1]
