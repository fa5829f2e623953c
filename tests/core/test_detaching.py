"""The end of an input carries its cause: as a value for code, as a label for metrics, as a sentence for people."""

from __future__ import annotations

import json

import pytest

from lmerge.core.batch import Batch
from lmerge.core.detaching import DetachCause
from lmerge.core.elements import Insert
from lmerge.core.merge import Merge
from lmerge.text_enum import TextEnum


def test_an_input_that_leaves_was_detached_for_the_cause_that_the_caller_gives() -> None:
    merge = Merge()
    for name in "ab":
        merge.attach(name)
    (left,) = merge.detach("a").detached
    (ended,) = merge.detach("b", "its rows are none", DetachCause.INVALID_ROW).detached
    assert (left.cause, left.label, left.reason) == (DetachCause.LEFT, "left", "left")
    assert (ended.cause, ended.label, ended.reason) == (DetachCause.INVALID_ROW, "invalid-row", "its rows are none")


def test_an_incarnation_that_a_newer_one_replaces_was_replaced() -> None:
    merge = Merge()
    merge.attach("a", incarnation=3)
    (gone,) = merge.attach("a", incarnation=7).detached
    assert (gone.incarnation, gone.cause, gone.label) == (3, DetachCause.REPLACED, "replaced")
    assert gone.reason == "replaced by incarnation 7"


def test_a_broken_promise_is_counted_by_its_code() -> None:
    merge = Merge()
    merge.attach("a")
    (gone,) = merge.apply("a", Batch.of([Insert(b"x", 9, 8)])).detached
    assert gone.cause is DetachCause.BROKEN_PROMISE
    assert gone.label == "end-before-start"
    assert gone.violation is not None
    assert gone.reason == str(gone.violation)


@pytest.mark.parametrize("member", DetachCause, ids=lambda member: member.name)
def test_a_member_of_a_text_enum_is_its_text_wherever_it_is_shown(member: TextEnum) -> None:
    text = member.value
    assert member == text
    assert (str(member), repr(member), f"{member}", json.dumps(member)) == (text, repr(text), text, json.dumps(text))
    assert {text: "found"}[member] == "found"
