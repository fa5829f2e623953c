"""Helpers for the tests of the wire: batches of all shapes, and their form on each engine."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from lmerge.core.batch import AnyBatch, Batch, BatchBuilder, Row
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE
from lmerge.core.engines import selection
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.frames import ReceivedLists
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import DEFAULT_LIMITS, BatchLimits

COLUMNS: Final = ("kinds", "vs", "ve", "vold", "payload_ends", "payloads")

# One engine for all examples of a test is intended; and no test depends on speed.
per_engine: Final = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)


def own(engine: str, batch: Batch) -> AnyBatch:
    """Return the batch in the engine's own form."""
    if engine != selection.NATIVE:
        return batch
    from lmerge.core.engines.native_engine import columns_of

    return columns_of("a test", batch)


def decode(engine: str, message: pb.Batch, limits: BatchLimits = DEFAULT_LIMITS) -> AnyBatch:
    """Return the engine's batch that ``message`` holds."""
    received = frames_of(engine).read_subscribe(pb.SubscribeResponse(batch=message).SerializeToString())
    assert isinstance(received, ReceivedLists) is (engine == selection.PYTHON), "the engine reads its own batches"
    assert not isinstance(received, pb.SubscribeResponse)
    return received.decode(limits)


def encode(engine: str, batch: AnyBatch) -> pb.Batch:
    """Return what the engine writes of its own batch."""
    return pb.SubscribeResponse.FromString(frames_of(engine).encode_subscribe([batch])).batch


def plain(batch: AnyBatch) -> Batch:
    """Return the batch as Python's lists, to be compared."""
    builder = BatchBuilder()
    builder.extend(batch)
    return builder.build()


def rows(kinds: st.SearchStrategy[int], payloads: st.SearchStrategy[bytes]) -> st.SearchStrategy[Row]:
    """Draw elements as rows, legal or not, but such as a batch can hold."""
    times = st.integers(NEG_INF, INF) | st.integers(-2, 2)

    def row(kind: int, vs: int, ve: int, vold: int, payload: bytes) -> Row:
        if kind == STABLE:
            return kind, vs, 0, 0, b""
        return kind, vs, ve, vold if kind == ADJUST else 0, payload

    return st.builds(row, kinds, times, times, times, payloads)


def batch_of(rows: list[Row]) -> Batch:
    builder = BatchBuilder()
    builder.rows = list(rows)
    return builder.build()


# All stables, no adjusts, mixed, and payloads that are all empty: what decides which columns the wire leaves out.
shapes: Final = st.one_of(
    st.lists(rows(st.just(STABLE), st.just(b"")), max_size=8),
    st.lists(rows(st.sampled_from((INSERT, STABLE)), st.binary(max_size=9)), max_size=12),
    st.lists(rows(st.sampled_from((INSERT, ADJUST, STABLE)), st.binary(max_size=200)), max_size=12),
    st.lists(rows(st.sampled_from((INSERT, ADJUST)), st.just(b"")), max_size=8),
).map(batch_of)
