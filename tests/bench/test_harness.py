"""What plots look like: one colour for a thing in all of them, and lines that can be told apart."""

from __future__ import annotations

import pytest

from bench.harness import COLORS, OTHER_COLORS, PERCENT, REPLICA_COLORS, Measured, looks_of, percent_less, percent_more


def test_a_thing_has_one_colour_in_all_plots() -> None:
    throughput = looks_of(["r0", "r3", "r4", "r3-"])
    memory = looks_of(["r3", "r3, Python", "r4", "hash table"])
    assert throughput["r3"][0] == memory["r3"][0] == memory["r3, Python"][0] == COLORS["r3"]
    assert throughput["r3-"][0] == COLORS["r3-"]
    assert looks_of(["cleanse + r1"])["cleanse + r1"][0] == COLORS["cleanse"]
    assert looks_of(["nothing (control)", "server killed"])["nothing (control)"][0] == COLORS["nothing"]


def test_a_text_counts_only_as_a_whole() -> None:
    assert looks_of(["a"])["a"][0] == REPLICA_COLORS["a"]
    assert looks_of(["a link held"])["a link held"][0] in OTHER_COLORS
    assert looks_of(["r30"])["r30"][0] in OTHER_COLORS


def test_lines_of_one_plot_differ() -> None:
    labels = [f"line {at}" for at in range(len(OTHER_COLORS))]
    assert len({color for color, _ in looks_of(labels).values()}) == len(labels)
    assert not set(OTHER_COLORS) & {*COLORS.values(), *REPLICA_COLORS.values()}


def test_a_cost_is_that_of_rounds_so_a_slow_spell_does_not_count() -> None:
    costs = Measured("cost", percent_less([99.0, 49.5, 98.0], than=[100.0, 50.0, 100.0]), PERCENT)
    assert costs.median == pytest.approx(1)
    assert costs.shown_spread == "from 1.0 to 2.0"
    assert percent_less([100.0], than=[100.0]) == [0]
    assert percent_more([3.0], than=[2.0]) == pytest.approx([50])
    with pytest.raises(ValueError, match="argument 2"):
        percent_less([1.0], than=[1.0, 2.0])
