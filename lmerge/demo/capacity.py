"""How fast this machine can run `lmerge demo`: a measurement at the start, and the pace and the days that follow.

Called by `demo`. The measurement merges three days of flights as one server of the demo does, from bytes to bytes, on
one core, in about a second. All processes of the demo together cost a multiple of that. The replay takes only a part of
the cores, so that a process that starts again gets time. If the replay is still too fast, its clock slows it down
(`clock`).
"""

from __future__ import annotations

import os
import time
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

from lmerge.core.engines import selection
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import DEFAULT_LIMITS
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.stream import FlightStream
from lmerge_replicas.flights.style import STYLES
from lmerge_replicas.flights.timetable import Timetable

SAMPLE = Days(date(2013, 1, 1), date(2013, 1, 3))
# Two servers merge, four replicas make the streams, the subscriber reads two streams and merges them once more. Each
# process also starts Python and runs gRPC. Measured: the time of all processes together, in units of the sample.
WHOLE_PER_SAMPLE = 2.6
LOAD = 0.6  # the part of the cores that the replay may use
SPARK_CORES = 0.6  # what the JVM uses on a machine with more than one core
DAYS_MIN = 28  # fewer days do not show a year


class Capacity(NamedTuple):
    """What the machine can run. ``days_per_s``: the pace of a replay, beside the other processes of the demo."""

    days_per_s: float
    cores: float
    engine: str

    def __str__(self) -> str:
        cores = "one core" if self.cores == 1 else f"{self.cores:.3g} cores"
        return f"this machine ({cores}, {self.engine} engine) carries {self.days_per_s:.1f} days a second"


class FittedReplay(NamedTuple):
    """The days that are replayed, and in how many seconds."""

    days: Days
    seconds: float


def measure(*, has_spark: bool) -> Capacity:
    """Measure a merge of some flights and return the capacity. Raises UsageError if there are no flights."""
    cores = usable_cores()
    engine = selection.best()
    timetable = Timetable(SAMPLE)
    began_s = time.monotonic()
    _merge(timetable, engine)
    sample_s = time.monotonic() - began_s
    free = max(cores - (SPARK_CORES if has_spark else 0.0), cores / 2)
    days = (SAMPLE.last - SAMPLE.first).days + 1
    return Capacity(free * LOAD * days / (sample_s * WHOLE_PER_SAMPLE), cores, engine)


def fitted(requested: Days, seconds: float, days_per_s: float, *, may_shorten: bool) -> FittedReplay:
    """Return the days ``requested`` in ``seconds`` if the machine is fast enough.

    Otherwise the days are fewer, if ``may_shorten``, but not fewer than DAYS_MIN. If that is not enough, the replay
    takes more seconds.
    """
    count = (requested.last - requested.first).days + 1
    if may_shorten and count > days_per_s * seconds:
        count = min(count, max(DAYS_MIN, int(days_per_s * seconds)))
    last = requested.first + timedelta(days=count - 1)
    return FittedReplay(Days(requested.first, last), max(seconds, count / days_per_s))


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """Return the cores that this process may use, by its affinity and by the quota of a container."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        limit, period = quota.read_text().split()
        return cores if limit == "max" else min(cores, int(limit) / int(period))
    except (OSError, ValueError):
        return cores


def _merge(timetable: Timetable, engine: str) -> None:
    """Merge all flights of ``timetable`` in all styles, from encoded messages to encoded messages."""
    frames = frames_of(engine)
    merge = Merge(MergeConfig(engine=engine))
    streams = {name: FlightStream(timetable, style).steps() for name, style in STYLES.items()}
    for name, style in STYLES.items():
        merge.attach(name, style.properties)
    sequence = 0
    while streams:
        for name in list(streams):
            step = next(streams[name], None)
            if step is None:
                del streams[name]
                continue
            sequence += 1
            received = frames.read_publish(frames.encode_publish(sequence, [step.batch]))
            assert not isinstance(received, pb.PublishRequest)
            frames.encode_subscribe([merge.apply(name, received.decode(DEFAULT_LIMITS)).batch])
