"""Bad input at the core: the error, the element, the end of that input only; the others continue."""

from __future__ import annotations

import pytest
from core_world import a, f, m

from lmerge.core.batch import Batch
from lmerge.core.elements import Element
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import snapshot_of
from lmerge.errors import PropertiesTooWeak, UnknownInput, UsageError
from lmerge.testing.merges.declared import R0_PROMISES, R1_PROMISES, R2_PROMISES

KEY = ("key",)
CASES: dict[str, tuple[tuple[str, ...], list[Element], Element, str]] = {
    "insert that ends before it starts": (KEY, [], a("X", 9, 8), "end-before-start"),
    "adjust that ends before it starts": (KEY, [a("X", 9, 12)], m("X", 9, 12, 8), "end-before-start"),
    "insert below its own stable": (KEY, [f(10)], a("X", 9, 12), "insert-below-stable"),
    "adjust of an unknown event": (KEY, [], m("X", 20, 25, 26), "unknown-event"),
    "adjust of another end": (KEY, [a("X", 20, 25)], m("X", 20, 24, 26), "unknown-event"),
    "adjust of a removed event": (KEY, [a("X", 20, 25), m("X", 20, 25, 20)], m("X", 20, 25, 26), "unknown-event"),
    "adjust with Vold below stable": (KEY, [a("X", 5, 8), f(10)], m("X", 5, 8, 12), "adjust-below-stable"),
    "adjust with Ve below stable": (KEY, [a("X", 5, 18), f(10)], m("X", 5, 18, 9), "adjust-below-stable"),
    "removal of a half-frozen event": (KEY, [a("X", 5, 18), f(10)], m("X", 5, 18, 5), "adjust-below-stable"),
    "duplicate key under R3": (KEY, [a("X", 5, 18)], a("X", 5, 20), "duplicate-key"),
    "duplicate key under R2": (R2_PROMISES, [a("X", 5, 18)], a("X", 5, 18), "duplicate-key"),
    "order broken under R0 by a tie": (R0_PROMISES, [a("X", 5, 18)], a("Y", 5, 18), "out-of-order"),
    "order broken under R0": (R0_PROMISES, [a("X", 5, 18)], a("Y", 4, 18), "out-of-order"),
    "order broken under R1": (R1_PROMISES, [a("X", 5, 18)], a("Y", 4, 18), "out-of-order"),
    "order broken under R2": (R2_PROMISES, [a("X", 5, 18)], a("Y", 4, 18), "out-of-order"),
    "order promised under R3": ((*KEY, "ordered"), [a("X", 5, 18)], a("Y", 4, 18), "out-of-order"),
    "adjust under R1": (R1_PROMISES, [a("X", 5, 18)], m("X", 5, 18, 20), "adjust-not-promised"),
    "stable going back": (KEY, [f(10)], f(9), "stable-backwards"),
    "stable going back under R0": (R0_PROMISES, [f(10)], f(9), "stable-backwards"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_offender_is_named_and_ends_alone(name: str) -> None:
    promises, before, offender, code = CASES[name]
    merge = Merge()
    merge.attach("good", promises)
    merge.attach("bad", promises)
    merge.apply("bad", Batch.of(before))
    outcome = merge.apply("bad", Batch.of([offender, a("never", 40, 41)]))
    merge.check()
    (detached,) = outcome.detached
    assert detached.input == "bad"
    assert detached.violation is not None
    assert detached.violation.code == code
    assert str(offender) in detached.reason
    assert "promised" in detached.reason
    assert not merge.is_attached("bad")
    assert all(b"never" not in e.payload for e in outcome.batch.elements() if not isinstance(e, type(f(0))))
    assert merge.apply("bad", Batch.of([a("never", 50, 51)])).refused == 1
    assert a("on", 60, 61) in merge.apply("good", Batch.of([a("on", 60, 61)])).batch.elements()


def test_the_elements_before_the_offender_are_merged() -> None:
    merge = Merge()
    merge.attach("x", KEY)
    outcome = merge.apply("x", Batch.of([a("A", 1, 5), f(1), a("B", 0, 5), a("C", 2, 5)]))
    assert list(outcome.batch.elements()) == [a("A", 1, 5), f(1)]
    assert outcome.detached[0].violation is not None
    assert outcome.detached[0].violation.index == 2
    assert merge.received == (1, 0, 1)


def test_ties_in_another_order_are_found_out_under_r1() -> None:
    merge = Merge()
    for name in ("x", "y"):
        merge.attach(name, R1_PROMISES)
    merge.apply("x", Batch.of([a("A", 1, 5), a("B", 1, 5)]))
    outcome = merge.apply("y", Batch.of([a("B", 1, 5), a("A", 1, 5)]))
    assert outcome.batch.count == 0
    assert outcome.detached[0].violation is not None
    assert outcome.detached[0].violation.code == "ties-differ"


def test_a_waiting_input_that_breaks_its_key_is_the_one_that_ends() -> None:
    """Its elements are merged when another input's stable lets it join; the other input must not end."""
    merge = Merge(MergeConfig("r2"))
    merge.attach("x", R2_PROMISES)
    merge.attach("late", R2_PROMISES, join_at=5)
    merge.apply("late", Batch.of([a("A", 6, 9), a("A", 6, 9)]))
    outcome = merge.apply("x", Batch.of([f(5), a("B", 7, 9)]))
    assert [d.input for d in outcome.detached] == ["late"]
    assert merge.is_attached("x")
    assert a("B", 7, 9) in outcome.batch.elements()
    merge.check()


def test_an_observer_is_checked_and_never_merged() -> None:
    merge = Merge()
    merge.attach("x", KEY)
    merge.attach("new", KEY, role="observe")
    assert merge.apply("new", Batch.of([a("A", 1, 5), f(3)])).batch.count == 0
    assert merge.apply("x", Batch.of([a("B", 1, 5)])).batch.count == 1
    outcome = merge.apply("new", Batch.of([a("C", 2, 5)]))
    assert outcome.detached[0].violation is not None
    assert outcome.detached[0].violation.code == "insert-below-stable"


def test_an_unknown_input_is_a_usage_error() -> None:
    merge = Merge()
    with pytest.raises(UnknownInput, match="'missing'"):
        merge.apply("missing", Batch.of([f(1)]))
    with pytest.raises(UnknownInput, match="'missing'"):
        merge.detach("missing")


def test_what_cannot_be_asked_for_is_refused_and_changes_nothing() -> None:
    merge = Merge(MergeConfig("r2"))
    before = snapshot_of(merge)
    with pytest.raises(UsageError, match="unknown property"):
        merge.attach("x", ("fast",))
    with pytest.raises(UsageError, match="unknown role"):
        merge.attach("x", R2_PROMISES, role="boss")
    with pytest.raises(PropertiesTooWeak, match="fixed to r2"):
        merge.attach("x", ("key",))
    assert snapshot_of(merge) == before
    with pytest.raises(UsageError, match="needs r3 or r4"):
        Merge(MergeConfig("r1", "final-only"))
    with pytest.raises(UsageError, match="unknown algorithm"):
        Merge(MergeConfig("r9"))
    with pytest.raises(UsageError, match="downgraded"):
        Merge(MergeConfig("r1", allow_downgrade=True))
    huge = "9" * 20
    for policy in ("", "laziest", "quorum:", "quorum:0", "quorum:x", "lazy+lag:", "lazy+lag:-1", f"quorum:{huge}"):
        with pytest.raises(UsageError):
            Merge(MergeConfig(policy=policy))
    for closing in ("", "none", "quorum:0"):
        with pytest.raises(UsageError):
            Merge(MergeConfig(closing=closing))
