"""Errors stand in their drawn tree, and metrics are named ``lmerge_<noun>_<unit>``."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

import lmerge.errors
from lmerge.client.metrics import ClientMetrics
from lmerge.service.server import Server
from lmerge.service.settings import Settings

METRIC_UNITS = (
    "elements",
    "inputs",
    "subscribers",
    "turns",
    "seconds",
    "events",
    "losses",
    "time",
    "bytes",
    "bool",
    "info",
    "calls",
    "intervals",
    "gaps",
    "parts",
    "commits",
    "state",
    "merges",
    "messages",
    "skips",
    "errors",
    "reconnects",
    "resyncs",
    "batches",
)


def drawn(tree: str) -> dict[str, str | None]:
    """Return the classes of a drawn tree, each with its parent."""
    found: dict[str, str | None] = {}
    path: list[str] = []
    for line in tree.splitlines():
        match = re.fullmatch(r"    ((?:[│ ] {3})*)([├└]── )?([A-Z]\w+)(?: +\S.*)?", line)
        if match is not None:
            depth = len(match[1]) // 4 + (match[2] is not None)
            found[match[3]] = path[depth - 1] if depth else None
            path[depth:] = [match[3]]
    return found


def misnamed(families: Iterable[Metric]) -> list[str]:
    """Return metrics that are not ``lmerge_<noun>_<unit>``; the library adds ``_total`` to counters."""
    return [f.name for f in families if not re.fullmatch(rf"lmerge(?:_[a-z]+)*_(?:{'|'.join(METRIC_UNITS)})", f.name)]


def test_every_error_is_drawn_in_the_tree() -> None:
    errors = {
        name: None if kind.__base__ is Exception else str(getattr(kind.__base__, "__name__", ""))
        for name, kind in vars(lmerge.errors).items()
        if isinstance(kind, type)
    }
    assert len(errors) > 10
    assert drawn(inspect.getdoc(lmerge.errors) or "") == errors


def test_metrics_are_named_lmerge_noun_unit() -> None:
    async def scrape() -> list[Metric]:
        server = Server(Settings(port=0, http_port=None, merges=("m",)))
        await server.start()
        families = list(server.metrics.collect())
        await server.stop(0.0)
        return families

    families = asyncio.run(scrape())
    assert len(families) > 15
    own = [family for family in families if not family.name.startswith(("process_", "python_"))]
    assert len(families) - len(own) == 10, "those of the process have the names that every process has"
    assert misnamed(own) == []


def test_metrics_of_clients_are_named_likewise() -> None:
    families = list(ClientMetrics(CollectorRegistry()).collect())
    assert len(families) > 15
    assert misnamed(families) == []


def test_an_error_that_is_not_in_its_place_in_the_tree_is_found() -> None:
    tree = "A tree of Names.\n\n    Root\n    ├── One      with a Name in its text\n    │   └── Two\n    └── Three\n"
    assert drawn(tree) == {"Root": None, "One": "Root", "Two": "One", "Three": "Root"}


@pytest.mark.parametrize(
    ("family", "is_right"),
    [
        (CounterMetricFamily("lmerge_late_elements", ""), True),
        (CounterMetricFamily("lmerge_late_elements_total", ""), True),
        (GaugeMetricFamily("lmerge_queue_bytes", ""), True),
        (GaugeMetricFamily("lmerge_queue_bytes_total", ""), False),
        (GaugeMetricFamily("lmerge_queue", ""), False),
        (GaugeMetricFamily("lmerge_queue_size", ""), False),
        (CounterMetricFamily("late_elements", ""), False),
        (CounterMetricFamily("lmerge_Late_elements", ""), False),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_metric_without_a_unit_is_found(family: Metric, is_right: bool) -> None:
    assert (misnamed([family]) == []) is is_right
