"""The metrics of inputs: what each has sent, how far it is behind, and its state.

Each attached input has the same number of series. Beside them, up to ``inputs_per_merge`` quarantined names of a merge
have series of their state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from lmerge.core.elements import NEG_INF
from lmerge.core.merge import InputStatus
from lmerge.service.admin.metrics_samples import time_value
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.lifecycle import LifeState

QUARANTINED: Final = "quarantined"
#: The values of the label ``state`` of an input.
STATES: Final = (*(str(state) for state in LifeState), QUARANTINED)


def input_families(hubs: list[Hub]) -> Iterator[Metric]:
    """Give the families of the inputs of ``hubs``."""
    yield from _counters(hubs)
    yield from _positions(hubs)
    yield from _states(hubs)
    yield from _feedback(hubs)


def _counters(hubs: list[Hub]) -> Iterator[Metric]:
    labels = ["merge", "input"]
    received = CounterMetricFamily("lmerge_input_elements", "Elements that the input has sent", labels=labels)
    won = CounterMetricFamily("lmerge_input_won_elements", "Output elements that the input caused", labels=labels)
    late = CounterMetricFamily("lmerge_input_late_elements", "Elements that came too late", labels=labels)
    for hub in hubs:
        for status in hub.state.observed.inputs:
            key = [hub.name, status.name]
            received.add_metric(key, status.inserts + status.adjusts + status.stables)
            won.add_metric(key, status.won)
            late.add_metric(key, status.late)
    yield from (received, won, late)


def _positions(hubs: list[Hub]) -> Iterator[Metric]:
    labels = ["merge", "input"]
    equal = GaugeMetricFamily("lmerge_input_equal_intervals", "Intervals in a row equal to the others'", labels=labels)
    stable = GaugeMetricFamily("lmerge_input_stable_point_time", "The input's own stable point", labels=labels)
    lag = GaugeMetricFamily("lmerge_input_lag_time", "Distance behind the furthest input", labels=labels)
    lag_s = GaugeMetricFamily(
        "lmerge_input_lag_seconds", "Time since the output passed the input's stable point", labels=labels
    )
    brought = GaugeMetricFamily(
        "lmerge_input_live_bytes", "Payload bytes of live events that the input brought first, about", labels=labels
    )
    now_s = asyncio.get_running_loop().time()
    for hub in hubs:
        state = hub.state
        statuses = state.observed.inputs
        front = max((s.stable_point for s in statuses if not s.held), default=NEG_INF)
        for status in statuses:
            key = [hub.name, status.name]
            brought.add_metric(key, state.payload_limit.share((status.name, status.incarnation)))
            equal.add_metric(key, state.certifier.equal_in_row(status.name))
            stable.add_metric(key, time_value(status.stable_point))
            behind = time_value(front) - time_value(status.stable_point) if front > status.stable_point else 0.0
            lag.add_metric(key, behind)
            lag_s.add_metric(key, lag_seconds(hub, status, now_s))
    yield from (equal, stable, lag, lag_s, brought)


def lag_seconds(hub: Hub, status: InputStatus, now_s: float) -> float:
    """Return how long ago the output passed the stable point of an input, in seconds; 0 if it has not.

    An input without a stable point lags since it attached. ``now_s``: the time of the loop's clock.
    """
    behind_s = hub.state.stable_history.behind_s(status.stable_point, now_s)
    attached = hub.inputs.get(status.name)
    if status.stable_point == NEG_INF and attached is not None:
        return min(behind_s, now_s - attached.attached_at)
    return behind_s


def _states(hubs: list[Hub]) -> Iterator[Metric]:
    joined = GaugeMetricFamily("lmerge_input_joined_bool", "1 if it counts as redundant", labels=["merge", "input"])
    states = GaugeMetricFamily(
        "lmerge_input_state", "1 for the state of the input, 0 for the others", labels=["merge", "input", "state"]
    )
    now_s = asyncio.get_running_loop().time()
    for hub in hubs:
        state = hub.state
        for status in state.observed.inputs:
            attached = hub.inputs.get(status.name)
            counts = attached is not None and not state.redundancy.lacks(status, attached.life, now_s)
            joined.add_metric([hub.name, status.name], counts)
            if attached is not None:
                _add_state(states, hub.name, status.name, str(attached.life.state(status)))
        gone = sorted(name for name in state.certifier.quarantined if name not in state.inputs)
        for name in islice(gone, state.settings.inputs_per_merge):
            _add_state(states, hub.name, name, QUARANTINED)
    yield from (joined, states)


def _feedback(hubs: list[Hub]) -> Iterator[Metric]:
    sent = CounterMetricFamily("lmerge_feedback_messages", "Fast-forwards sent to lagging inputs", labels=["merge"])
    skips = CounterMetricFamily("lmerge_feedback_skips", "Times that an input left out what is final", labels=["merge"])
    for hub in hubs:
        sent.add_metric([hub.name], hub.state.acks.fast_forwards)
        skips.add_metric([hub.name], hub.state.skips)
    yield from (sent, skips)


def _add_state(family: GaugeMetricFamily, merge: str, name: str, state: str) -> None:
    for one in STATES:
        family.add_metric([merge, name, one], one == state)
