"""The shape of the final events: points, and edges by key; and the end of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any, Final

import pytest
from validation_world import found

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import reconstitute
from lmerge.errors import InvalidRow, UsageError
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.generator import generate
from lmerge.testing.streams.merge_inputs import MIXED, present
from lmerge.testing.validation.element_table import stream_of
from lmerge.testing.validation.report import EdgeShape, RecordedVerdict, Shape, validated
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

SCHEMA: Final = parse_schema({"k": "int?", "name": "string?", "v": "int?"})
CODEC: Final = RowCodec(SCHEMA)
BY_K: Final = EdgeShape(SCHEMA, ("k",))
A, B = b"A", b"B"


def row(k: int | None, v: int = 0, name: str | None = None) -> bytes:
    return CODEC.encode({"k": k, "name": name, "v": v})


def shaped(elements: Iterable[Element], shape: Shape) -> RecordedVerdict:
    return validated([stream_of(elements)], shape)[0]


def edges(*events: tuple[Any, int, int]) -> list[Element]:
    """Return inserts of (k, vs, ve); events of one key have different values."""
    return [Insert(row(k, at), vs, ve) for at, (k, vs, ve) in enumerate(events)]


# Points.


@pytest.mark.parametrize(
    ("stream", "places"),
    [
        ([Insert(A, 1, 2), Insert(A, 1, 2), Insert(A, 2, 3)], []),
        ([Insert(A, 1, 2), Insert(A, 2, 4), Insert(A, 4, INF)], [2, 3]),
        ([Insert(A, 1, 9), Adjust(A, 1, 9, 2), Insert(B, 1, 2), Adjust(B, 1, 2, 3)], [4]),
        ([Insert(A, 1, 9), Adjust(A, 1, 9, 1), Insert(A, 3, 3)], []),
        ([Insert(A, NEG_INF, NEG_INF + 1), Insert(A, INF - 1, INF)], []),
        ([Insert(A, NEG_INF, INF)], [1]),
        ([Insert(A, 1, 3), Insert(A, 1, 3)], [2]),
    ],
)
def test_points_last_one_unit_in_the_end(stream: list[Element], places: list[int]) -> None:
    """P2 (6.3): the shape is the one that was specified."""
    verdict = shaped(stream, "point")
    assert found(verdict.faults) == [(place, "no-point") for place in places]
    assert verdict.is_legal is (not places)
    assert shaped(stream, "interval").is_legal


def test_a_fault_of_a_point_gives_the_end_of_the_event() -> None:
    (fault,) = shaped([Insert(A, 1, 2), Adjust(A, 1, 2, INF)], "point").faults
    assert (fault.element, fault.promised, fault.came) == (
        "adjust(A, 1, 2, inf)", "points (Ve = Vs + 1)", "the event lasts until inf"
    )  # fmt: skip


# EdgeShape.


@pytest.mark.parametrize(
    ("stream", "places"),
    [
        (edges((1, 0, 3), (1, 3, 5), (1, 5, INF)), []),
        (edges((1, 5, INF), (1, 0, 3), (1, 3, 5)), []),
        (edges((1, 0, 3), (2, 1, 4), (1, 3, INF), (2, 4, INF)), []),
        (edges((1, 0, INF)), []),
        (edges((1, 0, 3)), [1]),  # the last one must go on
        (edges((1, 0, 2), (1, 3, INF)), [1]),  # a gap
        (edges((1, 0, 4), (1, 3, INF)), [1]),  # an overlap
        (edges((1, 0, INF), (1, 3, INF)), [1]),  # two open events
        (edges((1, 0, INF), (1, 0, INF)), [1]),  # of one start too
        (edges((1, 0, INF), (2, 3, INF)), []),
        (edges((None, 0, 3), (None, 3, INF), (1, 0, INF)), []),
        (edges((None, 0, 2), (None, 3, INF), (1, 2, INF)), [1]),
        (edges((None, 0, INF), (1, 3, INF)), []),
        (edges((1, NEG_INF, 3), (1, 3, INF)), []),
        ([*edges((1, 0, INF)), Adjust(row(1), 0, INF, 3), Insert(row(1, 1), 3, INF)], []),
        ([*edges((1, 0, INF)), Adjust(row(1), 0, INF, 2), Insert(row(1, 1), 3, INF)], [2]),
        ([*edges((1, 0, INF)), Adjust(row(1), 0, INF, 0), Insert(row(1, 1), 3, INF)], []),
        ([Insert(row(1), 0, INF), Insert(row(1), 0, INF)], [2]),  # one event twice
        ([Insert(row(1), 0, 3), Insert(row(1), 3, INF)], []),  # of one payload
    ],
)
def test_edges_follow_each_other_by_key(stream: list[Element], places: list[int]) -> None:
    """P2 (6.3): edges meet end to start, by key."""
    assert found(shaped(stream, BY_K).faults) == [(place, "no-edge") for place in places]


def test_a_fault_of_an_edge_gives_both_ends() -> None:
    (fault,) = shaped([Insert(row(1), 0, 2), Insert(row(1, 1), 3, INF)], BY_K).faults
    assert fault.promised == "edges by k (an event lasts until the next one of its key)"
    assert fault.came == "the event lasts until 2, the next one starts at 3"
    (last,) = shaped([Insert(row(1), 0, 2)], BY_K).faults
    assert last.came == "the event lasts until 2, and no other one of its key starts then"


def test_keys_of_several_columns_are_equal_if_all_are_and_null_is_a_value() -> None:
    by_both = EdgeShape(SCHEMA, ("name", "k"))
    names = [None, "a", "b"]
    legal = [
        Insert(row(k, name=name), vs, ve)
        for k, name in product([None, 1], names)
        for vs, ve in ((0, 3), (3, 7), (7, INF))
    ]
    assert shaped(legal, by_both).is_legal
    assert shaped(legal, BY_K).fault_count == 12  # of three events with one key and start, one lasts until the next
    assert found(shaped([*legal[:4], *legal[5:]], by_both).faults) == [(4, "no-edge")]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("float?", [None, 0.5, float("nan"), float("inf")]),
        ("string", ["", "a", "\u00e9"]),
        ("bytes", [b"", b"\xff"]),
        ("decimal(2)", [Decimal("1.00"), Decimal("1.01")]),
        ("list<int?>", [[], [1], [None], [1, 2]]),
        ("bool?", [True, False, None]),
    ],
)
def test_keys_are_of_any_type(column: str, values: Sequence[Any]) -> None:
    schema = parse_schema({"key0": column, "payload": "int"})  # names of the tables that judge are free for columns
    codec = RowCodec(schema)
    stream = [
        Insert(codec.encode({"key0": value, "payload": at}), vs, ve)
        for value in values
        for at, (vs, ve) in enumerate(((0, 3), (3, INF)))
    ]
    assert shaped(stream, EdgeShape(schema, ("key0",))).is_legal
    one = [element for at, element in enumerate(stream) if at != 1]
    assert found(shaped(one, EdgeShape(schema, ("key0",))).faults) == [(1, "no-edge")]


def no_edges(events: Sequence[Event]) -> int:
    """Return how many events do not last until the next one of their key, by definition."""
    keys = [CODEC.decode(event.payload)["k"] for event in events]
    count = 0
    for key in set(keys):
        ours = sorted((event for event, k in zip(events, keys, strict=True) if k == key), key=lambda e: (e.vs, e.ve))
        starts = [event.vs for event in ours[1:]] + [INF]
        count += sum(event.ve != start for event, start in zip(ours, starts, strict=True))
    return count


def test_random_edges_have_as_many_faults_as_by_definition() -> None:
    random = Random(7)
    streams, expected = [], []
    for _ in range(60):
        events: list[Event] = []
        for k in (None, 1, 2):
            times = sorted(random.sample(range(30), random.randint(1, 5)))
            for at, (vs, ve) in enumerate(zip(times, [*times[1:], INF], strict=True)):
                end = ve if random.random() < 0.85 else random.choice((vs + 1, vs + 4, INF))
                if random.random() < 0.95:
                    events.append(Event(vs, row(k, at), end))
        stream = present(random, sorted(events), replace(MIXED, revised=0.7))
        assert no_edges(reconstitute(stream)) == no_edges(events)
        streams.append(stream_of(stream))
        expected.append(no_edges(events))
    assert [verdict.fault_count for verdict in validated(streams, BY_K)] == expected
    assert 0 < expected.count(0) < 40


@pytest.mark.parametrize("seed", range(3))
def test_generated_edges_are_edges_by_their_key(seed: int) -> None:
    generated = generate(
        Facets(shape="edge", contact="back-to-back", disorder="highly", revisions="all"),
        {"k": "int", "v": "int?"},
        seed,
    )
    schema = parse_schema({"k": "int", "v": "int?"})
    verdict = shaped(generated.elements, EdgeShape(schema, ("k",)))
    assert verdict.is_legal, verdict.faults
    assert verdict.events > 10


def test_streams_have_edges_of_their_own() -> None:
    one, other = edges((1, 0, 3), (1, 3, INF)), edges((1, 3, INF))
    assert all(verdict.is_legal for verdict in validated([stream_of(one), stream_of(other)], BY_K))
    verdicts = validated([stream_of(other), stream_of(edges((1, 0, 3)))], BY_K)
    assert [verdict.fault_count for verdict in verdicts] == [0, 1]


def test_a_payload_that_is_no_row_is_named_with_its_line() -> None:
    stream: list[Element] = [Insert(row(1), 0, INF), Insert(b"A", 1, 2), Insert(b"B", 1, 2)]
    with pytest.raises(InvalidRow, match=r"^stream, line 2: the payload is "):
        shaped(stream, BY_K)
    gone = [*stream[:2], Adjust(b"A", 1, 2, 1)]
    assert shaped(gone, BY_K).is_legal  # only the final events are rows


def test_an_empty_stream_has_any_shape() -> None:
    shapes: tuple[Shape, ...] = ("interval", "point", BY_K)
    for shape in shapes:
        assert shaped([], shape).is_legal


def test_edges_need_columns_that_are_there() -> None:
    with pytest.raises(UsageError, match="no column 'z'; the columns are k, name, v"):
        EdgeShape(SCHEMA, ("k", "z"))
    with pytest.raises(UsageError, match="no key"):
        EdgeShape(SCHEMA, ())


# The end.


def test_a_stream_must_end_with_a_stable_at_infinity() -> None:
    streams = [
        stream_of([Insert(A, 1, 2), Stable(INF)]),
        stream_of([Stable(5), Insert(A, 5, 6)]),
        stream_of([]),
        replace(stream_of([Stable(5)]), is_replaced=True),
    ]
    verdicts = validated(streams, must_end=True)
    assert [found(verdict.faults) for verdict in verdicts] == [[], [(2, "not-ended")], [(0, "not-ended")], []]
    (fault,), (empty,) = verdicts[1].faults, verdicts[2].faults
    assert (fault.element, fault.stream, fault.promised) == ("insert(A, 5, 6)", 1, "to end with stable(inf)")
    assert empty.element == "no element"
    assert [verdict.fault_count for verdict in verdicts] == [0, 1, 1, 0]
    assert all(verdict.is_legal for verdict in validated(streams))


def test_a_stream_that_was_stable_at_infinity_has_ended_though_another_stable_came() -> None:
    assert found(validated([stream_of([Stable(INF), Stable(3)])], must_end=True)[0].faults) == [(2, "stable-backwards")]
