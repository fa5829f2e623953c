"""What plots look like: one colour for a thing in all of them, and lines that can be told apart."""

from __future__ import annotations

from bench.harness import COLORS, OTHER_COLORS, REPLICA_COLORS, looks_of


def test_a_thing_has_one_colour_in_all_plots() -> None:
    throughput = looks_of(["r0", "r3", "r4", "r3-"])
    memory = looks_of(["r3", "r3, Python", "r4", "hash table"])
    assert throughput["r3"][0] == memory["r3"][0] == memory["r3, Python"][0] == COLORS["r3"]
    assert throughput["r3-"][0] == COLORS["r3-"]
    assert looks_of(["nothing (control)", "server killed"])["nothing (control)"][0] == COLORS["nothing"]


def test_a_text_counts_only_as_a_whole() -> None:
    assert looks_of(["a"])["a"][0] == REPLICA_COLORS["a"]
    assert looks_of(["a link held"])["a link held"][0] in OTHER_COLORS
    assert looks_of(["r30"])["r30"][0] in OTHER_COLORS


def test_lines_of_one_plot_differ() -> None:
    labels = [f"line {at}" for at in range(len(OTHER_COLORS))]
    assert len({color for color, _ in looks_of(labels).values()}) == len(labels)
    assert not set(OTHER_COLORS) & {*COLORS.values(), *REPLICA_COLORS.values()}
