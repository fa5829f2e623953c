"""Where the boxes of a picture stand: layers from the sources down, with few crossings and short edges.

The layers of Sugiyama: a box stands below all that it reads; an edge over several layers has a point in each; boxes of
a layer are ordered by the places of their neighbours; and they stand as near to these as their widths allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

SWEEPS: Final = 8
STARTS: Final = 12
GAP_X, GAP_Y = 28.0, 46.0
_POINT = 8.0  # the width of an edge that passes a layer


class Size(NamedTuple):
    """The width and height of a box, in pixels."""

    width: float
    height: float


class Point(NamedTuple):
    """A place, in pixels from the upper left corner."""

    x: float
    y: float


class Edge(NamedTuple):
    """From a box to one that reads it; ``at``: which of the reader's inputs."""

    start: int
    end: int
    at: int


@dataclass(frozen=True)
class DrawnPlan:
    """The upper left corner of each box, the points of each edge, and the size of the picture."""

    corners: Sequence[Point]
    paths: Mapping[Edge, Sequence[Point]]
    size: Size


class _Spot:
    """A box (``box`` is its number), or a point of an edge."""

    __slots__ = ("above", "below", "box", "height", "layer", "width", "x")

    def __init__(self, layer: int, width: float, height: float, box: int | None = None) -> None:
        self.layer, self.width, self.height, self.box = layer, width, height, box
        self.x = 0.0  # of its middle
        self.above: list[_Spot] = []
        self.below: list[_Spot] = []


def laid_out(sizes: Sequence[Size], reads: Sequence[Sequence[int]]) -> DrawnPlan:
    """Return the layout of boxes, each of which stands behind those that it reads (their numbers)."""
    layers: list[int] = []
    for sources in reads:
        layers.append(1 + max((layers[source] for source in sources), default=-1))
    boxes = [_Spot(layer, *size, box) for box, (layer, size) in enumerate(zip(layers, sizes, strict=True))]
    edges = [Edge(source, box, at) for box, sources in enumerate(reads) for at, source in enumerate(sources)]
    rows: list[list[_Spot]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for box in boxes:
        rows[box.layer].append(box)
    chains = {edge: _chain(boxes[edge.start], boxes[edge.end], rows) for edge in edges}
    _order(rows)
    _stand(rows)
    return _drawn(boxes, rows, chains)


def _chain(start: _Spot, end: _Spot, rows: list[list[_Spot]]) -> list[_Spot]:
    """Return an edge as its ends and a point in each layer between them."""
    points = [_Spot(layer, _POINT, 0) for layer in range(start.layer + 1, end.layer)]
    for point in points:
        rows[point.layer].append(point)
    chain = [start, *points, end]
    for upper, lower in pairwise(chain):
        upper.below.append(lower)
        lower.above.append(upper)
    return chain


def _order(rows: list[list[_Spot]]) -> None:
    """Put each layer into an order with few crossings: the best of several that begin in the same random orders."""
    random, best, least = Random(0), [list(row) for row in rows], _crossings(rows)
    for _ in range(STARTS):
        for sweep in range(SWEEPS):
            if least == 0:
                break
            _sweep(rows, downwards=sweep % 2 == 0)
            crossings = _crossings(rows)
            if crossings < least:
                best, least = [list(row) for row in rows], crossings
        for row in rows:
            random.shuffle(row)
    rows[:] = best


def _sweep(rows: Sequence[list[_Spot]], downwards: bool) -> None:
    """Order each layer by the middle of its neighbours' places in the layer before."""
    for row in rows if downwards else reversed(rows):
        for at, place in enumerate(row):
            near = place.above if downwards else place.below
            place.x = sum(one.x for one in near) / len(near) if near else float(at)
        row.sort(key=lambda place: place.x)
        for at, place in enumerate(row):
            place.x = float(at)


def _crossings(rows: Sequence[Sequence[_Spot]]) -> int:
    """Return how many pairs of edges between neighbouring layers cross."""
    count = 0
    for upper, lower in pairwise(rows):
        places = {place: at for at, place in enumerate(lower)}
        ends = [sorted(places[one] for one in place.below) for place in upper]
        for at, of_left in enumerate(ends):
            count += sum(left > right for of_right in ends[at + 1 :] for left in of_left for right in of_right)
    return count


def _stand(rows: list[list[_Spot]]) -> None:
    """Give each place its x: as near to its neighbours as the widths in its layer allow."""
    for row in rows:
        x = 0.0
        for place in row:
            place.x = x + place.width / 2
            x += place.width + GAP_X
    for sweep in range(2 * SWEEPS + 1):  # at last downwards: a result stands below its box
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wishes = []
            for place in row:
                near = [*place.above, *place.below]
                wishes.append(sum(one.x for one in near) / len(near) if near else place.x)
            for place, x in zip(row, _apart(row, wishes), strict=True):
                place.x = x


def _apart(row: Sequence[_Spot], wishes: Sequence[float]) -> list[float]:
    """Return places near to wishes in which none overlap: halfway between pushing all to the right and to the left."""
    right, left = list(wishes), list(wishes)
    for at in range(1, len(row)):
        right[at] = max(right[at], right[at - 1] + _distance(row[at - 1], row[at]))
    for at in range(len(row) - 2, -1, -1):
        left[at] = min(left[at], left[at + 1] - _distance(row[at], row[at + 1]))
    return [(one + other) / 2 for one, other in zip(right, left, strict=True)]


def _distance(one: _Spot, other: _Spot) -> float:
    return (one.width + other.width) / 2 + GAP_X


def _drawn(boxes: Sequence[_Spot], rows: list[list[_Spot]], chains: Mapping[Edge, list[_Spot]]) -> DrawnPlan:
    tops, y = [], 0.0
    for row in rows:
        tops.append(y)
        y += max(place.height for place in row) + GAP_Y
    first = min((place.x - place.width / 2 for row in rows for place in row), default=0.0)
    last = max((place.x + place.width / 2 for row in rows for place in row), default=0.0)
    corners = [Point(box.x - box.width / 2 - first, tops[box.layer]) for box in boxes]
    paths = {}
    for edge, chain in chains.items():
        start, end = chain[0], chain[-1]
        inputs = sorted(end.above, key=lambda place: place.x)
        entry = end.x + (inputs.index(chain[-2]) + 1) / (len(inputs) + 1) * end.width - end.width / 2
        points = [Point(start.x - first, tops[start.layer] + start.height)]
        points += [Point(place.x - first, tops[place.layer]) for place in chain[1:-1]]
        paths[edge] = [*points, Point(entry - first, tops[end.layer])]
    return DrawnPlan(corners, paths, Size(last - first, max(0.0, y - GAP_Y)))
