"""All settings of a server, with the reason for each default beside it.

The CLI or a test makes them, and the whole service reads them. They never change: a server is restarted to change them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from lmerge.core.batch import AnyBatch
from lmerge.core.engines import selection
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.policy import Policy, parse_policy
from lmerge.core.properties import R3_MINUS, Case
from lmerge.core.resume import resumed
from lmerge.errors import UsageError
from lmerge.loopback import is_loopback
from lmerge.service.choices import DivergencePolicy, StoreSync, TransportChoice
from lmerge.wire import limits
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import BatchLimits
from lmerge.wire.names import check_name

MERGE_FIELD: Final = "{merge}"
PORTS: Final = ("port", "http_port")  # 0: any that is free
MAY_BE_ZERO: Final = (*PORTS, "feedback_lag", "evidence_bytes", "staged_bytes")
# R0-R2 emit what one input delivers before inputs can agree on it.
_EMIT_AT_ONCE: Final = tuple(case.algorithm for case in Case if case < Case.R3)
TURN_ELEMENTS: Final = {selection.PYTHON: 4096, selection.NATIVE: 32_768}


@dataclass(frozen=True)
class Settings:
    """The settings of a server.

    ``http_port`` None: no HTTP at all. ``merges``: declared ones, which exist from the start. ``record_path``: the file
    of a recorded session; with ``{merge}`` in it, one file for each merge.
    """

    host: str = "127.0.0.1"
    port: int = 0
    http_port: int | None = 0

    algorithm: str = "auto"
    policy: str = "lazy"
    closing: str = "all"
    # How far one input may be ahead of the next, in the stream's own units of time. Beyond it the input's stable is
    # held (core/lead.py). None: no bound. It must be larger than the usual skew of the replicas, so no default fits.
    lead_max: int | None = None
    # How long, before the output's first stable, the merge waits for inputs that have delivered no stable while another
    # input's stable is held: longer than a replica takes to send its live events.
    lead_wait_s: float = 10.0
    allow_downgrade: bool = False
    # AUTO: the native engine where it was built. Both engines give the same output.
    engine: str = selection.AUTO
    # What serves the gRPC port. AUTO: the native transport if the engine is the native one.
    transport: str = TransportChoice.AUTO
    # Threads among which each merge is divided, by key: for streams that outgrow a core; see docs/design/0003.
    shards: int = 1
    # Threads for the large turns of all merges, on the native engine. More threads than cores would only wait.
    merge_threads: int = os.cpu_count() or 1

    # Whether publishers may make merges, without an administrator. Turn it off where names are under control.
    allow_create: bool = True
    merges: tuple[str, ...] = ()
    record_path: str | None = None

    # Limits of the wire: see lmerge/wire/limits.py for the reasons.
    message_bytes: int = limits.MESSAGE_BYTES
    payload_bytes: int = limits.PAYLOAD_BYTES
    batch_elements: int = limits.BATCH_ELEMENTS

    # More than any replica set; status pages and the index's columns stay readable.
    inputs_per_merge: int = 64
    # Each merge is a task with an index. Names come from publishers, so their number must have a bound.
    merges_max: int = 1024
    # Encoded bytes are shared between subscribers, but each of them costs a write per batch.
    subscribers_per_merge: int = 1_024
    # Calls that wait for a merge that does not exist yet. Each is an open stream.
    waiting_subscribers: int = 1024

    # Elements and bytes of the batches that wait for their turn, per merge: about 0.2 s of the Python core's work. More
    # would only be delay. When the queue is full, HTTP/2 flow control holds the publishers.
    merge_queue_elements: int = 65_536
    merge_queue_bytes: int = 16 * 2**20
    # How far a subscriber may be behind before it is cut off: some seconds of a busy merge.
    subscriber_queue_bytes: int = 32 * 2**20
    # Elements of one turn of a merge: the longest time that other merges and sockets wait. None: about 10 ms of the
    # engine.
    turn_elements: int | None = None
    # At a low rate turns start this far apart: a turn costs about 0.1 ms, so turns cost at most 10 % of a core.
    turn_interval_s: float = 0.001
    # The distance grows up to this where turns take long (lmerge/linger.py). It is less than the time
    # for which a publisher waits for an ack.
    turn_interval_max_s: float = 0.010
    # The least distance for each subscriber, as an output is one message to each of them, at about 0.1 ms. So writing
    # takes at most half a core, whatever their number. 100 of them wait 20 ms for larger messages and keep up.
    turn_interval_per_subscriber_s: float = 0.0002

    # The longest time for which a publisher waits for its ack. An ack costs as much as a batch does.
    ack_interval_s: float = 0.025
    # The delay after which a publisher gets a stable point that others have moved, so that it can forget events.
    stable_ack_interval_s: float = 0.100
    # V.D: an input that is behind the merge by more than this, in the stream's own units of time, gets a fast-forward.
    # None: no input does. From which lag on skipping is worth its cost depends on the replica, so there is no default.
    feedback_lag: int | None = None
    # A lagging replica gets feedback at most this often, like an ack. What it computes in between is wasted. Where the
    # plans of a query alternate in being the fast one, each alternation waits for the feedback (bench/feedback.py).
    feedback_interval_s: float = 0.025
    # What happens when inputs differ: docs/divergence.md. Comparing costs a hash an element (bench/divergence.py).
    divergence: str = DivergencePolicy.ALARM
    # Length of the intervals that are compared, in units of time: long enough that each has events, short enough that
    # a difference is found soon.
    certify_interval: int = 60_000_000
    # Recent batches of one merge, kept to name the events that differ. 0: none.
    evidence_bytes: int = 64 * 2**20
    # Intervals of one input that are not complete yet, some 64 bytes each: enough for events that end 45 days ahead.
    certify_open_max: int = 65_536
    # Under quarantine: how long a stable waits for an input that is late for an interval. Then it goes on without the
    # comparison. Longer than the skew of healthy replicas.
    compare_wait_s: float = 10.0
    # Under hold: whether the end of all other inputs decides a disputed interval. Off: an administrator decides.
    hold_survivor_wins: bool = False
    # An input counts as redundant if it has reached the point at which the output was this long ago. Longer than the
    # skew of replicas, and than the time between two of their micro-batches.
    redundancy_lag_s: float = 30.0
    # Equal intervals in a row, and time, for a cutover whose request does not set them.
    cutover_intervals: int = 3
    cutover_timeout_s: float = 600.0
    # A subscriber receives something at least every two of these intervals. A longer silence is a fault.
    progress_interval_s: float = 1.0

    # Security: docs/security.md. Files in PEM; they are read again when they change.
    tls_cert: str | None = None
    tls_key: str | None = None
    # If set, every client must show a certificate that one of these authorities signed.
    tls_client_ca: str | None = None
    # The access file: tokens and what they allow; see lmerge/service/security/access_file.py.
    access_path: str | None = None
    # Listen beyond this machine without encryption, or for callers that are not identified: for networks that do both.
    insecure: bool = False
    # Reflection shows only what is public here anyway, but also to unidentified callers. None: on where callers are not
    # identified.
    reflection: bool | None = None
    # How often those files are read if they changed, running streams checked and merges measured. A revoked token ends
    # its streams within twice this time.
    check_interval_s: float = 1.0

    # Quotas. A publisher that lost its server comes back about once in 1.5 s (client/connection/backoff.py), at first
    # faster. Two publishers that fence each other all the time must not keep a merge busy.
    attach_rate_per_s: float = 5.0
    attach_burst: int = 50
    # All replicas of a machine come back at once when a server was restarted.
    peer_attach_rate_per_s: float = 100.0
    peer_attach_burst: int = 500
    # Wrong credentials, by peer: enough for a mistake in a deployment, too few to fill a log.
    refusal_rate_per_s: float = 1.0
    refusal_burst: int = 20
    # Connections of one peer that carry calls: a machine full of subscribers, or a proxy.
    connections_per_peer: int = 1024
    # Calls of one peer at a time of the methods that are open to all (health): probes are few and short.
    open_calls_per_peer: int = 64
    # Subscriptions of one identity at a time: a client that leaks them must not take all places of a merge.
    subscribers_per_identity: int = 128
    # Calls at a time on one connection; a client library needs a handful, a gateway hundreds.
    calls_per_connection: int = 1024
    # All connections of the gRPC port, but at most as many as the process may open. Above it new ones are dropped.
    connections_max: int = 8192
    # Of the HTTP port: a scraper and some probes need one each. Above either number the longest waiting one is closed.
    http_connections_max: int = 256
    http_connections_per_peer: int = 64
    # Subscribers of one merge that have series of their own in /metrics, those that lag most: whoever subscribes, the
    # number of series stays bounded.
    metrics_subscribers_max: int = 10
    # Time from the first byte of a request, or from the connection, to the end of its header. Probes send it at once.
    http_header_timeout_s: float = 5.0
    # Status pages that are open at a time, each with a connection and a message a second: all screens of a team, and
    # few enough that they cost nothing that counts (bench/status_page.py).
    page_viewers_max: int = 32
    # The time between two samples of a merge, and between two messages to a page. A death is shown at once.
    page_interval_s: float = 1.0
    # A page that has not read its last message for so long is dropped: its machine sleeps, or its link is cut.
    page_write_timeout_s: float = 10.0
    # The histories that are kept, and their samples: five minutes, so that who opens the page sees what came before. A
    # history takes 5 KB for each input; a sample of a merge takes some 50 us.
    page_history_merges: int = 64
    page_history_samples: int = 300
    # A peer that does not finish its handshake, or whose calls have ended, holds a place without use.
    handshake_timeout_s: float = 10.0
    idle_connection_s: float = 300.0
    # Live events of one merge, some hundred bytes each: about 2 GiB. Above it, the input that brought the most of late
    # is ended. It is measured once per check interval, so it can be exceeded by what comes in that time.
    live_events_max: int = 5_000_000

    # Payload bytes that one merge holds: live events, and what waits. The process takes about as much again for
    # indexes, queues and copies. lmerge/service/merge/payload_limit.py chooses the input to end above it.
    live_bytes_max: int = 2**30
    # Of these, what one input may bring. By default all; less if many merges must share a machine.
    live_bytes_per_input: int = 2**30

    # The history in which a subscriber can resume, of each merge, in memory or in its store: some seconds of a busy
    # merge, hours of a quiet one. ``retain_time``: in the stream's own units of time; None: bounded by bytes only.
    retain_bytes: int = 32 * 2**20
    retain_time: int | None = None
    # A resuming reader, and a restart, read at least the newest segment: some tenths of a second. Each segment begins
    # with a snapshot: at full speed half as many snapshots gave 10 % more (bench/durability.py).
    segment_bytes: int = 8 * 2**20
    # The folder of the store, a file for each merge. None: output is delivered at once, and a restart begins anew.
    store: str | None = None
    # full: delivered output survives a power failure. normal: it survives the end of the process only; commits are
    # faster.
    store_sync: str = StoreSync.FULL
    # Bytes that may wait to be committed, of each merge: as much as a slow disk writes in a tenth of a second.
    store_waiting_bytes: int = 16 * 2**20
    # The time between two attempts to write to a disk that is full, or fails.
    store_retry_s: float = 1.0
    # Threads that wait for disks. Each merge commits one transaction at a time.
    store_threads: int = 4
    # How long a merge with joining inputs only waits for an input that has the missing time. Then its output goes on
    # with a gap. Longer than a replica takes to connect again.
    gap_after_s: float = 10.0

    # Staged parts that wait for their commit. A replica needs two batches at most: some seconds of a busy one. The
    # publisher itself sends what does not fit.
    staged_bytes_per_replica: int = 128 * 2**20
    # Of all replicas. 0: none is kept.
    staged_bytes: int = 512 * 2**20
    # A query that has staged and committed nothing for this long has ended, or moved elsewhere.
    staged_keep_s: float = 600.0
    # One call of Stage, from its first message to its last. A part is complete before it is sent.
    stage_timeout_s: float = 30.0
    # Of one replica: a call for each task of a micro-batch, some hundred of them a few times a second.
    stage_rate_per_s: float = 500.0
    stage_burst: int = 5_000
    # At a time: as many as a large cluster runs tasks for one query.
    stage_calls_per_replica: int = 512

    # A stream without any message is not a publisher.
    attach_timeout_s: float = 30.0
    # How long a stream that ended for good waits until its publisher has read the reason.
    end_read_timeout_s: float = 5.0
    # A peer that vanished silently is noticed within the sum of the two.
    keepalive_s: float = 10.0
    keepalive_timeout_s: float = 5.0
    # Ended inputs that DescribeMerge still reports.
    detached_remembered: int = 32
    # Occurrences of one merge that the status page shows: an hour with a restart a minute and four entries for each.
    occurrences_remembered: int = 256
    # Changes of the algorithm that DescribeMerge reports. From R0 to R4 there are at most four, until a restart.
    switches_remembered: int = 16

    @property
    def batch_limits(self) -> BatchLimits:
        """The limits of one batch."""
        return BatchLimits(self.batch_elements, self.payload_bytes, self.message_bytes)

    def turn_elements_of(self, engine: str) -> int:
        """Return ``turn_elements`` for a merge on ``engine``."""
        return TURN_ELEMENTS[engine] if self.turn_elements is None else self.turn_elements

    @property
    def transport_security(self) -> str:
        """The security of connections: ``none``, ``tls`` or ``mtls``."""
        if self.tls_cert is None:
            return "none"
        return "tls" if self.tls_client_ca is None else "mtls"

    @property
    def identifies_callers(self) -> bool:
        """Whether callers must show a certificate or a token."""
        return self.access_path is not None or self.tls_client_ca is not None

    def limits_message(self) -> pb.Limits:
        """Return the limits as peers receive them."""
        return pb.Limits(
            message_bytes=self.message_bytes,
            payload_bytes=self.payload_bytes,
            batch_elements=self.batch_elements,
            inputs_per_merge=self.inputs_per_merge,
            merges=self.merges_max,
            subscriber_queue_bytes=self.subscriber_queue_bytes,
            staged_bytes=self.staged_bytes,
            staged_bytes_per_replica=min(self.staged_bytes, self.staged_bytes_per_replica),
            live_bytes=self.live_bytes_max,
        )

    @property
    def resolved_engine(self) -> str:
        """The engine that runs here, ``python`` or ``native``. Raises UsageError if it is not available."""
        return selection.resolve(self.engine)

    @property
    def divergence_policy(self) -> DivergencePolicy:
        return DivergencePolicy(self.divergence)

    @property
    def output_policy(self) -> Policy:
        """The policy with the bound of the lead. Raises UsageError."""
        policy = parse_policy(self.policy)
        return policy if self.lead_max is None else replace(policy, lead_max=self.lead_max)

    @property
    def merge_config(self) -> MergeConfig:
        """The configuration of every merge of this server. Raises UsageError."""
        return MergeConfig(
            self.algorithm,
            self.output_policy,
            self.closing,
            allow_downgrade=self.allow_downgrade,
            engine=self.engine,
            shards=self.shards,
        )

    def new_merge(self) -> Merge:
        """Make a merge with these settings. Raises UsageError if they do not fit together."""
        return Merge(self.merge_config)

    def resumed_merge(
        self, live: AnyBatch, stable_point: int, running: str, incarnations: Mapping[str, int], right_from: int
    ) -> Merge:
        """Make a merge that goes on after a restart. Raises UsageError if these settings do not allow it."""
        return resumed(live, stable_point, running, self.merge_config, incarnations=incarnations, right_from=right_from)

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
        if self.transport not in tuple(TransportChoice):
            raise UsageError(f"unknown transport {self.transport!r}; it is {', '.join(TransportChoice)}")
        if self.divergence not in tuple(DivergencePolicy):
            raise UsageError(f"unknown divergence policy {self.divergence!r}; it is {', '.join(DivergencePolicy)}")
        if self.divergence_policy.withholds_stables and self.algorithm in _EMIT_AT_ONCE:
            raise UsageError(
                f"divergence {self.divergence} needs r3 or r4: {self.algorithm} emits at once what one input delivers"
            )
        self._check_sizes()
        if not self.allow_create and not self.merges:
            raise UsageError("merges must be declared if publishers cannot make them (allow_create is off)")
        for name in self.merges:
            check_name("merge", name)
        if len(self.merges) > self.merges_max:
            raise UsageError(f"{len(self.merges)} declared merges are more than merges_max ({self.merges_max})")
        self._check_record_path()
        self._check_store()
        self._check_security()

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

    def _check_store(self) -> None:
        if self.store_sync not in tuple(StoreSync):
            raise UsageError(f"store_sync must be {' or '.join(StoreSync)}, not {self.store_sync!r}")
        if self.store is not None and self.algorithm == R3_MINUS:
            raise UsageError("r3- is kept for comparison and cannot go on after a restart: no store with it")

    def _check_security(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("tls_cert and tls_key go together: a certificate, and the key that belongs to it")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise UsageError("tls_client_ca needs tls_cert and tls_key: client certificates are shown over TLS only")
        for name in (
            "attach_rate_per_s",
            "peer_attach_rate_per_s",
            "refusal_rate_per_s",
            "stage_rate_per_s",
            "check_interval_s",
        ):
            if getattr(self, name) == 0:
                raise UsageError(f"{name} must be above 0")
        if self.insecure or is_loopback(self.host):
            return
        lacks = []
        if self.tls_cert is None:
            lacks.append("connections would not be encrypted (give tls_cert and tls_key)")
        if not self.identifies_callers:
            lacks.append("anybody could publish and read (give access_path or tls_client_ca)")
        if lacks:
            raise UsageError(
                f"cannot listen on {self.host}, which others can reach: {'; '.join(lacks)}; "
                "or set insecure, if the network takes care of it"
            )
