"""Corrupted streams, and the rules of streams by definition: element by element, without SQL."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.core.properties import INSERT_ONLY, KEY, ORDERED, STRICTLY_ORDERED, closure
from lmerge.core.session import format_row
from lmerge.testing.validation.element_table import RecordedStream, stream_of
from lmerge.testing.validation.recorded_lines import read_streams
from lmerge.testing.validation.report import Fault, RecordedVerdict, validated


class BrokenRule(NamedTuple):
    """An element at ``place`` that breaks the rule ``code``, and for unknown events the ends of those that are live."""

    place: int
    code: str
    ends: tuple[int, ...] = ()


def broken_rules(elements: Iterable[Element], promises: Iterable[str] = ()) -> list[BrokenRule]:
    """Return what breaks the rules of one stream, by place. Every element counts in what follows as it came."""
    promised = closure(frozenset(promises))
    broken: list[BrokenRule] = []
    stable, start = NEG_INF, None
    there: dict[tuple[bytes, int], Counter[int]] = {}
    for place, element in enumerate(elements, 1):
        if isinstance(element, Stable):
            if element.vc < stable:
                broken.append(BrokenRule(place, "stable-backwards"))
            stable = max(stable, element.vc)
            continue
        ends = there.setdefault((element.payload, element.vs), Counter())
        if isinstance(element, Insert):
            broken += _of_insert(place, element, stable, start, ends, promised)
            start = element.vs if start is None else max(start, element.vs)
        else:
            broken += _of_adjust(place, element, stable, ends, promised)
            ends[element.vold] = max(0, ends[element.vold] - 1)
        if element.ve > element.vs:
            ends[element.ve] += 1
    return broken


def _of_insert(
    place: int, element: Insert, stable: int, start: int | None, ends: Counter[int], promised: frozenset[str]
) -> Iterable[BrokenRule]:
    if element.ve < element.vs:
        yield BrokenRule(place, "end-before-start")
    elif element.vs < stable:
        yield BrokenRule(place, "insert-below-stable")
    is_strict = STRICTLY_ORDERED in promised
    if ORDERED in promised and start is not None and (element.vs < start or (is_strict and element.vs == start)):
        yield BrokenRule(place, "out-of-order")
    if KEY in promised and element.ve > element.vs >= stable and ends.total():
        yield BrokenRule(place, "duplicate-key")


def _of_adjust(
    place: int, element: Adjust, stable: int, ends: Counter[int], promised: frozenset[str]
) -> Iterable[BrokenRule]:
    if element.ve < element.vs:
        yield BrokenRule(place, "end-before-start")
    elif min(element.vold, element.ve) < stable:
        yield BrokenRule(place, "adjust-below-stable")
    elif not ends[element.vold]:
        yield BrokenRule(place, "unknown-event", tuple(sorted(end for end in ends.elements() if end >= stable)))
    if INSERT_ONLY in promised:
        yield BrokenRule(place, "adjust-not-promised")


def tie_faults(streams: Sequence[Sequence[Element]]) -> list[tuple[int, int]]:
    """Return (stream, place) of inserts that come in another order than on an earlier stream, pair by pair."""
    events = [
        [(place, e) for place, e in enumerate(stream, 1) if isinstance(e, Insert) and e.ve > e.vs] for stream in streams
    ]
    counted = [Counter(e for _, e in stream) for stream in events]
    once = {e for counts in counted for e in counts} - {e for counts in counted for e in counts if counts[e] > 1}
    found = set()
    for number, stream in enumerate(events):
        places = [{e: place for place, e in other if e in once} for other in events[:number]]
        ours = [(place, e) for place, e in stream if e in once]
        for before in places:
            found |= {
                (number, place)
                for place, e in ours
                for later, f in ours
                if e.vs == f.vs and e in before and f in before and place < later and before[e] > before[f]
            }
    return sorted(found)


def corrupted(random: Random, elements: Sequence[Element], faults: int) -> list[Element]:
    """Return the stream with so many random changes: elements dropped, doubled, moved, or with another time."""
    stream = list(elements)
    for _ in range(faults):
        at = random.randrange(len(stream))
        act = random.choice(("drop", "double", "move", "change", "change", "change"))
        element = stream[at]
        if act != "double":
            del stream[at]
        if act in ("double", "move"):
            stream.insert(random.randrange(max(0, at - 12), min(len(stream), at + 12) + 1), element)
        elif act == "change":
            stream.insert(at, changed(random, element))
    return stream


def changed(random: Random, element: Element) -> Element:
    """Return the element with another time, mostly by one unit."""
    times = [value for value in element if isinstance(value, int)]
    at = random.randrange(len(times))
    other = random.choice((times[at] - 1, times[at] + 1, random.randint(0, 60), INF, NEG_INF))
    times[at] = max(NEG_INF, min(INF, other))
    return Stable(*times) if isinstance(element, Stable) else type(element)(element.payload, *times)


def lines_of(elements: Iterable[Element], input_name: str | None = None) -> bytes:
    """Return the lines of a stream as lmerge writes them."""
    return "".join(format_row(row, input_name) + "\n" for row in Batch.of(elements).rows()).encode()


def read(text: bytes | str, only: str | None = None) -> list[RecordedStream]:
    """Return the streams of a file with this text."""
    return read_streams(io.BytesIO(text if isinstance(text, bytes) else text.encode()), only)


def rows_of(stream: RecordedStream) -> list[tuple[object, ...]]:
    """Return the elements of a stream, each as (place, kind, payload, vs, vold, ve)."""
    return [tuple(row.values()) for row in stream.elements.to_pylist()]


def judged(elements: Iterable[Element], *promises: str) -> RecordedVerdict:
    """Return the verdict of one stream."""
    return validated([stream_of(elements, promises=frozenset(promises))])[0]


def found(faults: Iterable[Fault]) -> list[tuple[int, str]]:
    """Return the places and codes of faults."""
    return [(fault.place, fault.code) for fault in faults]
