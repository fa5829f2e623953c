"""Every interleaving of small inputs, with every point at which an input can leave or die."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from core_world import a, f, interleavings, m

from lmerge.core.elements import INF, Element
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import reconstitute
from lmerge.testing.merges.declared import COPIES_PROMISES, PROMISES
from lmerge.testing.oracle import Follow

# Physically different streams of one TDB, by case: {A [1, 4), B [2, 9)} and a multiset for R4.
SMALL: dict[str, list[list[Element]]] = {
    "r0": [[a("A", 1, 4), a("B", 2, 9), f(3), f(INF)], [a("A", 1, 4), f(2), a("B", 2, 9), f(INF)]],
    "r1": [[a("A", 1, 4), a("B", 1, 9), f(2), f(INF)], [f(1), a("A", 1, 4), a("B", 1, 9), f(INF)]],
    "r2": [[a("A", 1, 4), a("B", 1, 9), f(2), f(INF)], [f(1), a("B", 1, 9), a("A", 1, 4), f(INF)]],
    "r2 copies": [
        [a("A", 1, 4), a("A", 1, 9), a("A", 1, 4), f(2), f(INF)],
        [f(1), a("A", 1, 4), a("A", 1, 4), a("A", 1, 9), f(INF)],
    ],
    "r3": [
        [a("B", 2), a("A", 1, 4), m("B", 2, INF, 9), f(5), f(INF)],
        [a("A", 1, 3), a("B", 2, 7), m("A", 1, 3, 4), m("B", 2, 7, 9), f(INF)],
    ],
    "r4": [
        [a("A", 1, 9), a("A", 1, 4), a("A", 1, 4), f(5), f(INF)],
        [a("A", 1, 4), a("A", 1), m("A", 1, INF, 9), a("A", 1, 4), f(INF)],
    ],
}


def play(
    algorithm: str, policy: str, streams: list[list[Element]], order: Sequence[int], death: tuple[int, int]
) -> Follow:
    """Play one order. ``death``: (input, position): that input leaves before it delivers the element there."""
    follow = Follow(Merge(MergeConfig(algorithm[:2], policy)))
    for at in range(len(streams)):
        follow.attach(str(at), COPIES_PROMISES if algorithm == "r2 copies" else PROMISES[algorithm])
    positions = [0] * len(streams)
    for at in order:
        if (at, positions[at]) == death:
            follow.detach(str(at))
        if follow.merge.is_attached(str(at)):
            follow.publish(str(at), streams[at][positions[at]])
        positions[at] += 1
    return follow


@pytest.mark.parametrize("every_policy", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("algorithm", SMALL)
def test_two_inputs_every_order_every_death(algorithm: str, every_policy: bool) -> None:
    """Each order with each death has one of the policies, in turn; in the long run it has all of them."""
    streams = SMALL[algorithm]
    expected = reconstitute(streams[0])
    assert expected == reconstitute(streams[1])
    policies = ("lazy", "eager", "final-only") if algorithm in ("r3", "r4") else ("lazy",)
    for count, order in enumerate(interleavings([len(stream) for stream in streams])):
        for at, death in enumerate(((-1, 0), *((0, at) for at in range(len(streams[0]))))):
            for policy in policies if every_policy else [policies[(count + at) % len(policies)]]:
                follow = play(algorithm, policy, streams, order, death)
                assert follow.events() == expected, (policy, order, death)
                assert follow.merge.stable_point == INF


@pytest.mark.long
@pytest.mark.parametrize("algorithm", SMALL)
def test_three_inputs_every_order_two_deaths(algorithm: str) -> None:
    """Every 101st of up to 756,756 orders: all of them would take hours."""
    streams = [SMALL[algorithm][0], SMALL[algorithm][1], SMALL[algorithm][0]]
    expected = reconstitute(streams[0])
    for count, order in enumerate(interleavings([len(stream) for stream in streams])):
        if count % 101:
            continue
        for death in ((-1, 0), (0, 1), (0, 2), (1, 2)):
            assert play(algorithm, "lazy", streams, order, death).events() == expected
