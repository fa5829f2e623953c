"""Law 3: an incarnation is accepted once, and no older one after it."""

from __future__ import annotations

import pytest

from lmerge.core.fence import IncarnationFence
from lmerge.core.inputs import INCARNATION_MAX
from lmerge.errors import InputTaken, StaleIncarnation, UsageError


def test_the_next_incarnation_is_one_above_the_newest_that_was_seen() -> None:
    fence = IncarnationFence()
    assert fence.next("a", None, None) == 1
    assert "a" not in fence, "to ask changes nothing"
    fence.raise_to("a", 7)
    assert fence.next("a", None, None) == 8
    assert fence.next("b", None, None) == 1


def test_only_a_newer_incarnation_takes_the_place_of_one_that_is_attached() -> None:
    fence = IncarnationFence({"a": 7})
    assert fence.next("a", 8, 7) == 8
    for incarnation in (None, 7):
        with pytest.raises(InputTaken, match="incarnation 7 of it is attached"):
            fence.next("a", incarnation, 7)
    with pytest.raises(StaleIncarnation, match="incarnation 6 is not newer than 7"):
        fence.next("a", 6, 7)


@pytest.mark.parametrize("incarnation", [0, -1, INCARNATION_MAX + 1])
def test_an_incarnation_out_of_range_is_refused(incarnation: int) -> None:
    with pytest.raises(UsageError, match="is not between 1 and"):
        IncarnationFence().next("a", incarnation, None)


def test_behind_the_largest_incarnation_a_name_begins_again_only_when_it_is_forgotten() -> None:
    fence = IncarnationFence({"a": INCARNATION_MAX})
    with pytest.raises(UsageError, match="lmerge detach --forget"):
        fence.next("a", None, None)
    fence.forget("a")
    assert fence.next("a", None, None) == 1


def test_what_the_merge_before_refuses_is_refused_too() -> None:
    fence = IncarnationFence({"a": 3, "b": 9})
    fence.take_over(IncarnationFence({"a": 5, "b": 2, "c": 1}))
    assert fence.newest == {"a": 5, "b": 9, "c": 1}
