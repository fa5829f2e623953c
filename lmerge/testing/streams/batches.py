"""How elements of several inputs come: whose turn it is, and where batches are cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Final

from lmerge.core.elements import Element, Stable

BATCH_MAX: Final = 8
EVERY_INTERLEAVING_UP_TO: Final = 10
"""Elements of two inputs of which every interleaving is tried; of more, some are drawn."""


@dataclass(frozen=True)
class InputBatch:
    """Elements of one input that come at once."""

    name: str
    elements: Sequence[Element]


def batched(
    random: Random, inputs: Mapping[str, Sequence[Element]], interleaving: str, batching: str
) -> list[InputBatch]:
    """Return the batches of all inputs, in the order in which they come. The words are those of the facets."""
    turns = interleaved(random, {name: len(elements) for name, elements in inputs.items()}, interleaving)
    taken = dict.fromkeys(inputs, 0)
    runs: list[tuple[str, list[Element]]] = []
    for name in turns:
        element = inputs[name][taken[name]]
        taken[name] += 1
        if runs and runs[-1][0] == name:
            runs[-1][1].append(element)
        else:
            runs.append((name, [element]))
    return [InputBatch(name, piece) for name, run in runs for piece in _cut(random, run, batching)]


def _cut(random: Random, run: Sequence[Element], batching: str) -> Iterator[list[Element]]:
    """Yield the batches of the elements of one input that come in a row."""
    size = {"one": 1, "all": len(run), "at-stables": len(run), "drawn": 0}[batching]
    piece: list[Element] = []
    limit = size or random.randrange(1, BATCH_MAX + 1)
    for element in run:
        piece.append(element)
        if len(piece) >= limit or (batching == "at-stables" and isinstance(element, Stable)):
            yield piece
            piece, limit = [], size or random.randrange(1, BATCH_MAX + 1)
    if piece:
        yield piece


def interleaved(random: Random, sizes: Mapping[str, int], level: str) -> list[str]:
    """Return whose element comes next, for all elements of inputs with these sizes."""
    names = list(sizes)
    if level == "lockstep":
        longest = max(sizes.values(), default=0)
        return [name for at in range(longest) for name in names if at < sizes[name]]
    if level == "ended-first":
        first = names[random.randrange(len(names))] if names else ""
        rest = {name: size for name, size in sizes.items() if name != first}
        return [first] * sizes.get(first, 0) + interleaved(random, rest, "random") if names else []
    if level == "idle" and len(names) > 1:
        last = names[-1]
        early = sizes[last] // 4
        others = {name: size for name, size in sizes.items() if name != last}
        begin = interleaved(random, {**{name: size // 4 for name, size in others.items()}, last: early}, "random")
        left = {name: size - size // 4 for name, size in others.items()}
        return begin + interleaved(random, left, "random") + [last] * (sizes[last] - early)
    return _drawn(random, sizes, 9 if level == "skewed" else 1)


def _drawn(random: Random, sizes: Mapping[str, int], first_weight: int) -> list[str]:
    left = dict(sizes)
    found: list[str] = []
    while any(left.values()):
        names = [name for name in left if left[name]]
        weights = [first_weight if name == next(iter(sizes)) else 1 for name in names]
        point = random.randrange(sum(weights))
        for name, weight in zip(names, weights):
            point -= weight
            if point < 0:
                found.append(name)
                left[name] -= 1
                break
    return found


def interleavings(random: Random, one: int, other: int, most: int) -> Iterator[list[bool]]:
    """Yield orders of ``one`` elements of a first input and ``other`` of a second; True: the first comes.

    Every order of up to ``EVERY_INTERLEAVING_UP_TO`` elements, and ``most`` drawn ones of more.
    """
    if one + other > EVERY_INTERLEAVING_UP_TO:
        sizes = {"one": one, "other": other}
        yield from ([name == "one" for name in interleaved(random, sizes, "random")] for _ in range(most))
        return
    for places in combinations(range(one + other), one):
        chosen = set(places)
        yield [at in chosen for at in range(one + other)]
