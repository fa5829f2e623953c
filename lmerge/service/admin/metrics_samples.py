"""Values of lmerge as samples of Prometheus: times of a stream, and counted durations."""

from __future__ import annotations

from prometheus_client.core import HistogramMetricFamily

from lmerge.core.elements import INF, NEG_INF
from lmerge.histogram import DurationCounts


def time_value(t: int) -> float:
    """Return a time as a sample. The two infinities are the infinities of floats."""
    if t == INF:
        return float("inf")
    return float("-inf") if t == NEG_INF else float(t)


def add_durations(family: HistogramMetricFamily, labels: list[str], counts: DurationCounts) -> None:
    """Add counted durations, in seconds, as the samples with these labels."""
    family.add_metric(labels, counts.buckets(), sum_value=counts.sum_s)
