"""Dashboards as they are generated, their queries on a real Prometheus, and pictures of the results.

``LMERGE_PICTURES=FOLDER`` keeps the pictures of the dashboards, to look at and for the documentation.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from fault_world import MERGE
from prometheus_world import Watched

from monitoring.boards.catalogue import BOARDS
from monitoring.boards.grafana import dashboard_json
from monitoring.drawing import Drawn, draw

DASHBOARDS = {f"lmerge-{board.uid}": json.loads(dashboard_json(board)) for board in BOARDS}
STEP_S = 0.5
VARIABLES = {"drill": ".*", "merge": MERGE, "input": "a", "instance": ".*", "datasource": "p", "__rate_interval": "2s"}


def panels_of(dashboard: Any) -> list[Any]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: Any) -> list[str]:
    of_panels = [target["expr"] for panel in panels_of(dashboard) for target in panel["targets"]]
    return of_panels + [mark["expr"] for mark in dashboard["annotations"]["list"]]


def filled(expression: str) -> str:
    """Return an expression with a value for each variable."""
    return re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], expression)


def named(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)


async def series_of(watched: Watched, expression: str, legend: str, begin_s: float, end_s: float) -> list[Drawn]:
    """Return the results of a query over a time, named as in its panel."""
    found = await watched.over(filled(expression), begin_s, end_s, STEP_S)
    samples = [(one, [(at, float(value)) for at, value in one["values"]]) for one in found]
    return [Drawn(named(legend, one["metric"]), values) for one, values in samples]


async def draw_board(watched: Watched, name: str, begin_s: float, end_s: float, folder: Path) -> tuple[set[str], bool]:
    """Run every query of a dashboard and draw it. Return the titles of its empty panels, and whether a mark has none.

    The picture is in ``folder``, or in that of LMERGE_PICTURES.
    """
    dashboard = DASHBOARDS[name]
    results = {
        panel["id"]: [
            one
            for target in panel["targets"]
            for one in await series_of(watched, target["expr"], target["legendFormat"], begin_s, end_s)
        ]
        for panel in panels_of(dashboard)
    }
    marks = {
        mark["name"]: await series_of(watched, mark["expr"], "", begin_s, end_s)
        for mark in dashboard["annotations"]["list"]
    }
    assert [one.name for series in results.values() for one in series if one.name != one.name.strip()] == []
    draw(dashboard, results, marks, Path(os.environ.get("LMERGE_PICTURES", str(folder))) / f"{name}.png")
    titles = {panel["id"]: panel["title"] for panel in panels_of(dashboard)}
    empty = {titles[number] for number, series in results.items() if not any(one.samples for one in series)}
    return empty, not all(marks.values())
