"""Everything that can be set in a server, with the reason for each default beside it.

Made by the CLI or by tests, read by everything in the service, changed by nobody: a server is restarted to change.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from lmerge.core import engines
from lmerge.core.merge import Merge
from lmerge.errors import UsageError
from lmerge.wire import limits
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import BatchLimits

MERGE_FIELD: Final = "{merge}"
PORTS: Final = ("port", "http_port")  # 0: any that is free
MAY_BE_ZERO: Final = (*PORTS, "feedback_lag")
TURN_ELEMENTS: Final = {engines.PYTHON: 4096, engines.NATIVE: 32_768}


@dataclass(frozen=True)
class Settings:
    """``http_port`` None: no HTTP at all. ``merges``: declared ones, which exist from the start.

    ``record_path``: the file of a recorded session; with ``{merge}`` in it, one file for each merge.
    """

    host: str = "127.0.0.1"
    port: int = 0
    http_port: int | None = 0

    algorithm: str = "auto"
    policy: str = "lazy"
    closing: str = "all"
    allow_downgrade: bool = False
    # The fast one where it was built; both say the same.
    engine: str = engines.AUTO
    # Threads that share out each merge by payload: for streams that outgrow a core; see docs/design/0003.
    shards: int = 1
    # Threads in which the merges of a server do large turns, on the native engine: more than cores would only wait.
    merge_threads: int = os.cpu_count() or 1

    # Publishers should not need an administrator; turn it off where names are under control.
    allow_create: bool = True
    merges: tuple[str, ...] = ()
    record_path: str | None = None

    # Limits of the wire: see lmerge/wire/limits.py for the reasons.
    message_bytes: int = limits.MESSAGE_BYTES
    payload_bytes: int = limits.PAYLOAD_BYTES
    batch_elements: int = limits.BATCH_ELEMENTS

    # Names are labels of metrics and parts of messages, not documents.
    name_bytes: int = 200
    # More than any replica set; status pages and the index's columns stay readable.
    inputs_per_merge: int = 64
    # Each merge is a task with an index; names come from publishers, so their number must end somewhere.
    merges_max: int = 1024
    # Encoded bytes are shared between subscribers, but each of them costs a write per batch.
    subscribers_per_merge: int = 256
    # Calls that wait for a merge that does not exist yet; each is an open stream.
    waiting_subscribers: int = 1024

    # Batches that were received and wait for their turn, per merge: about 0.2 s of the Python core's work. More would
    # only be delay; when it is full, HTTP/2 flow control holds the publishers.
    merge_queue_elements: int = 65_536
    merge_queue_bytes: int = 16 * 2**20
    # What a subscriber may be behind before it is cut off: some seconds of a busy merge.
    subscriber_queue_bytes: int = 32 * 2**20
    # One turn of a merge, the longest that other merges and sockets wait; None: about 10 ms of the engine.
    turn_elements: int | None = None
    # At a low rate turns start this far apart: a message costs about 0.1 ms, so output costs at most 5 % of a core.
    turn_interval_s: float = 0.002

    # A publisher that waits for its ack waits no longer than this; an ack costs as much as a batch does.
    ack_interval_s: float = 0.025
    # How soon a publisher hears that others have moved the stable point, so that it can forget events.
    stable_ack_interval_s: float = 0.100
    # V.D: an input that is behind the merge by more than this, in the stream's own units of time, is told to
    # fast-forward. None: nobody is. What makes skipping worth it depends on the replica, so its user says it.
    feedback_lag: int | None = None
    # A lagging replica is told so at most this often: it cannot react faster than it handles a batch.
    feedback_interval_s: float = 0.100
    # A subscriber hears something at least this often (twice, to be exact), so that silence means trouble.
    progress_interval_s: float = 1.0

    # A stream that says nothing at all is not a publisher.
    attach_timeout_s: float = 30.0
    # A peer that vanished without a word is noticed within the sum of the two.
    keepalive_s: float = 10.0
    keepalive_timeout_s: float = 5.0
    # Ended inputs that DescribeMerge still tells of.
    detached_remembered: int = 32

    @property
    def batch_limits(self) -> BatchLimits:
        """What one batch may hold."""
        return BatchLimits(self.batch_elements, self.payload_bytes, self.message_bytes)

    def turn_elements_of(self, engine: str) -> int:
        """``turn_elements`` for a merge on ``engine``."""
        return TURN_ELEMENTS[engine] if self.turn_elements is None else self.turn_elements

    def limits_message(self) -> pb.Limits:
        """The limits as peers are told."""
        return pb.Limits(
            message_bytes=self.message_bytes, payload_bytes=self.payload_bytes, batch_elements=self.batch_elements,
            inputs_per_merge=self.inputs_per_merge, merges=self.merges_max,
            subscriber_queue_bytes=self.subscriber_queue_bytes,
        )

    @property
    def resolved_engine(self) -> str:
        """``python`` or ``native``: what ``engine`` means here. Raises UsageError if it cannot be had."""
        return engines.resolve(self.engine)

    def new_merge(self) -> Merge:
        """A merge as the settings say. Raises UsageError if they make no sense."""
        return Merge(
            self.algorithm, self.policy, self.closing, allow_downgrade=self.allow_downgrade, engine=self.engine,
            shards=self.shards,
        )

    def validate(self) -> None:
        """Raise UsageError if a value is impossible, or two of them do not go together."""
        self.new_merge()
        for name in PORTS:
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                raise UsageError(f"{name} must be between 0 and 65535, not {port}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "float" and not 0 <= value < float("inf"):
                raise UsageError(f"{field.name} must be at least 0 seconds, not {value}")
            is_count = field.type in ("int", "int | None") and field.name not in MAY_BE_ZERO
            if is_count and value is not None and value < 1:
                raise UsageError(f"{field.name} must be positive, not {value}")
        if self.feedback_lag is not None and self.feedback_lag < 0:
            raise UsageError(f"feedback_lag must be at least 0 units of time, not {self.feedback_lag}")
        self._check_sizes()
        if not self.allow_create and not self.merges:
            raise UsageError("merges must be declared if publishers cannot make them (allow_create is off)")
        if len(self.merges) > self.merges_max:
            raise UsageError(f"{len(self.merges)} declared merges are more than merges_max ({self.merges_max})")
        self._check_record_path()

    def _check_sizes(self) -> None:
        if self.payload_bytes + limits.ELEMENT_BYTES + limits.MESSAGE_OVERHEAD_BYTES > self.message_bytes:
            raise UsageError(
                f"payload_bytes {self.payload_bytes} does not fit into message_bytes {self.message_bytes}: "
                "every payload must fit into a batch"
            )
        if self.subscriber_queue_bytes < self.message_bytes:
            raise UsageError(
                f"subscriber_queue_bytes {self.subscriber_queue_bytes} must hold a message ({self.message_bytes} bytes)"
            )

    def _check_record_path(self) -> None:
        if self.record_path is None:
            return
        if MERGE_FIELD not in self.record_path and len(self.merges) > 1:
            raise UsageError(
                f"record_path {self.record_path!r} is one file for {len(self.merges)} merges; put {MERGE_FIELD} into it"
            )
        if not Path(self.record_path).parent.is_dir():
            raise UsageError(f"record_path {self.record_path!r}: there is no such folder")
