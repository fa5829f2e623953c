"""The judge finds planted loss, duplicates and contradictions, and finds nothing in a right stream."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from drill_world import TRUTH, adjust, insert, right_stream, stable

from lmerge_controller.drill.judging.judge import FLAWS_KEPT_MAX, DeliveredElement, ProbeFindings, ProbeJudge

COUNT = 60


def judged(elements: list[DeliveredElement], expected: int = COUNT) -> ProbeFindings:
    judge = ProbeJudge(TRUTH)
    for at, element in enumerate(elements):
        judge.take([element], float(at))
    return judge.findings(expected)


def wrong(findings: ProbeFindings) -> dict[str, int]:
    return {kind: count for kind, count in findings.counts if count}


def place_of(elements: list[DeliveredElement], number: int) -> int:
    """Return the place of the insert of an event."""
    payload = TRUTH.event(number).payload
    return next(at for at, element in enumerate(elements) if (element.kind, element.payload) == ("insert", payload))


def test_a_right_stream_is_right() -> None:
    elements = right_stream(COUNT)
    assert any(element.kind == "adjust" for element in elements)
    findings = judged(elements)
    assert findings.is_right
    assert wrong(findings) == {}
    assert (findings.delivered, findings.elements, findings.flaws) == (COUNT, len(elements), ())
    assert findings.arrivals_s == tuple(map(float, range(len(elements))))


@pytest.mark.parametrize("number", [0, 17, COUNT - 1])
def test_a_planted_loss_is_found(number: int) -> None:
    elements = [element for element in right_stream(COUNT) if element.payload != TRUTH.event(number).payload]
    findings = judged(elements)
    assert wrong(findings) == {"lost": 1}
    assert findings.flaws[0].text.startswith(f"event {number} ")
    assert not findings.is_right


@pytest.mark.parametrize("number", [0, 17, COUNT - 1])
def test_a_planted_duplicate_is_found(number: int) -> None:
    elements = right_stream(COUNT)
    place = place_of(elements, number)
    assert wrong(judged([*elements[: place + 1], elements[place], *elements[place + 1 :]]))["duplicated"] == 1


def test_a_copy_of_a_frozen_event_is_a_contradiction() -> None:
    elements = right_stream(COUNT)
    findings = judged([*elements, elements[place_of(elements, 3)]])
    assert wrong(findings) == {"contradictions": 1}
    assert findings.flaws[0].at_s == float(len(elements))


def test_a_change_of_a_frozen_event_is_a_contradiction() -> None:
    event = TRUTH.event(3)
    elements = [*right_stream(COUNT), adjust(event, event.ve, TRUTH.end(COUNT) + 1)]
    assert wrong(judged(elements)) == {"contradictions": 1}


def test_the_boundary_of_the_frozen_is_that_of_the_paper() -> None:
    """III.C: an event with Ve < Vc is frozen, one with Ve = Vc is not; an insert at Vs = Vc is legal."""
    event, other = TRUTH.event(0), TRUTH.event(1)
    judge = ProbeJudge(TRUTH)
    judge.take([insert(event), stable(event.ve)], 0.0)
    judge.take([adjust(event, event.ve, event.ve + 5), adjust(event, event.ve + 5, event.ve)], 1.0)
    assert judge.findings(1).contradictions == 0
    judge.take([stable(event.ve + 1), adjust(event, event.ve, event.ve + 5)], 2.0)
    assert judge.findings(1).contradictions == 1
    judge = ProbeJudge(TRUTH)
    judge.take([stable(other.vs), insert(other)], 0.0)
    assert judge.findings(0).contradictions == 0
    judge.take([insert(event)], 0.0)
    assert judge.findings(0).contradictions == 1


def test_an_end_before_the_stable_point_is_a_contradiction() -> None:
    event = TRUTH.event(0)
    judge = ProbeJudge(TRUTH)
    judge.take([insert(event), stable(event.ve - 3), adjust(event, event.ve, event.ve - 4)], 0.0)
    assert judge.findings(1).contradictions == 1


def test_a_stable_point_that_goes_back_is_a_contradiction() -> None:
    elements = right_stream(COUNT)
    assert wrong(judged([*elements, stable(elements[-1].vs - 1)])) == {"contradictions": 1}
    assert wrong(judged([*elements, elements[-1]])) == {}


def test_an_adjust_of_an_event_that_never_came_is_a_contradiction() -> None:
    event = TRUTH.event(COUNT + 40)
    assert wrong(judged([*right_stream(COUNT), adjust(event, event.ve, event.ve + 1)])) == {"contradictions": 1}


def test_a_wrong_end_is_found_once_it_is_frozen() -> None:
    event = TRUTH.event(5)
    elements = right_stream(COUNT)
    place = place_of(elements, 5)
    elements = [element for element in elements if element.payload != event.payload]
    assert wrong(judged([*elements[:place], insert(event, event.ve + 7), *elements[place:]])) == {"wrong end": 1}


def test_an_event_that_the_truth_does_not_have_is_found() -> None:
    event = TRUTH.event(COUNT + 40)._replace(payload="probe-0123456789abcdef-100")
    elements = right_stream(COUNT)
    assert wrong(judged([insert(event), *elements])) == {"invented": 1}
    assert wrong(judged([insert(TRUTH.event(COUNT)), *elements])) == {"invented": 1}


def test_an_event_that_was_removed_is_lost() -> None:
    elements = right_stream(COUNT)
    place = place_of(elements, 7)
    event = TRUTH.event(7)
    removed = [*elements[: place + 1], adjust(event, elements[place].ve, event.vs), *elements[place + 1 :]]
    rest = [element for at, element in enumerate(removed) if at <= place + 1 or element.payload != event.payload]
    assert wrong(judged(rest)) == {"lost": 1}


def test_what_the_stable_point_has_not_passed_is_unfinished_and_not_lost() -> None:
    findings = judged([*right_stream(COUNT)[:-1]][:40])
    assert findings.lost == 0
    assert findings.unfinished > 0
    assert not findings.is_right


def test_flaws_are_bounded_and_counts_are_not() -> None:
    findings = judged([stable(TRUTH.end(COUNT))])
    assert findings.lost == COUNT
    assert len(findings.flaws) == FLAWS_KEPT_MAX


def test_findings_do_not_depend_on_when_they_are_asked_for() -> None:
    elements = right_stream(COUNT)
    judge = ProbeJudge(TRUTH)
    for element in [*elements, stable(0)]:
        judge.take([element], 0.0)
        judge.findings(COUNT)
    assert wrong(judge.findings(COUNT)) == {"contradictions": 1}
    assert judge.findings(COUNT) == judge.findings(COUNT)


def damaged(seed: int) -> Iterator[tuple[str, list[DeliveredElement]]]:
    """Yield streams with one random fault each."""
    chance = random.Random(seed)
    elements = right_stream(COUNT, salt=seed)
    inserts = [at for at, element in enumerate(elements) if element.kind == "insert"]
    at = chance.choice(inserts)
    lost = elements[at].payload
    yield "lost", [element for element in elements if element.payload != lost]
    yield "duplicated", [*elements[:at], elements[at], *elements[at:]]
    yield "contradictions", [*elements, elements[at]]
    back = chance.choice([at for at, element in enumerate(elements) if element.kind == "stable"][1:])
    yield "contradictions", [*elements[: back + 1], stable(elements[back].vs - 1), *elements[back + 1 :]]


@pytest.mark.parametrize("seed", range(25))
def test_every_planted_fault_is_found_wherever_it_is(seed: int) -> None:
    assert judged(right_stream(COUNT, salt=seed)).is_right
    for kind, elements in damaged(seed):
        assert kind in wrong(judged(elements)), kind


def test_the_truth_recognises_its_own_events_only() -> None:
    event = TRUTH.event(12)
    assert TRUTH.number_of(event.payload, event.vs) == 12
    assert TRUTH.number_of(event.payload, event.vs + 1) is None
    assert TRUTH.number_of(event.payload.replace("-12", "-13"), TRUTH.event(13).vs) is None
    assert TRUTH.number_of("flight", event.vs) is None
    assert TRUTH.due(TRUTH.start(4)) == 5
    assert TRUTH.due(TRUTH.start(4) - 1) == 4
    assert TRUTH.due(TRUTH.origin_us - 1) == 0
    assert all(TRUTH.event(number).ve < TRUTH.end(COUNT) for number in range(COUNT))
