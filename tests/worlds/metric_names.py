"""The names of the metrics that processes of lmerge export, and those that an expression of PromQL uses."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from pathlib import Path

from prometheus_client.core import Metric

from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge_controller.drill.report.metrics import report_metrics

FROM_DRILLS = frozenset(re.findall(r"# TYPE (\w+)", report_metrics([])))
FROM_CONTROLLERS = frozenset(("lmerge_controller_leader_bool",))
"""What alerts use of them; the proof by a real fault has it from a real controller."""
FROM_SPARK = frozenset(
    re.findall(
        r"^\| `(lmerge_spark_\w+)` \|", (Path(__file__).parents[2] / "docs/metrics.md").read_text(), re.MULTILINE
    )
)
"""As the page of metrics lists them; tests/spark compares it with what a driver exports."""
FROM_PROMETHEUS = frozenset(("up",))
"""What Prometheus itself adds for each target."""


@cache
def exported_names() -> frozenset[str]:
    """Return the names of the samples of a server with one merge, of drills, of controllers, and ``up``."""

    async def scrape() -> list[Metric]:
        server = Server(Settings(port=0, http_port=None, merges=("m",)))
        await server.start()
        families = list(server.metrics.collect())
        await server.stop(0.0)
        return families

    return (
        FROM_PROMETHEUS
        | FROM_SPARK
        | FROM_DRILLS
        | FROM_CONTROLLERS
        | {
            family.name + suffix
            for family in asyncio.run(scrape())
            for suffix in (
                ["_total"]
                if family.type == "counter"
                else ["_bucket", "_sum", "_count"]
                if family.type == "histogram"
                else [""]
            )
        }
    )


def names_in(expression: str) -> set[str]:
    """Return the names of metrics in an expression: ``up``, and what begins as metrics of lmerge do."""
    without_texts = re.sub(r'"[^"]*"', "", expression)
    return set(re.findall(r"\b(?:up|(?:lmerge|process|python)_\w+)\b", without_texts))
