"""Output marks: how many inputs have the event of an insert at that moment; both engines."""

from __future__ import annotations

import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import Adjust, Insert, Stable
from lmerge.core.inputs import InputRole
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig

A = Insert(b"A", 1, 9)


def supporters(merge: Merge, *events: Insert) -> list[int]:
    return merge.supporters(Batch.of(events))


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_supporters_are_the_inputs_that_have_the_event_with_that_end(algorithm: str) -> None:
    merge = Merge(MergeConfig(algorithm))
    for name in "abc":
        merge.attach(name)
    out = merge.apply("a", Batch.of([A])).batch
    assert merge.supporters(out) == [1]
    merge.apply("b", Batch.of([A, Insert(b"B", 2, 9)]))
    assert supporters(merge, A, Insert(b"B", 2, 9), Insert(b"A", 1, 8), Insert(b"C", 1, 9)) == [2, 1, 0, 0]
    merge.apply("c", Batch.of([Insert(b"A", 1, 7), Adjust(b"A", 1, 7, 9)]))
    assert supporters(merge, A) == [3]
    merge.detach("a")
    assert supporters(merge, A) == [2]
    merge.apply("b", Batch.of([Adjust(b"A", 1, 9, 1)]))
    assert supporters(merge, A) == [1]
    merge.apply("c", Batch.of([Stable(20)]))
    assert supporters(merge, A) == [0]  # fully frozen: no entry is kept


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_an_observer_supports_nothing(algorithm: str) -> None:
    merge = Merge(MergeConfig(algorithm))
    merge.attach("a")
    merge.attach("o", role=InputRole.OBSERVE)
    merge.apply("a", Batch.of([A]))
    merge.apply("o", Batch.of([A]))
    assert supporters(merge, A) == [1]


def test_an_input_that_delivers_an_event_twice_supports_it_once() -> None:
    merge = Merge(MergeConfig("r4"))
    merge.attach("a")
    merge.apply("a", Batch.of([A, A]))
    assert supporters(merge, A, A) == [1, 1]


@pytest.mark.parametrize("algorithm", ["r0", "r1", "r2"])
def test_without_entries_by_input_the_number_is_not_known(algorithm: str) -> None:
    merge = Merge(MergeConfig(algorithm))
    merge.attach("a")
    merge.apply("a", Batch.of([A]))
    assert supporters(merge, A) == [0]


def test_marks_are_for_inserts_only() -> None:
    merge = Merge(MergeConfig("r3"))
    merge.attach("a")
    merge.apply("a", Batch.of([A]))
    assert merge.supporters(Batch.of([Stable(1), A, Adjust(b"A", 1, 9, 10)])) == [1]
