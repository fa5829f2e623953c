"""Pictures of plans: every node and counter is in them, boxes stand apart, and edges go down."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from xml.etree import ElementTree

from plan_generator import random_plan

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change
from lmerge.temporal.entrance import LatePolicy, ProgressRule
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.drawing import svg
from lmerge.temporal.plan.layout import DrawnPlan, Edge, Size, laid_out
from lmerge.temporal.plan.showing import mermaid
from lmerge.temporal.plan.stream import Stream, count, source
from lmerge.temporal.running import QueryRun, SourceSettings

SVG = "{http://www.w3.org/2000/svg}"


def numbers() -> Stream:
    return source("numbers", {"a": "int", "b": "int"})


def texts(picture: str) -> list[str]:
    return ["".join(text.itertext()).strip() for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def overlap(layout: DrawnPlan, sizes: Sequence[Size]) -> list[tuple[int, int]]:
    """Return the pairs of boxes that touch."""
    found = []
    for one, (corner, size) in enumerate(zip(layout.corners, sizes, strict=True)):
        for other in range(one):
            (x, y), (width, height) = layout.corners[other], sizes[other]
            if (
                corner.x < x + width
                and x < corner.x + size.width
                and corner.y < y + height
                and y < corner.y + size.height
            ):
                found.append((other, one))
    return found


def test_boxes_stand_apart_and_edges_go_down() -> None:
    for seed in range(60):
        random_ = Random(seed)
        boxes = random_.randint(1, 25)
        sizes = [Size(random_.randint(30, 300), random_.randint(20, 90)) for _ in range(boxes)]
        reads = [[random_.randrange(at) for _ in range(random_.randint(0, 2))] if at else [] for at in range(boxes)]
        layout = laid_out(sizes, reads)
        assert overlap(layout, sizes) == []
        for (x, y), (width, height) in zip(layout.corners, sizes, strict=True):
            assert -0.01 <= x <= layout.size.width - width + 0.01
            assert 0 <= y <= layout.size.height - height
        for edge, path in layout.paths.items():
            assert all(upper.y < lower.y for upper, lower in pairwise(path)), edge
            start, end = layout.corners[edge.start], layout.corners[edge.end]
            assert start.x <= path[0].x <= start.x + sizes[edge.start].width
            assert end.x <= path[-1].x <= end.x + sizes[edge.end].width
            assert (path[0].y, path[-1].y) == (start.y + sizes[edge.start].height, end.y)
        assert laid_out(sizes, reads) == layout


def test_an_edge_goes_around_the_boxes_between_its_ends() -> None:
    sizes = [Size(100, 40)] * 4
    layout = laid_out(sizes, [[], [0], [1], [2, 0]])
    passed = layout.paths[Edge(0, 3, 1)][1:-1]
    assert len(passed) == 2
    for point, box in zip(passed, (1, 2), strict=True):
        x, y = layout.corners[box]
        assert point.y == y
        assert not x <= point.x <= x + 100


def test_a_plan_that_can_be_drawn_without_crossings_is() -> None:
    """Two sources; the first has two readers, of which one is joined with a reader of the second."""
    layout = laid_out([Size(60, 20)] * 8, [[], [], [0], [0], [1], [3], [2, 4], [6]])
    ends = {edge: (path[0].x, path[-1].x) for edge, path in layout.paths.items()}
    layers = [0, 0, 1, 1, 1, 2, 2, 3]
    for one, (start, end) in ends.items():
        for other, (left, right) in ends.items():
            if layers[one.start] == layers[other.start]:
                assert (start - left) * (end - right) >= 0, (one, other)


def test_every_node_is_in_the_picture() -> None:
    for seed in range(60):
        plan = random_plan(Random(seed))
        picture = svg(plan.nodes)
        shown = " ".join(texts(picture))
        for name, node in plan.nodes.items():
            assert name in shown
            assert all(part in shown for part in node.shown.split())


def test_text_is_text() -> None:
    stream = source("s", {"t": "string"}).where(col.t == '<b>&"x"').named("a < b & c")
    picture = svg({"<out>": stream.node}, {stream.node: ["1 < 2"]})
    assert {"a < b & c", "<out>", "1 < 2"} <= set(texts(picture))
    assert any('<b>&"x"' in text for text in texts(picture))
    assert "<out>" not in picture


def test_a_run_shows_its_counters() -> None:
    kept = numbers().where(col.b > 0).named("positive")
    counted = kept.group_by("a").tumbling(5).agg(n=count())
    settings = {"numbers": SourceSettings(ProgressRule(delay=1), LatePolicy.DROP)}
    run = QueryRun({"all": kept.node, "counted": counted.node}, settings)
    run.take("numbers", [Change((1, at % 2), at, at, at + 2) for at in (1, 3, 8, 2)])
    lines = texts(run.svg())
    assert "late: 1 dropped, 0 moved" in lines
    at = lines.index("positive")
    assert lines[at + 1 : at + 4] == ["filter col.b > 0", "3 in, 2 out", "0 live, stable 7"]
    assert "2 in, 1 out" in lines
    assert "<br/>3 in, 2 out<br/>0 live, stable 7" in run.mermaid()
    assert run.mermaid() == mermaid({"all": kept.node, "counted": counted.node}, run.notes)


def test_the_picture_shows_what_feedback_has_saved() -> None:
    stream = numbers().where(col.b > 0).cleanse()
    run = QueryRun({"out": stream.node})
    run.take("numbers", [Change((1, 1), 1, 1, 40), Change((1, 1), 2, 2, 3), 5])
    run.fast_forward("out", 30)
    run.take("numbers", [Change((1, 2), 6, 6, 9)])
    lines = texts(run.svg())
    assert {"1 freed", "1 not evaluated"} <= set(lines)
    assert run.take("numbers", [INF])


def test_notebooks_show_plans_and_runs() -> None:
    stream = numbers().where(col.b > 0)
    run = QueryRun({"out": stream.node})
    for bundle in (stream._repr_mimebundle_(), run._repr_mimebundle_()):
        assert set(bundle) == {"text/plain", "text/html", "image/svg+xml"}
        assert "filter col.b > 0" in bundle["text/plain"]
        assert bundle["image/svg+xml"] in bundle["text/html"]
    assert stream._repr_html_() == stream._repr_mimebundle_()["text/html"]
    assert run._repr_html_() == run._repr_mimebundle_()["text/html"]
