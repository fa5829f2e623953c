"""Operators of the native core are those of Python: output in order, errors, state and feedback, after every batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from native_world import run_streams, stream_of

from lmerge.temporal.expressions.surface import col
from lmerge.temporal.operators.join import JoinKind

SeedsOf = Callable[[int, int], range]


@pytest.mark.parametrize("name", ["ints", "scalars", "nested"])
def test_union_orders_rows_of_every_type_as_python(name: str, seeds_of: SeedsOf) -> None:
    one = stream_of(name)
    run_streams(seeds_of(60, 4), one.union(one, one.shift(2)))


@pytest.mark.parametrize("alteration", ["shift", "set_duration", "clip_duration", "extend", "at_end"])
def test_alterations_are_the_same(alteration: str, seeds_of: SeedsOf) -> None:
    one = stream_of("ints")
    for amount in (1, 3):
        run_streams(seeds_of(60, 4), getattr(one, alteration)(amount))


def test_chains_of_alterations_are_the_same(seeds_of: SeedsOf) -> None:
    one = stream_of("scalars")
    run_streams(seeds_of(60, 4), one.shift(-3).clip_duration(4).at_end(2).select("x", "k").extend(1))


def test_projections_merge_rows_that_become_equal(seeds_of: SeedsOf) -> None:
    run_streams(seeds_of(60, 4), stream_of("scalars").select("k"), stream_of("nested").select("v", "k"))


@pytest.mark.parametrize("how", list(JoinKind))
def test_joins_are_the_same(how: JoinKind, seeds_of: SeedsOf) -> None:
    run_streams(seeds_of(200, 5), stream_of("ints").join(stream_of("others"), "k", how=how), items=30)


@pytest.mark.parametrize("how", list(JoinKind))
def test_joins_of_rows_of_every_type_are_the_same(how: JoinKind, seeds_of: SeedsOf) -> None:
    run_streams(seeds_of(60, 4), stream_of("scalars").join(stream_of("nested"), "k", how=how), items=30)


@pytest.mark.parametrize("how", list(JoinKind))
def test_a_missing_key_matches_nothing_in_both(how: JoinKind, seeds_of: SeedsOf) -> None:
    one = stream_of("others").select(b=col.b)
    run_streams(seeds_of(60, 4), one.join(stream_of("ints").select(b=col.a), "b", how=how), one.join(one, "b", how=how))


@pytest.mark.parametrize("name", ["ints", "scalars", "nested"])
def test_coalesce_and_cleanse_are_the_same(name: str, seeds_of: SeedsOf) -> None:
    run_streams(seeds_of(150, 5), stream_of(name).coalesce(), stream_of(name).cleanse(), items=30)


@pytest.mark.parametrize("lasts", [None, 1, 4])
@pytest.mark.parametrize("by", [(), ("k",), ("k", "x")])
def test_edges_are_the_same(by: tuple[str, ...], lasts: int | None, seeds_of: SeedsOf) -> None:
    run_streams(seeds_of(100, 5), stream_of("scalars").edges(by, lasts=lasts), items=30)


def test_samples_that_collide_are_the_same_error(seeds_of: SeedsOf) -> None:
    run_streams(seeds_of(100, 5), stream_of("scalars").edges("k", ties="error"), items=30)


@pytest.mark.parametrize("within", [None, 0, 1, 5])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_as_of_joins_are_the_same(how: str, within: int | None, seeds_of: SeedsOf) -> None:
    left, right = stream_of("others"), stream_of("scalars")
    run_streams(seeds_of(100, 5), left.as_of(right, "k", how=how, within=within), items=30)
    run_streams(seeds_of(50, 4), right.as_of(left, how=how, within=within), items=30)


def test_as_of_joins_leave_out_missing_keys(seeds_of: SeedsOf) -> None:
    left, right = stream_of("others").select("b"), stream_of("ints").select(b=col.a)
    run_streams(seeds_of(100, 5), left.as_of(right, "b", how="left"), right.as_of(left, "b", how="left"), items=30)


def test_the_first_row_that_fails_fails_in_both(seeds_of: SeedsOf) -> None:
    """A row goes through the whole chain before the next one: the predicate fails for a=1, the columns for k=1."""
    chain = stream_of("ints").where(col.a + (2**63 - 1) >= 0).select(z=(col.k + (2**63 - 1)) // 2, k=col.k)
    run_streams(seeds_of(60, 4), chain)
    run_streams(seeds_of(60, 4), stream_of("ints").select(z=col.k * (2**62) * 2).where(col.z > 1).select(y=-col.z))


@pytest.mark.parametrize("how", list(JoinKind))
def test_predicates_of_joins_are_the_same(how: JoinKind, seeds_of: SeedsOf) -> None:
    one, other = stream_of("ints"), stream_of("others")
    run_streams(seeds_of(80, 4), one.join(other, "k", where=col.a < col.b, how=how), items=30)
    run_streams(seeds_of(40, 4), one.join(other, where=col.a + col.b + (2**63 - 8) > 0, how=how), items=30)


def test_keys_that_fail_are_the_same(seeds_of: SeedsOf) -> None:
    one, other = stream_of("ints").select("a", k=col.k + 1), stream_of("others")
    keyed = one.select("a", k=col.k * (2**62))
    run_streams(seeds_of(60, 4), keyed.join(other.select("b", k=col.k * (2**62)), "k", how="left"))
    run_streams(seeds_of(60, 4), one.edges("k"), one.join(other, "k", pairs_max=20))
