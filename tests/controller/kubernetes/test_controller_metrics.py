"""What a controller exports, as the page of metrics lists it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lmerge_controller.kubernetes.cluster_copy import ClusterCopy
from lmerge_controller.kubernetes.controller_metrics import ControllerMetrics
from lmerge_controller.plan.conditions import ConditionType

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def own_metrics() -> ControllerMetrics:
    unused: Any = None
    return ControllerMetrics(ClusterCopy(unused, "n", lambda _: None))


def test_the_page_lists_exactly_what_a_controller_exports() -> None:
    _, _, text = PAGE.read_text().partition("\n## What a controller exports\n")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\|", text, re.MULTILINE)
    found = {
        f"{f.name}_total" if f.type == "counter" else f.name: (f.type, ", ".join(getattr(f, "_labelnames", ())))
        for f in own_metrics().registry.collect()
        if f.name.startswith("lmerge_")
    }
    assert {name: (kind, labels) for name, kind, labels in rows} == found


def test_the_process_is_reported_and_its_version() -> None:
    families = {f.name: f for f in own_metrics().registry.collect()}
    assert {"process_resident_memory_bytes", "python_info", "process_cpu_seconds"} <= families.keys()
    (build,) = families["lmerge_build_info"].samples
    assert re.fullmatch(r"\d+\.\d+\.\d+", build.labels["version"])


def test_a_query_has_a_series_for_each_condition() -> None:
    listed = len(ConditionType) + 1  # and whether the definition is current
    assert f"A query has {listed} series" in PAGE.read_text()
