"""Divergence: no false alarm for equivalent streams, and every difference is found and named in its interval."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from divergence_world import INTERVAL, WatchedInput, intervals_of, monitor, play
from hypothesis import given, settings
from hypothesis import strategies as st

from lmerge.core.batch import Batch
from lmerge.core.divergence.digests import INF_INTERVAL
from lmerge.core.divergence.monitor import AgreementRule, Divergence
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.inputs import InputRole
from lmerge.testing.streams.merge_inputs import MIXED, PLAIN, present, reference

CHANGES = ("lost", "other end", "doubled", "other payload", "never ends")


def changed(random: Random, events: list[Event], change: str) -> tuple[list[Event], Counter[Event]]:
    """Return the TDB of a replica that is wrong about one event, and the difference."""
    at = random.randrange(len(events))
    event = events[at]
    wrong = list(events)
    if change == "lost":
        del wrong[at]
    elif change == "doubled":
        wrong.insert(at, event)
    elif change == "other end":
        wrong[at] = event._replace(ve=event.vs + 1 if event.ve == INF else event.ve + random.choice([1, 3, 40]))
    elif change == "never ends":
        wrong[at] = event._replace(ve=INF if event.ve < INF else event.vs + 7)
    else:
        wrong[at] = event._replace(payload=event.payload + b"!")
    difference = Counter(wrong)
    difference.subtract(Counter(events))
    return sorted(wrong), Counter({e: n for e, n in difference.items() if n})


def attached(
    seed: int, tdbs: dict[str, list[Event]], *, roles: dict[str, InputRole] | None = None, **options: int | bool
) -> list[WatchedInput]:
    watched = monitor(**options)
    inputs = []
    for at, (name, events) in enumerate(tdbs.items()):
        stream = present(Random(seed * 10 + at), events, PLAIN if at == 0 else MIXED)
        inputs.append(WatchedInput(watched, name, stream, (roles or {}).get(name, InputRole.ACTIVE)))
        inputs[-1].attach()
    return inputs


def named(found: list[Divergence]) -> dict[int, set[Event]]:
    """Return the differing events by interval, as last found."""
    return {d.interval: {difference.event for difference in d.findings.differences} for d in found}


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_equivalent_streams_raise_no_alarm_whatever_their_elements(seed: int, restless: bool, starts: bool) -> None:
    random = Random(seed)
    events = reference(random, 60, duplicates=seed % 2 == 0)
    inputs = attached(seed, {"a": events, "b": events, "o": events}, roles={"o": InputRole.OBSERVE}, starts=starts)
    found = play(random, inputs, restless=restless)
    assert found == []
    for report in inputs[0].watched.reports():
        assert report.equal == report.compared
        assert restless or report.compared == len(
            intervals_of(events) | ({e.vs // INTERVAL for e in events} if starts else set())
        )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(CHANGES))
def test_every_difference_is_found_in_exactly_its_intervals_and_named(seed: int, change: str) -> None:
    random = Random(seed)
    events = reference(random, 60, duplicates=True)
    wrong, difference = changed(random, events, change)
    inputs = attached(seed, {"a": events, "b": events, "wrong": wrong})
    found = play(random, inputs)
    expected = intervals_of(list(difference))
    assert set(named(found)) == expected
    last_found = {d.interval: d for d in found}
    for index, divergence in last_found.items():
        assert divergence.outvoted == ("wrong",)
        if index == INF_INTERVAL and divergence.findings.missing:
            continue  # an event without an end is kept no longer than the rest of its batch
        assert divergence.findings.missing == ""
        for found_difference in divergence.findings.differences:
            event, present_in = found_difference.event, found_difference.present
            assert present_in.get("wrong", 0) - present_in.get("a", 0) == difference[event]
        assert {d.event for d in divergence.findings.differences} == {e for e in difference if is_in(e.ve, divergence)}
    reports = {report.name: report for report in inputs[0].watched.reports()}
    assert reports["wrong"].compared - reports["wrong"].equal == len(expected)
    assert reports["a"].compared == reports["a"].equal


def is_in(ve: int, divergence: Divergence) -> bool:
    """Return whether an event with this end belongs to the interval of a divergence."""
    if divergence.interval == INF_INTERVAL:
        return ve == INF
    return divergence.start <= ve < divergence.end


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(CHANGES))
def test_a_wrong_input_that_reconnects_and_skips_is_found_wherever_it_was_compared(seed: int, change: str) -> None:
    """Reconnects and skips leave intervals out; they never add differences."""
    random = Random(seed)
    events = reference(random, 60)
    wrong, difference = changed(random, events, change)
    inputs = attached(seed, {"a": events, "b": events, "wrong": wrong})
    found = play(random, inputs, restless=True)
    assert set(named(found)) <= intervals_of(list(difference))
    for divergence in found:
        for found_difference in divergence.findings.differences:
            assert found_difference.event in difference


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_with_starts_a_lost_event_is_found_when_its_start_is_frozen(seed: int) -> None:
    random = Random(seed)
    events = [e._replace(ve=e.ve + 500) if e.ve < INF else e for e in reference(random, 40)]
    wrong, difference = changed(random, events, "lost")
    (lost,) = difference
    inputs = attached(seed, {"a": events, "b": events, "wrong": wrong}, starts=True)
    found = play(random, inputs)
    first = min(d.interval for d in found)
    assert first == lost.vs // INTERVAL
    assert {(d.event.vs, d.event.payload) for d in found[0].findings.differences} == {(lost.vs, lost.payload)}


def inner(test: Any) -> Any:
    """Return the function that Hypothesis calls with each example."""
    return test.hypothesis.inner_test


@pytest.mark.long
def test_differences_are_found_for_many_seeds(long_seeds: range) -> None:
    for seed in long_seeds:
        for change in CHANGES:
            inner(test_every_difference_is_found_in_exactly_its_intervals_and_named)(seed, change)
            inner(test_a_wrong_input_that_reconnects_and_skips_is_found_wherever_it_was_compared)(seed, change)
        inner(test_with_starts_a_lost_event_is_found_when_its_start_is_frozen)(seed)


def deliver(watched: WatchedInput, *elements: Element) -> None:
    watched.stream += elements
    watched.deliver(len(elements))


def two(**options: int | bool) -> tuple[WatchedInput, WatchedInput]:
    watched = monitor(**options)
    left, right = WatchedInput(watched, "a", []), WatchedInput(watched, "b", [])
    left.attach()
    right.attach()
    return left, right


def test_an_interval_is_compared_only_when_both_stables_have_reached_its_end() -> None:
    a, b = two()
    deliver(a, Insert(b"A", 1, 9), Stable(10))
    deliver(b, Stable(9))
    assert a.watched.settle("ab") == []
    deliver(b, Stable(10))
    (divergence,) = a.watched.settle("ab")
    assert (divergence.start, divergence.end) == (0, 10)


def test_an_end_on_the_boundary_belongs_to_the_later_interval() -> None:
    a, b = two()
    deliver(a, Insert(b"A", 1, 10), Stable(10))
    deliver(b, Stable(10))
    assert a.watched.settle("ab") == []
    deliver(a, Stable(20))
    deliver(b, Stable(20))
    assert [d.interval for d in a.watched.settle("ab")] == [1]


def test_times_below_zero_have_intervals_like_all_others() -> None:
    a, b = two()
    deliver(a, Insert(b"A", -25, -1), Stable(0))
    deliver(b, Insert(b"A", -25, -11), Stable(0))
    assert [(d.interval, d.start, d.end) for d in a.watched.settle("ab")] == [(-2, -20, -10), (-1, -10, 0)]


def test_an_event_delivered_twice_is_not_an_event_delivered_once() -> None:
    a, b = two()
    deliver(a, Insert(b"A", 1, 5), Stable(10))
    deliver(b, Insert(b"A", 1, 5), Insert(b"A", 1, 5), Stable(10))
    (divergence,) = a.watched.settle("ab")
    assert divergence.findings.differences[0].present == {"a": 1, "b": 2}


def test_two_doubled_pairs_do_not_cancel_out() -> None:
    """An exclusive or of the hashes would not find either."""
    a, b = two()
    deliver(a, Insert(b"A", 1, 5), Insert(b"A", 1, 5), Stable(10))
    deliver(b, Insert(b"B", 1, 5), Insert(b"B", 1, 5), Stable(10))
    assert len(a.watched.settle("ab")) == 1


def test_empty_lifetimes_and_removed_events_count_as_nothing() -> None:
    a, b = two()
    deliver(a, Insert(b"E", 3, 3), Insert(b"A", 1, 5), Adjust(b"A", 1, 5, 1), Stable(10))
    deliver(b, Stable(10))
    assert a.watched.settle("ab") == []
    assert a.watched.reports()[0].compared == 0


def test_an_interval_that_begins_before_join_at_is_not_compared() -> None:
    a, b = two()
    b.come_back(join_at=11)
    deliver(a, Insert(b"A", 1, 12), Insert(b"B", 2, 25), Stable(40))
    deliver(b, Insert(b"B", 2, 25), Stable(40))
    assert a.watched.settle("ab") == []
    assert a.watched.reports()[1].compared == 1


def test_a_join_at_on_a_boundary_leaves_nothing_out() -> None:
    a, b = two()
    b.come_back(join_at=10)
    deliver(a, Insert(b"A", 1, 12), Stable(20))
    deliver(b, Stable(20))
    assert len(a.watched.settle("ab")) == 1


def test_what_was_completed_before_a_reconnect_is_still_compared() -> None:
    a, b = two()
    deliver(a, Insert(b"A", 1, 5), Stable(30))
    a.come_back(join_at=30)
    deliver(b, Stable(30))
    assert [d.interval for d in a.watched.settle("ab")] == [0]


def test_what_was_completed_before_a_skip_is_still_compared() -> None:
    a, b = two()
    deliver(a, Insert(b"A", 1, 5), Stable(10))
    a.skip(35)
    deliver(a, Stable(60))
    deliver(b, Insert(b"B", 11, 20), Insert(b"C", 12, 36), Insert(b"D", 12, 45), Stable(60))
    assert [d.interval for d in a.watched.settle("ab")] == [0, 4]


def test_an_observer_is_compared_and_counts_in_no_majority() -> None:
    watched = monitor()
    roles = {name: InputRole.OBSERVE if name in "op" else InputRole.ACTIVE for name in "abop"}
    inputs = [WatchedInput(watched, name, [], role) for name, role in roles.items()]
    for one in inputs:
        one.attach()
    for one in inputs[1:]:
        deliver(one, Insert(b"A", 1, 5), Stable(10))
    deliver(inputs[0], Stable(10))
    (divergence,) = watched.settle("abop")
    assert divergence.majority is None
    assert divergence.outvoted == ()


def test_no_majority_is_seen_before_more_than_half_have_delivered() -> None:
    watched = monitor()
    inputs = [WatchedInput(watched, name, []) for name in "abcd"]
    for one in inputs:
        one.attach()
    for one in inputs[:2]:
        deliver(one, Insert(b"A", 1, 5), Stable(10))
    deliver(inputs[2], Stable(10))
    (divergence,) = watched.settle("abcd")
    assert divergence.outvoted == ()  # d may deliver what c delivers: two against two
    deliver(inputs[3], Insert(b"A", 1, 5), Stable(10))
    (divergence,) = watched.settle("abcd")
    assert divergence.outvoted == ("c",)
    assert watched.divergences == 1


def test_agreement_of_a_majority_and_of_all() -> None:
    watched = monitor()
    inputs = [WatchedInput(watched, name, []) for name in "abc"]
    for one in inputs:
        one.attach()
    deliver(inputs[0], Insert(b"A", 1, 25), Stable(40))
    watched.settle("abc")
    assert watched.agreed_below(NEG_INF, "abc", AgreementRule()) == NEG_INF
    deliver(inputs[1], Insert(b"A", 1, 25), Stable(30))
    watched.settle("abc")
    assert watched.agreed_below(NEG_INF, "abc", AgreementRule()) == 3
    assert watched.agreed_below(NEG_INF, "abc", AgreementRule(all_of_them=True)) == NEG_INF
    deliver(inputs[2], Insert(b"B", 1, 25), Stable(50))
    watched.settle("abc")
    assert watched.agreed_below(NEG_INF, "abc", AgreementRule(all_of_them=True)) == 2
    assert watched.agreed_below(NEG_INF, "abc", AgreementRule()) == 4  # in 3 neither a nor c has an event


def test_certified_intervals_in_a_row_begin_again_after_a_difference() -> None:
    a, b = two()
    for start in range(0, 50, 10):
        deliver(a, Insert(b"A", start, start + 5), Stable(start + 10))
        deliver(b, Insert(b"B" if start == 20 else b"A", start, start + 5), Stable(start + 10))
    a.watched.settle("ab")
    report = a.watched.report("b")
    assert report is not None
    assert (report.compared, report.equal, report.in_row) == (5, 4, 2)
    assert a.watched.beside("b", "a", NEG_INF) == (2, 2)
    assert a.watched.beside("b", "a", 3) == (2, None)
    b.come_back(join_at=50)
    a.watched.settle("ab")
    assert a.watched.beside("b", "a", NEG_INF) == (0, None)  # another life is another program


def test_only_the_last_intervals_are_remembered_and_the_counts_go_on() -> None:
    a, b = two(intervals_kept=4)
    for start in range(0, 200, 10):
        for one in (a, b):
            deliver(one, Insert(b"A", start, start + 5), Stable(start + 10))
        a.watched.settle("ab")
    report = a.watched.report("a")
    assert report is not None
    assert (report.compared, report.equal, report.in_row) == (20, 20, 20)
    late = WatchedInput(a.watched, "late", [])
    late.attach()
    deliver(late, Stable(200))
    assert [d.interval for d in a.watched.settle("ab")] == [16, 17, 18, 19]


def test_too_many_open_intervals_end_the_comparison_of_that_input_and_report_it() -> None:
    a, b = two(open_max=4)
    for at in range(6):
        deliver(a, Insert(b"A", 1, 5 + 10 * at))
    deliver(a, Stable(100))
    deliver(b, Stable(100))
    assert a.watched.settle("ab") == []
    report = a.watched.report("a")
    assert report is not None
    assert "more than 4 intervals of 10 were open at once" in report.problem
    a.come_back(join_at=100)
    report = a.watched.report("a")
    assert report is not None
    assert report.problem == ""


def test_what_is_no_longer_kept_is_reported_missing() -> None:
    a, b = two(evidence_bytes=60)
    for one, payload in ((a, b"A"), (b, b"B")):
        deliver(one, Insert(payload, 1, 5))
        deliver(one, Insert(b"C", 1, 6), Stable(10))
    (divergence,) = a.watched.settle("ab")
    assert divergence.findings.differences == ()
    assert "no longer kept" in divergence.findings.missing
    assert a.watched.evidence_bytes <= 60


def test_batches_of_compared_intervals_are_let_go() -> None:
    a, b = two()
    for start in range(0, 100, 10):
        for one in (a, b):
            deliver(one, Insert(b"A", start, start + 5), Stable(start + 10))
        a.watched.settle("ab")
    assert a.watched.evidence_bytes == 0


def test_no_more_than_sixteen_differences_are_listed() -> None:
    a, b = two()
    deliver(a, *(Insert(b"%02d" % at, 1, 5) for at in range(20)), Stable(10))
    deliver(b, Stable(10))
    (divergence,) = a.watched.settle("ab")
    assert [d.event.payload for d in divergence.findings.differences] == [b"%02d" % at for at in range(16)]
    assert divergence.findings.missing == "4 more events differ"


def test_differences_without_end_stop_being_read() -> None:
    a, b = two()
    for start in range(0, 60, 10):
        deliver(a, Insert(b"A", start, start + 5), Stable(start + 10))
        deliver(b, Insert(b"B", start, start + 5), Stable(start + 10))
        found = a.watched.settle("ab")
    assert "in a row differ" in found[0].findings.missing


@pytest.mark.parametrize("bad", [Insert(b"A", 4, 9), Adjust(b"A", 1, 4, 9), Adjust(b"A", 1, 9, 4), Stable(4)])
def test_what_its_own_stable_forbids_is_an_offender_and_not_taken(bad: Element) -> None:
    watched = monitor()
    watched.attach("a", 1, InputRole.ACTIVE, None)
    batch = Batch.of([Insert(b"A", 1, 9), Stable(5), bad, Stable(20)])
    assert watched.receive("a", batch, batch.count) == 2
    assert watched.stable_point("a") == 5


def test_an_input_that_has_never_attached_delivers_nothing() -> None:
    watched = monitor()
    batch = Batch.of([Stable(5)])
    assert watched.receive("a", batch, 1) is None
    watched.detach("a")
    watched.skipped("a", 5)
    assert watched.report("a") is None


def test_evidence_is_that_of_the_life_that_completed_the_interval() -> None:
    """The live events that a new life delivers again are not counted twice."""
    a, b = two()
    deliver(a, Insert(b"L", 1, 15), Stable(5))
    a.come_back(join_at=5)
    deliver(a, Insert(b"A", 6, 16), Stable(20))
    deliver(b, Insert(b"L", 1, 15), Stable(20))
    (divergence,) = a.watched.settle("ab")
    assert divergence.interval == 1
    assert divergence.findings.missing == ""
    assert [d.event.payload for d in divergence.findings.differences] == [b"A"]
