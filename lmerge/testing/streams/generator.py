"""Tables of events and physical streams of them, from facets, a schema and a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final

from lmerge.core.elements import INF, Element, Event
from lmerge.temporal.row_forms import RowForms
from lmerge.testing.streams.arrivals import arrivals
from lmerge.testing.streams.draws import Draw
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.lifetimes import FIRST_START, MIXED, lifetimes
from lmerge.testing.streams.payloads import FEW, SEVERAL, key_number, random_row
from lmerge.wire.schema import Schema, SchemaLike, parse_schema

ROWS_TRIED: Final = 30
"""How many rows are drawn for a lifetime that equal events have, before the event is left out."""
COPIED: Final = 0.25
"""How often an event is there several times, if it may be."""


@dataclass(frozen=True)
class GeneratedStream:
    """A table of events, in order of start, and a legal stream that means it. Payloads are rows of ``schema``."""

    schema: Schema
    events: list[Event]
    elements: list[Element]


def generate(facets: Facets, schema: SchemaLike, seed: int) -> GeneratedStream:
    """Return a table and a stream of it. Equal arguments give equal bytes.

    Raises UsageError for facets that the schema has no columns for.
    """
    parsed = parse_schema(schema)
    events = table(facets, parsed, seed)
    return GeneratedStream(parsed, events, presented(events, facets, parsed, seed))


def table(facets: Facets, schema: Schema, seed: int) -> list[Event]:
    """Return the events alone, in order of start, payload and end."""
    random = Draw(f"table {seed}")
    forms = RowForms(schema)
    numbered = _edges(random, facets) if facets.shape == "edge" else _intervals(random, facets)
    found: list[Event] = []
    seen: set[Event] = set()
    for key, (vs, ve) in numbered:
        rows = (random_row(random, schema, key, facets.values) for _ in range(ROWS_TRIED))
        drawn = (Event(vs, forms.payload(row), ve) for row in rows)
        event = next((one for one in drawn if one not in seen), None)
        if event is None:  # the schema has no further row for this lifetime
            continue
        seen.add(event)
        copies = 2 + random.randrange(2) if facets.duplicates == "events" and random.random() < COPIED else 1
        found += [event] * copies
    return sorted(found)


def presented(events: Sequence[Event], facets: Facets, schema: Schema, seed: int) -> list[Element]:
    """Return a stream that means ``events``; other seeds or facets of arrival give other streams of one table."""
    random = Draw(f"arrivals {seed}")
    forms = RowForms(schema)

    def invented(number: int) -> bytes:
        return forms.payload(random_row(random, schema, 1_000 + number, "plain"))

    return arrivals(random, events, facets, invented)


def _intervals(random: Random, facets: Facets) -> list[tuple[int, tuple[int, int]]]:
    spans = lifetimes(random, facets)
    return [(key_number(random, facets.keys, at), span) for at, span in enumerate(spans)]


def _edges(random: Random, facets: Facets) -> list[tuple[int, tuple[int, int]]]:
    """Return events that follow each other by key, end to start; the last one of each key is open."""
    keys = facets.alive or (1 if facets.overlap == "low" else FEW if facets.keys == "few" else SEVERAL)
    starts: dict[int, list[int]] = {}
    latest = [FIRST_START + random.randrange(3) for _ in range(keys)]
    for at in range(facets.events):
        key = key_number(random, facets.keys, at) % keys if keys > 1 else 0
        starts.setdefault(key, []).append(latest[key])
        latest[key] += random.randrange(1, MIXED)
    found = []
    for key, begun in sorted(starts.items()):
        found += [(key, span) for span in pairwise([*begun, INF])]
    return found
