"""A plan as a picture in SVG, from its sources down to its results, with live counters if it runs.

It needs no program and no font of its own: sizes go by the widths of a monospaced font, and the boxes are laid out in
``layout``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.layout import Point, Size, laid_out
from lmerge.temporal.plan.nodes import PlanNode

Notes = Mapping[PlanNode, Sequence[str]]
"""Lines for nodes, such as what they have counted."""

_CHARACTER: Final = 7.25  # the width of one of 12 pixels, in a monospaced font
_LINE: Final = 16.0
_PADDING: Final = 9.0
_MARGIN: Final = 14.0
_COLUMNS: Final = 40

_FONT: Final = "12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
# Scoped: a notebook has many pictures, and elements of its own.
_STYLE: Final = "".join(
    f".lmerge-plan {rule}"
    for rule in (
        ".paper{fill:#fff}",
        ".box{fill:#fff;stroke:#64748b}",
        ".source{fill:#ecf6ef;stroke:#3d7a58}",
        ".result{fill:#edf0fc;stroke:#4d5fc0}",
        ".edge{fill:none;stroke:#64748b;stroke-width:1.3}",
        ".head{fill:#64748b}",
        f"text{{font:{_FONT}}}",
        ".title{font-weight:700;fill:#0f172a}",
        ".what{fill:#1e293b}",
        ".note{fill:#9a4a06}",
    )
)
_HEAD: Final = (
    '<defs><marker id="lmerge-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
)


class _Box(NamedTuple):
    css: str
    lines: Sequence[tuple[str, str]]

    @property
    def size(self) -> Size:
        widest = max(len(text) for _, text in self.lines)
        return Size(widest * _CHARACTER + 2 * _PADDING, len(self.lines) * _LINE + 2 * _PADDING - 3)


def svg(outputs: Mapping[str, PlanNode], notes: Notes | None = None) -> str:
    """Return a plan as an SVG picture. ``outputs``: its results by name; ``notes``: further lines for its nodes."""
    order = in_order(list(outputs.values()))
    places = {node: at for at, node in enumerate(order)}
    boxes = [_of_node(node, (notes or {}).get(node, ())) for node in order]
    boxes += [_Box("result", [("title", name)]) for name in outputs]
    reads = [[places[read] for read in node.reads] for node in order] + [[places[node]] for node in outputs.values()]
    layout = laid_out([box.size for box in boxes], reads)
    width, height = (round(side + 2 * _MARGIN) for side in layout.size)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    label = escape(f"plan of {', '.join(outputs)}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lmerge-plan" role="img" aria-label="{label}" {size}>',
        f"<style>{_STYLE}</style>",
        _HEAD,
        f'<rect class="paper" width="{width}" height="{height}"/><g transform="translate({_MARGIN:g},{_MARGIN:g})">',
        *(f'<path class="edge" marker-end="url(#lmerge-head)" d="{_curve(path)}"/>' for path in layout.paths.values()),
    ]
    for box, corner in zip(boxes, layout.corners, strict=True):
        lines += _drawn(box, corner)
    return "\n".join([*lines, "</g></svg>"]) + "\n"


def mime_bundle(text: str, picture: str) -> dict[str, str]:
    """Return a plan for notebooks: as an SVG picture, and as text for where there are none."""
    return {"text/plain": text, "image/svg+xml": picture, "text/html": f'<div style="overflow:auto">{picture}</div>'}


def _of_node(node: PlanNode, notes: Sequence[str]) -> _Box:
    wrapped = textwrap.wrap(node.shown, _COLUMNS, subsequent_indent="  ", break_on_hyphens=False) or [node.kind]
    title = [("title", node.label)] if node.label and node.reads else []
    lines = [*title, *(("what", line) for line in wrapped), *(("note", line) for line in notes)]
    return _Box("box" if node.reads else "source", lines)


def _drawn(box: _Box, corner: Point) -> Iterator[str]:
    width, height = box.size
    radius = height / 2 if box.css == "result" else 5
    at = f'x="{corner.x:.1f}" y="{corner.y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}"'
    yield f'<rect class="{box.css}" {at}/>'
    for row, (css, text) in enumerate(box.lines, 1):
        x, y = corner.x + _PADDING, corner.y + _PADDING + row * _LINE - 5
        yield f'<text class="{css}" xml:space="preserve" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _curve(points: Sequence[Point]) -> str:
    """Return the path of an edge: it leaves and enters every point straight down."""
    (x, y), *rest = points
    path = [f"M{x:.1f},{y:.1f}"]
    for to_x, to_y in rest:
        bend = (to_y - y) / 2
        path.append(f"C{x:.1f},{y + bend:.1f} {to_x:.1f},{to_y - bend:.1f} {to_x:.1f},{to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(path)
