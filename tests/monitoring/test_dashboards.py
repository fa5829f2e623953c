"""Every dashboard is as generated, and each of its queries has a result on a real Prometheus behind real servers.

``LMERGE_PICTURES=FOLDER`` keeps the pictures of the dashboards, to look at and for the documentation.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_world import run
from fault_world import MERGE, Fleet
from metric_names import exported_names, names_in
from prometheus_world import Watched

from monitoring.alerting.alert import runbook_url
from monitoring.alerting.catalogue import ALERTS
from monitoring.boards.catalogue import BOARDS
from monitoring.boards.grafana import dashboard_json
from monitoring.drawing import Drawn, draw

DASHBOARDS = {f"lmerge-{board.uid}": json.loads(dashboard_json(board)) for board in BOARDS}
EVERY_DASHBOARD = pytest.mark.parametrize("name", DASHBOARDS)
STEP_S = 0.5
AFTER_S = 4.0  # so long before the first fault and after the last, which is then in the results too
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


@EVERY_DASHBOARD
def test_queries_use_metrics_that_a_server_exports(name: str) -> None:
    used = set().union(*(names_in(expression) for expression in expressions(DASHBOARDS[name])))
    assert used - exported_names() == set()


@EVERY_DASHBOARD
def test_each_panel_has_a_question_a_unit_and_thresholds_and_fits_the_page(name: str) -> None:
    for panel in panels_of(DASHBOARDS[name]):
        assert panel["description"].endswith((".", "?")), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["datasource"] == {"type": "prometheus", "uid": "$datasource"}


@EVERY_DASHBOARD
def test_no_two_panels_stand_at_one_place(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARDS[name]["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert cells.isdisjoint(taken), panel["title"]
        taken |= cells


@EVERY_DASHBOARD
def test_links_lead_to_runbooks_that_exist(name: str) -> None:
    links = [link["url"] for panel in panels_of(DASHBOARDS[name]) for link in panel.get("links", [])]
    assert set(links) <= {runbook_url(alert.runbook) for alert in ALERTS}
    with_steps = [
        p for p in panels_of(DASHBOARDS[name]) if len(p["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1
    ]
    unexplained = {panel["title"] for panel in with_steps if not panel.get("links")}
    assert unexplained <= {"Alerts", "Recordings that have stopped"}


@EVERY_DASHBOARD
def test_each_variable_of_a_query_can_be_chosen(name: str) -> None:
    dashboard = DASHBOARDS[name]
    used = {name for expression in expressions(dashboard) for name in re.findall(r"\$(\w+)", expression)}
    chosen = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert used - {"__rate_interval"} <= chosen


@pytest.mark.skipif(sys.platform != "linux", reason="processes end with their parent")
@pytest.mark.timeout(240)
async def test_no_query_is_empty_while_replicas_die_and_are_replaced(
    program: Callable[[str], str], tmp_path: Path
) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve("h1", "--certify-interval", "500000", "--store", str(tmp_path / "store"))
        await fleet.serve("h2", "--certify-interval", "500000")
        for name in "abc":
            fleet.replicate(name)
        fleet.subscribe("board")
        async with Watched(program, tmp_path / "watched", fleet.targets) as watched:
            drill = await asyncio.to_thread(run, "drill", "run", "kill-winner", "--textfile", str(watched.textfile))
            assert drill.returncode == 0, drill.stdout
            begin_s = time.time()
            await live_through(fleet, watched)
            end_s = time.time()
            pictures = Path(os.environ.get("LMERGE_PICTURES", str(tmp_path)))
            for name, dashboard in DASHBOARDS.items():
                await assert_nothing_is_empty(watched, dashboard, begin_s, end_s, pictures / f"{name}.png")


async def live_through(fleet: Fleet, watched: Watched) -> None:
    """Kill a replica, start it again, replace another one, and wait until Prometheus has seen each."""
    await watched.holds("min(sum by (instance) (lmerge_input_joined_bool)) == 3")
    await watched.holds("min(rate(lmerge_added_latency_seconds_count[2s])) > 0")
    await watched.holds(f"vector(time()) > {time.time() + AFTER_S}")
    fleet.replicas["c"].kill()
    await watched.holds('min(lmerge_detached_inputs_total{reason="connection-ended"}) >= 1')
    fleet.replicate("c")
    await watched.holds("min(sum by (instance) (lmerge_input_joined_bool)) == 3")
    fleet.replicate("b")
    await watched.holds('min(lmerge_detached_inputs_total{reason="replaced"}) >= 1')
    await watched.holds("min(sum by (instance) (lmerge_input_joined_bool)) == 3")
    await watched.holds("min(lmerge_input_equal_intervals) >= 1")
    await watched.holds(f"vector(time()) > {time.time() + AFTER_S}")


async def assert_nothing_is_empty(
    watched: Watched, dashboard: Any, begin_s: float, end_s: float, picture: Path
) -> None:
    """Run every query of a dashboard and draw it."""

    async def series_of(expression: str, legend: str) -> list[Drawn]:
        found = await watched.over(filled(expression), begin_s, end_s, STEP_S)
        samples = [(one, [(at, float(value)) for at, value in one["values"]]) for one in found]
        return [Drawn(named(legend, one["metric"]), values) for one, values in samples]

    results = {
        panel["id"]: [
            one for target in panel["targets"] for one in await series_of(target["expr"], target["legendFormat"])
        ]
        for panel in panels_of(dashboard)
    }
    marks = {mark["name"]: await series_of(mark["expr"], "") for mark in dashboard["annotations"]["list"]}
    titles = {panel["id"]: panel["title"] for panel in panels_of(dashboard)}
    empty = [titles[number] for number, series in results.items() if not any(one.samples for one in series)]
    assert empty == []
    assert [name for name, series in marks.items() if not series] == []
    assert [one.name for series in results.values() for one in series if one.name != one.name.strip()] == []
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert await chosen_from(watched, variable["query"])
    draw(dashboard, results, marks, picture)


async def chosen_from(watched: Watched, query: str) -> set[str]:
    """Return the values among which a variable chooses."""
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found is not None
    return {one["metric"][found[2]] for one in await watched.query(filled(found[1]))}
