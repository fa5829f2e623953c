"""Every dashboard is as generated, and each of its queries has a result on a real Prometheus behind real servers."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from board_world import DASHBOARDS, draw_board, expressions, filled, panels_of
from cli_world import run
from fault_world import Fleet
from metric_names import exported_names, names_in
from prometheus_world import Watched

from monitoring.alerting.alert import runbook_url
from monitoring.alerting.catalogue import ALERTS

EVERY_DASHBOARD = pytest.mark.parametrize("name", DASHBOARDS)
AFTER_S = 4.0  # so long before the first fault and after the last, which is then in the results too


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
            begin_s = time.time()
            drill = asyncio.to_thread(run, "drill", "run", "kill-winner", "--textfile", str(watched.textfile))
            drilled, _ = await asyncio.gather(drill, live_through(fleet, watched))
            assert drilled.returncode == 0, drilled.stdout
            await watched.holds(f"vector(time()) > {time.time() + AFTER_S}")
            end_s = time.time()
            for name in DASHBOARDS:
                await assert_nothing_is_empty(watched, name, begin_s, end_s, tmp_path)


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


async def assert_nothing_is_empty(watched: Watched, name: str, begin_s: float, end_s: float, folder: Path) -> None:
    """Run every query of a dashboard and draw it. What drivers of Spark export is proved where there is Spark."""
    of_drivers = {panel["title"] for panel in panels_of(DASHBOARDS[name]) if "lmerge_spark_" in str(panel["targets"])}
    assert await draw_board(watched, name, begin_s, end_s, folder) == (of_drivers, False)
    for variable in DASHBOARDS[name]["templating"]["list"]:
        if variable["type"] == "query":
            assert await chosen_from(watched, variable["query"], begin_s, end_s)


async def chosen_from(watched: Watched, query: str, begin_s: float, end_s: float) -> set[str]:
    """Return the values among which a variable chooses: as in Grafana, those of the time that the dashboard shows.

    At one instant there may be none: a target whose scrape has timed out has no series until the next one.
    """
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found is not None
    return {one["metric"][found[2]] for one in await watched.over(filled(found[1]), begin_s, end_s, 1.0)}
