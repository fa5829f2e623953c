"""What a controller must remember survives as JSON."""

from __future__ import annotations

import json

import pytest

from lmerge_controller.plan.record import (
    ActedFact,
    AttemptStage,
    CutoverAttempt,
    NotedKind,
    NotedState,
    Record,
    RefusedVersion,
    record_of,
)

FULL = Record(
    started_s=10.5,
    serving="v1",
    attempt=CutoverAttempt("v2", "abc", 11.0, AttemptStage.PROMOTING),
    refused=(RefusedVersion("v3", "def", 9.0, "it differed"),),
    noted=(NotedState(NotedKind.LAGGING, "q-v1-0", "7", 8.0),),
    acted=(ActedFact("replica q-v1-0 life 7", 8.5),),
    starts_s=(1.0, 2.0),
)


@pytest.mark.parametrize("record", [FULL, Record(1.0, "v1")])
def test_a_record_survives_as_json(record: Record) -> None:
    assert record_of(json.loads(json.dumps(record.as_json()))) == record


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert record_of({**FULL.as_json(), "newer": 1}) == FULL


@pytest.mark.parametrize(
    "value", [{}, {"started_s": "x", "serving": "v1"}, {"started_s": 1, "serving": "v", "noted": 5}]
)
def test_what_is_no_record_is_refused(value: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        record_of(value)
