"""The computed part of the bench of relays: how many servers a number of readers needs."""

from __future__ import annotations

import pytest

from bench.relay_tree import servers_for


@pytest.mark.parametrize(
    ("readers", "fanout", "levels"),
    [(1, 100, [1]), (100, 100, [1]), (101, 100, [1, 2]), (1_000_000, 100, [1, 100, 10_000])],
)
def test_no_server_has_more_readers_than_it_carries(readers: int, fanout: int, levels: list[int]) -> None:
    assert servers_for(readers, fanout) == levels
    assert all(below <= fanout * above for above, below in zip(levels, [*levels[1:], readers]))
