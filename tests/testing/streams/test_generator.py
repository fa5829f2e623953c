"""The generator as a whole: legal for every pair of words, rows of every type, equal bytes for equal seeds."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import pytest
from covertable import make

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.session import format_row
from lmerge.core.tdb import reconstitute
from lmerge.errors import UsageError
from lmerge.temporal.row_forms import RowForms
from lmerge.testing.streams.batches import batched, every_interleaving, interleaved
from lmerge.testing.streams.facets import FACET_LEVELS, Facets
from lmerge.testing.streams.generator import generate
from lmerge.testing.streams.patterns import PATTERNS, Span
from lmerge.wire.schema import parse_schema

EVERY_TYPE: Final = {
    "k": "string",
    "flag": "bool?",
    "n": "int?",
    "x": "float?",
    "rounded": "float(2)",
    "d": "decimal(2)?",
    "t": "timestamp?",
    "day": "date?",
    "raw": "bytes?",
    "list": "list<int?>",
    "place?": {"city": "string?", "gate": "int"},
}
GOLDEN: Final = Path(__file__).parent / "golden.json"


def facets_of(row: dict[str, str]) -> Facets | None:
    try:
        return Facets.from_json(row)
    except UsageError:
        return None


def test_every_pair_of_levels_gives_legal_streams_of_the_table() -> None:
    rows = make({name: list(levels) for name, levels in FACET_LEVELS.items()}, strength=2, salt="lmerge")
    legal = [facets for row in rows if (facets := facets_of(row))]
    assert len(legal) >= 10
    for seed, facets in enumerate(legal):
        for base in (facets, Facets.from_json({**facets.to_json(), "liveliness": "tight", "disorder": "highly"})):
            stream = generate(base, EVERY_TYPE, seed)
            assert reconstitute(stream.elements) == stream.events, facets


def test_rows_of_every_type_are_rows_of_the_schema() -> None:
    forms = RowForms(parse_schema(EVERY_TYPE))
    for values in FACET_LEVELS["values"]:
        seen: list[set[object]] = [set() for _ in EVERY_TYPE]
        for seed in range(20):
            for event in generate(Facets(values=values, duration="short", overlap="low"), EVERY_TYPE, seed).events:
                row = forms.of_payload(event.payload)
                assert forms.payload(row) == event.payload
                for place, value in enumerate(row):
                    seen[place].add(value)
        assert all(None in column for column, name in zip(seen, EVERY_TYPE) if str(EVERY_TYPE[name]).endswith("?"))
        if values == "extreme":
            assert {INF, NEG_INF} <= seen[2]
            assert max(len(one) for one in seen[8] if isinstance(one, bytes)) == 64 * 1024


@pytest.mark.parametrize("keys", FACET_LEVELS["keys"])
def test_keys_are_distributed_as_the_level_means(keys: str) -> None:
    counts: Counter[bytes] = Counter()
    for event in generate(Facets(events=800, keys=keys, duration="short", overlap="low"), {"k": "int"}, 1).events:
        counts[event.payload] += 1
    often = [count for _, count in counts.most_common()]
    if keys == "unique":
        assert often == [1] * 800
    elif keys == "zipf":
        assert len(often) == 8
        assert often[0] > 4 * often[-1]
    else:
        assert len(often) == {"few": 3, "uniform": 8}[keys]
        assert often[-1] > 0.6 * often[0]


def test_no_two_events_are_equal_by_chance() -> None:
    for seed in range(20):
        events = generate(Facets(duration="point", overlap="high", keys="few"), {"k": "int"}, seed).events
        assert len(events) == len(set(events)) >= 1


def test_edge_events_of_a_key_follow_each_other() -> None:
    schema = {"k": "int"}
    for seed in range(50):
        by_key: dict[bytes, list[Span]] = {}
        for event in generate(Facets(shape="edge", contact="back-to-back"), schema, seed).events:
            by_key.setdefault(event.payload, []).append((event.vs, event.ve))
        for spans in by_key.values():
            assert [end for _, end in spans] == [*(start for start, _ in spans[1:]), INF]


def test_equal_seeds_give_equal_bytes_and_others_do_not(request: pytest.FixtureRequest) -> None:
    found = {}
    for seed in range(20):
        row = {name: levels[seed % len(levels)] for name, levels in FACET_LEVELS.items()}
        facets = facets_of(row) or Facets(disorder=row["disorder"], revisions=row["revisions"], values=row["values"])
        lines = [format_row(row) for row in Batch.of(generate(facets, EVERY_TYPE, seed).elements).rows()]
        found[str(seed)] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert len(set(found.values())) == 20
    if request.config.getoption("--rewrite"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(GOLDEN.read_text()), "the generator gives other bytes: saved scenarios mean others now"


# Patterns.


@pytest.mark.parametrize("name", PATTERNS.names())
def test_a_pattern_gives_as_many_lifetimes_as_asked(name: str) -> None:
    for seed in range(20):
        for count in (1, 2, 17):
            spans = PATTERNS.find(name)(Random(seed), count)
            assert len(spans) == count
            assert all(start < end for start, end in spans)
        stream = generate(Facets(pattern=name, disorder="highly", revisions="all"), {"k": "int"}, seed)
        assert reconstitute(stream.elements) == stream.events


def test_a_testers_own_pattern_is_known_by_its_name() -> None:
    def stairs_down(random: Random, count: int) -> list[Span]:
        return [(at, 100 - at) for at in range(count)]

    PATTERNS.register("stairs-down", stairs_down)
    try:
        events = generate(Facets(pattern="stairs-down", events=3), {"k": "int"}, 1).events
        assert [(event.vs, event.ve) for event in events] == [(0, 100), (1, 99), (2, 98)]
        with pytest.raises(UsageError, match="there is a pattern of lifetimes 'stairs-down' already: this process"):
            PATTERNS.register("stairs-down", stairs_down)
    finally:
        PATTERNS.forget("stairs-down")
    with pytest.raises(UsageError, match="there is no pattern of lifetimes 'stairs-down'; there are periodic"):
        generate(Facets(pattern="stairs-down"), {"k": "int"}, 1)


# Batches.


@pytest.mark.parametrize("level", FACET_LEVELS["interleaving"])
@pytest.mark.parametrize("batching", FACET_LEVELS["batching"])
def test_batches_have_all_elements_of_each_input_in_order(level: str, batching: str) -> None:
    for seed in range(20):
        inputs = {name: generate(Facets(), {"k": "int"}, seed + at).elements for at, name in enumerate("abc")}
        batches = batched(Random(seed), inputs, level, batching)
        for name, elements in inputs.items():
            assert [one for batch in batches if batch.name == name for one in batch.elements] == list(elements)
        assert all(batch.elements for batch in batches)
        if batching == "one":
            assert {len(batch.elements) for batch in batches} == {1}


def test_interleavings_are_as_their_levels_mean() -> None:
    sizes = {"a": 40, "b": 40}
    assert interleaved(Random(1), sizes, "lockstep")[:4] == ["a", "b", "a", "b"]
    assert interleaved(Random(1), sizes, "idle")[-30:] == ["b"] * 30
    first = interleaved(Random(1), sizes, "ended-first")
    assert first[:40] == [first[0]] * 40
    skewed = interleaved(Random(1), sizes, "skewed")[:40]
    assert skewed.count("a") > 30
    assert len({tuple(interleaved(Random(seed), sizes, "random")) for seed in range(5)}) == 5


def test_every_interleaving_of_few_elements_is_there_once() -> None:
    every = list(every_interleaving(3, 4))
    assert len(every) == len({tuple(one) for one in every}) == 35
    assert all(sum(one) == 3 for one in every)
