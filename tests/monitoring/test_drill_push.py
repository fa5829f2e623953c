"""The results of drills in a real Pushgateway: what the alerts on drills compare stays over the runs."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kube_world import free_port
from prometheus_client.parser import text_string_to_metric_families
from prometheus_world import Daemon

from lmerge.errors import Unavailable, UsageError
from lmerge_controller.drill.report.push import push
from lmerge_controller.drill.report.report_files import ReportFiles
from lmerge_controller.drill.report.result import DrillResult, DrillStatus
from lmerge_controller.drill.scenario_file import builtin_scenarios

IN_POD = {"POD_NAMESPACE": "streams"}


def result(status: DrillStatus, began_at: float, name: str = "kill-winner") -> DrillResult:
    return DrillResult(builtin_scenarios()[name], "servers", status, (), began_at, 100.0, 110.0)


@asynccontextmanager
async def gateway(program: Callable[[str], str], folder: Path) -> AsyncIterator[str]:
    """Run a Pushgateway and give its URL."""
    port = free_port()
    daemon = Daemon(
        [program("prometheus-pushgateway"), f"--web.listen-address=127.0.0.1:{port}"], folder / "gateway.log"
    )
    try:
        await daemon.logged("(listen_address=|Listening on)")
        yield f"http://127.0.0.1:{port}"
    finally:
        daemon.kill()


def held(url: str) -> dict[tuple[str, str, str], float]:
    """Return what the gateway holds of drills: values by metric, drill and namespace."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (one.name, one.labels["drill"], one.labels.get("namespace", "")): one.value
        for family in families
        for one in family.samples
        if one.name.startswith("lmerge_drill_")
    }


async def test_the_last_success_stays_when_a_run_fails(program: Callable[[str], str], tmp_path: Path) -> None:
    async with gateway(program, tmp_path) as url:

        def pushed(one: DrillResult) -> dict[tuple[str, str, str], float]:
            push(url, one, IN_POD)
            return held(url)

        passed = await asyncio.to_thread(pushed, result(DrillStatus.PASSED, 1_000.0))
        failed = await asyncio.to_thread(pushed, result(DrillStatus.FAILED, 2_000.0))
        other = await asyncio.to_thread(pushed, result(DrillStatus.PASSED, 3_000.0, "clock-apart"))
    success, run = "lmerge_drill_last_success_timestamp_seconds", "lmerge_drill_last_run_timestamp_seconds"
    assert passed == {(success, "kill-winner", "streams"): 1_010.0, (run, "kill-winner", "streams"): 1_010.0}
    assert failed == {**passed, (run, "kill-winner", "streams"): 2_010.0}
    assert other == {**failed, (success, "clock-apart", "streams"): 3_010.0, (run, "clock-apart", "streams"): 3_010.0}


async def test_two_installations_do_not_replace_each_others_results(
    program: Callable[[str], str], tmp_path: Path
) -> None:
    async with gateway(program, tmp_path) as url:
        for environment in (IN_POD, {"POD_NAMESPACE": "other"}, {}):
            await asyncio.to_thread(push, url, result(DrillStatus.PASSED, 1_000.0), environment)
        found = await asyncio.to_thread(held, url)
    assert {namespace for _, _, namespace in found} == {"streams", "other", ""}


async def test_what_the_gateway_refuses_is_named(program: Callable[[str], str], tmp_path: Path) -> None:
    odd = replace(result(DrillStatus.PASSED, 1.0), scenario=replace(builtin_scenarios()["kill-winner"], name='"'))
    async with gateway(program, tmp_path) as url:
        with pytest.raises(Unavailable, match=r": 400 .*parsing error"):
            await asyncio.to_thread(push, url, odd, IN_POD)


def test_a_gateway_that_does_not_answer_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=f"{url} has not taken the result of kill-winner: .*refused"):
        ReportFiles(pushgateway=url).write([result(DrillStatus.PASSED, 1.0)])


@pytest.mark.parametrize("url", ["pushgateway:9091", "ftp://h", "http://", "http://h:1/?a=b"])
def test_what_is_no_address_is_refused_before_anything_breaks(url: str) -> None:
    with pytest.raises(UsageError, match="a Pushgateway is named as http://HOST:PORT"):
        ReportFiles(pushgateway=url).check()
