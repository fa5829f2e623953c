"""What drawn sources promise: some of what their streams keep, never what they break."""

from __future__ import annotations

from collections import Counter

import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.testing.checking.session import every_operator
from lmerge.testing.systems.inputs import inputs_of
from lmerge.testing.transforming.promising import kept_promises
from lmerge.testing.transforming.transformer import Transformer


def insert(payload: bytes, vs: int, ve: int = 9) -> Insert:
    return Insert(payload, vs, ve)


@pytest.mark.parametrize(
    ("elements", "kept"),
    [
        ([insert(b"a", 1), insert(b"a", 2)], ["insert-only", "ordered", "strictly-ordered", "key"]),
        ([insert(b"a", 1), insert(b"b", 1)], ["insert-only", "ordered", "key"]),
        ([insert(b"a", NEG_INF), insert(b"b", 1)], ["insert-only", "ordered", "key"]),
        ([insert(b"a", 2), insert(b"b", 1)], ["insert-only", "key"]),
        ([insert(b"a", 1), insert(b"a", 1)], ["insert-only", "ordered"]),
        ([insert(b"a", 1), Adjust(b"a", 1, 9, 8)], ["key"]),
        ([insert(b"a", 1), insert(b"a", 1), Adjust(b"a", 1, 9, 1)], []),
        ([Stable(INF)], ["insert-only", "ordered", "strictly-ordered", "key"]),
    ],
)
def test_what_a_stream_keeps(elements: list[Element], kept: list[str]) -> None:
    assert [str(one) for one in kept_promises(elements)] == kept


def test_a_merge_finds_no_promise_of_a_drawn_source_broken() -> None:
    """The merge checks promises in another way."""
    promised: Counter[str] = Counter()
    for tree in Transformer(every_operator(), 2).trees(60):
        inputs = inputs_of(tree)
        for name, node in tree.sources.items():
            merge = Merge()
            merge.attach(name, node.promises)
            promised.update(map(str, node.promises))
            outcome = merge.apply(name, Batch.of(inputs.elements(name)))
            assert not outcome.detached, outcome.detached[0].reason
    assert set(promised) >= {"insert-only", "ordered", "key"}
