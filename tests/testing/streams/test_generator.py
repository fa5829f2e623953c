"""The generator as a whole: legal for every pair of words, rows of every type, equal bytes for equal seeds."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from importlib.metadata import EntryPoint
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Final

import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Stable
from lmerge.core.session import format_row
from lmerge.core.tdb import reconstitute
from lmerge.errors import UsageError
from lmerge.temporal.row_forms import RowForms
from lmerge.testing import registry
from lmerge.testing.streams.batches import batched, interleavings
from lmerge.testing.streams.draws import Draw
from lmerge.testing.streams.facets import FACET_LEVELS, FURTHER_LEVELS, Facets, facet_misfit
from lmerge.testing.streams.generator import generate
from lmerge.testing.streams.measures import BatchMeasures, measured_batches, measured_columns
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
SEEDS, EVERY = 1000, 25
GOLDEN: Final = Path(__file__).parent / "golden.json"


def facets_of(row: dict[str, str]) -> Facets | None:
    try:
        return Facets.from_json(row)
    except UsageError:
        return None


LEVELS: Final = {name: (*levels, *FURTHER_LEVELS.get(name, ())) for name, levels in FACET_LEVELS.items()}


def completed(given: dict[str, str], turn: int) -> dict[str, str]:
    """Return words of all facets that fit: the given ones, and of each other facet the first from ``turn`` on.

    Words of a facet that nothing fits to are left out.
    """
    for name, levels in LEVELS.items():
        if name not in given:
            turned = (levels[(turn + at) % len(levels)] for at in range(len(levels)))
            fitting = (
                level for level in turned if not any(facet_misfit(name, level, *other) for other in given.items())
            )
            level = next(fitting, None)
            given = given if level is None else {**given, name: level}
    return given


def test_every_pair_of_levels_gives_legal_streams_of_the_table() -> None:
    seen: set[frozenset[tuple[str, str]]] = set()
    pairs = [
        ((one, level), (other, other_level))
        for one, other in combinations(LEVELS, 2)
        for level, other_level in product(LEVELS[one], LEVELS[other])
        if not facet_misfit(one, level, other, other_level)
    ]
    for seed, pair in enumerate(pairs):
        if frozenset(pair) in seen:
            continue
        tried = (completed(dict(pair), seed + turn) for turn in range(20))
        levels = next(levels for levels in tried if facets_of(levels))
        seen.update(map(frozenset, combinations(levels.items(), 2)))
        stream = generate(Facets.from_json({**levels, "events": 12}), EVERY_TYPE, seed)
        assert reconstitute(stream.elements) == stream.events, levels


def test_rows_of_every_type_are_rows_of_the_schema() -> None:
    """D1 (5): payloads by schema."""
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


KEYS: Final = {
    "few": lambda keys: len(keys) <= 3,
    "uniform": lambda keys: 3 < len(keys) <= 8,
    "zipf": lambda keys: 1 < len(keys) <= 8,
    "unique": lambda keys: set(keys.values()) == {1},
}


@pytest.mark.parametrize("keys", FACET_LEVELS["keys"])
def test_keys_are_distributed_as_the_level_means(keys: str, seeds_of: Callable[[int, int], range]) -> None:
    """D1 (5): distributions of keys."""
    schema = parse_schema({"k": "int", "v": "int"})
    counts: Counter[object] = Counter()
    for seed in seeds_of(SEEDS, EVERY):
        events = generate(Facets(keys=keys, duration="short", overlap="low"), schema, seed).events
        of_keys = measured_columns(events, schema)["k"]
        assert KEYS[keys](of_keys), (seed, of_keys)
        counts += of_keys
    often = [count for _, count in counts.most_common()]
    if keys == "zipf":
        assert often[0] > 4 * often[-1]
        assert len(often) == 8
    else:
        assert len(often) == {"few": 3, "uniform": 8, "unique": 24}[keys]
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


def facets_of_seed(seed: int) -> Facets:
    """Return facets of which each is another word than the default, unless that contradicts another one."""
    given = {"pattern": PATTERNS.names()[seed // 4]} if seed % 4 == 3 else {}
    if seed % 10 == 8:
        given = {"shape": "edge", "contact": "back-to-back"}
    for number, (name, levels) in enumerate(FACET_LEVELS.items(), 1):
        level = levels[(seed * number + seed // len(levels)) % len(levels)]
        if facets_of({name: level, **given}):
            given = {name: level, **given}
    return Facets.from_json(given)


def test_equal_seeds_give_equal_bytes_and_others_do_not(request: pytest.FixtureRequest) -> None:
    """D15 (3): twenty seeds have golden hashes."""
    found = {}
    for seed in range(20):
        facets = facets_of_seed(seed)
        inputs = {name: generate(facets, EVERY_TYPE, seed * 2 + at).elements for at, name in enumerate("ab")}
        batches = batched(Draw(f"batches {seed}"), inputs, facets.interleaving, facets.batching)
        lines = [f"{batch.name} {format_row(row)}" for batch in batches for row in Batch.of(batch.elements).rows()]
        lines.append(str([len(batch.elements) for batch in batches]))
        found[str(seed)] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert len(set(found.values())) == 20
    if request.config.getoption("--rewrite"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(GOLDEN.read_text()), "the generator gives other bytes: saved scenarios mean others now"


def test_draws_are_the_same_on_every_version_of_python() -> None:
    draw = Draw("a seed")
    assert [draw.randrange(10) for _ in range(8)] == [6, 8, 0, 4, 6, 8, 9, 5]
    assert [draw.randrange(-3, 9, 4) for _ in range(6)] == [-3, 1, -3, 1, -3, 1]
    assert [draw.randint(1, 2**70) for _ in range(2)] == [400524503369458991978, 126651973280518324744]
    assert [draw.choice("abcdefg") for _ in range(6)] == ["c", "f", "a", "b", "g", "f"]
    assert [draw.random() for _ in range(2)] == [0.8565922464927885, 0.5087398261040676]
    with pytest.raises(ValueError, match=r"there is no number in range\(3, 3\)"):
        draw.randrange(3, 3)


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
    """D5 (5.1): testers control the shapes of intervals."""

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


def test_a_package_brings_patterns_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    group = "lmerge.testing.patterns"
    found = [EntryPoint("ours", "lmerge.testing.streams.patterns:comb", group)]
    monkeypatch.setattr(registry, "installed", lambda asked: found if asked == group else [])
    assert PATTERNS.names()[-1] == "ours"
    spans = [(event.vs, event.ve) for event in generate(Facets(pattern="ours", events=4), {"k": "int"}, 1).events]
    assert spans == [(0, 1), (0, 6), (6, 7), (6, 12)]
    found.append(EntryPoint("ours", "lmerge.testing.streams.patterns:nested", group))
    with pytest.raises(UsageError, match="several packages have a pattern of lifetimes 'ours'"):
        generate(Facets(pattern="ours"), {"k": "int"}, 1)


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


def alternate(turns: BatchMeasures) -> bool:
    return turns.alternations == len(turns.inputs) - 1


def in_runs(turns: BatchMeasures) -> bool:
    return 0.3 < turns.alternations / len(turns.inputs) < 0.7


def first_often(turns: BatchMeasures) -> bool:
    half = turns.inputs[: len(turns.inputs) // 2]
    return half.count("a") > 0.75 * len(half)


def last_waits(turns: BatchMeasures) -> bool:
    behind = turns.inputs[-30:]
    return behind == ["b"] * 30 and turns.inputs[:-30].count("b") == 10


def one_ended(turns: BatchMeasures) -> bool:
    return turns.alternations == 1


TURNS: Final = {
    "random": in_runs,
    "lockstep": alternate,
    "skewed": first_often,
    "idle": last_waits,
    "ended-first": one_ended,
}


@pytest.mark.parametrize("level", FACET_LEVELS["interleaving"])
def test_interleavings_are_as_their_levels_mean(level: str, seeds_of: Callable[[int, int], range]) -> None:
    """D13 (1): order of arrival across inputs."""
    inputs = {name: [Stable(at) for at in range(40)] for name in "ab"}
    missed = 0
    for seed in seeds_of(SEEDS, EVERY):
        missed += not TURNS[level](measured_batches(batched(Random(seed), inputs, level, "one")))
    assert missed <= len(seeds_of(SEEDS, EVERY)) * 0.05


CUTS: Final[dict[str, Callable[[BatchMeasures, int], bool]]] = {
    "one": lambda cuts, stables: set(cuts.sizes) == {1},
    "all": lambda cuts, stables: len(cuts.sizes) == 1,
    "at-stables": lambda cuts, stables: cuts.at_stables == stables and len(cuts.sizes) <= stables + 1,
    "drawn": lambda cuts, stables: len(set(cuts.sizes)) > 1 and max(cuts.sizes) <= 8,
}


@pytest.mark.parametrize("level", FACET_LEVELS["batching"])
def test_batches_are_cut_as_their_levels_mean(level: str, seeds_of: Callable[[int, int], range]) -> None:
    """D14 (3): cuts into batches."""
    for seed in seeds_of(SEEDS, EVERY):
        elements = generate(Facets(revisions="grow"), {"k": "int"}, seed).elements
        stables = sum(isinstance(element, Stable) for element in elements)
        cuts = measured_batches(batched(Random(seed), {"a": elements}, "random", level))
        assert CUTS[level](cuts, stables), (seed, cuts)
        assert sum(cuts.sizes) == len(elements)


def test_of_few_elements_every_interleaving_is_there_once_and_of_more_some_are_drawn() -> None:
    every = list(interleavings(Random(1), 4, 6, 3))
    assert len(every) == len({tuple(one) for one in every}) == 210
    assert all(sum(one) == 4 for one in every)
    drawn = list(interleavings(Random(1), 5, 6, 3))
    assert len(drawn) == len({tuple(one) for one in drawn}) == 3
    assert all(sum(one) == 5 and len(one) == 11 for one in drawn)
