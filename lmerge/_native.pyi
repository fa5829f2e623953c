"""The native core, built from native/python. It is absent where there was no cargo at installation."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, final

from lmerge.core.batch import Batch, Row
from lmerge.core.elements import Element

__version__: Final[str]

class DecodeError(Exception):
    """Columns that cannot be a batch. ``args[0]``: the message; ``is_limit``: whether a limit was exceeded."""

    is_limit: bool

@final
class Columns:
    """An immutable batch: columns received from the wire, or written by the core. Structurally a Batch."""

    @staticmethod
    def of(batch: Batch) -> Columns:
        """Return the elements as columns. Raises OverflowError or TypeError if a value does not fit its column."""
    @staticmethod
    def decode(
        kinds: bytes,
        vs: bytes,
        ve: bytes,
        vold: bytes,
        payload_ends: bytes,
        payloads: bytes,
        elements_max: int,
        payload_bytes_max: int,
    ) -> Columns:
        """Return the batch of these wire columns, without a copy; nothing is trusted. Raises DecodeError."""
    @staticmethod
    def concat(batches: Sequence[Columns]) -> Columns: ...
    @property
    def count(self) -> int: ...
    @property
    def kinds(self) -> bytes: ...
    @property
    def vs(self) -> list[int]: ...
    @property
    def ve(self) -> list[int]: ...
    @property
    def vold(self) -> list[int]: ...
    @property
    def payloads(self) -> list[bytes]: ...
    @property
    def payload_sizes(self) -> tuple[int, int]:
        """Bytes of all payloads together, and of the largest; 0 if there is none."""
    def __len__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def elements(self) -> Iterator[Element]: ...
    def element(self, i: int) -> Element: ...
    def rows(self, start: int = 0) -> Iterator[Row]: ...
    def slice(self, start: int, stop: int) -> Columns:
        """Return the elements from ``start`` up to, not including, ``stop``; shares the bytes."""
    def counts(self, stop: int) -> tuple[int, int, int]:
        """Return the numbers of inserts, adjusts and stables among the first ``stop`` elements."""
    def end_bounds(self, samples: int) -> tuple[int, int, list[int]]:
        """Return the largest end and former end, the smallest former end, and so many ends of inserts at most."""
    def split(self, elements_max: int, bytes_max: int) -> list[Columns]:
        """Return pieces in order, each within both limits. ``bytes_max``: of the columns. One element always fits."""

@final
class Message:
    """The bytes of a message that came, not copied yet."""

    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...

@final
class Call:
    """One call of a peer. None of its methods waits."""

    @property
    def id(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def peer(self) -> str:
        """The peer's address, in gRPC's notation."""
    @property
    def metadata(self) -> list[tuple[str, str | bytes]]: ...
    @property
    def certificate(self) -> tuple[str, list[str], list[str]] | None:
        """The common name, URIs and DNS names of the peer's certificate; None if it has shown none."""
    def read(self) -> Message | bool | None:
        """Return a message; True if there will be none; False if the call is over; None if an event will come."""
    def write(self, answer: bytes) -> bool | None:
        """Add an answer. True: there is room for another; False: the call is over; None: an event will come."""
    def start(self, metadata: Sequence[tuple[str, str | bytes]]) -> None:
        """Send the first metadata. Raises ValueError."""
    def finish(self, code: int, message: str, metadata: Sequence[tuple[str, str | bytes]]) -> None:
        """End the call. Only the first end counts. Raises ValueError for metadata that cannot be sent."""
    @property
    def is_full(self) -> bool:
        """Whether a writer has to wait; an event will come then."""
    @property
    def is_gone(self) -> bool:
        """Whether the peer has gone."""

@final
class ClientTls:
    """Certificates of a client, in PEM, and the authorities of its servers."""

    def __new__(cls, ca: bytes, key: bytes | None = None, certificate: bytes | None = None) -> ClientTls:
        """Raise ValueError for files that cannot be used."""

@final
class ClientCall:
    """A call to a server. None of its methods waits. One that is dropped is cancelled."""

    @property
    def id(self) -> int: ...
    def read(self) -> Message | bool | None:
        """Return a message; None if an event will come; False if there will be none: the call has its status."""
    def write(self, request: bytes) -> bool | None:
        """Add a request. True: there is room for another; None: an event will come; False: it cannot be sent."""
    def room(self) -> bool | None:
        """Return the same as ``write``, without a request."""
    def end_requests(self) -> None:
        """Declare that there will be no more requests."""
    @property
    def headers(self) -> list[tuple[str, str | bytes]] | None:
        """The server's first metadata; None as long as an event will come for them."""
    @property
    def status(self) -> tuple[int, str, list[tuple[str, str | bytes]]] | None:
        """The code, the text and the trailing metadata; None before the end, for which an event comes."""
    def cancel(self) -> None:
        """End the call now. What was not read is dropped."""

@final
class Channel:
    """Calls to one server over one connection, which is made when a call needs it."""

    def __new__(
        cls,
        authority: str,
        *,
        tls: ClientTls | None,
        server_name: str,
        attempt_s: float,
        receive_bytes: int,
        keepalive_s: float,
        keepalive_timeout_s: float,
    ) -> Channel:
        """``server_name``: for TLS. Raises ValueError for a name that is none, and OSError."""
    @property
    def file(self) -> int:
        """The file that can be read while events wait."""
    @property
    def is_ready(self) -> bool:
        """Whether a connection is open on which the server has answered."""
    def open(
        self, path: str, metadata: Sequence[tuple[str, str | bytes]], deadline_s: float | None = None
    ) -> ClientCall:
        """Open a call, which may take ``deadline_s``. Raises ValueError for metadata that cannot be sent."""
    def events(self) -> list[int]:
        """Return the numbers of the calls for which something has come."""
    def close(self) -> None:
        """Let the connection end when its calls have."""

@final
class Transport:
    """A gRPC port: its own threads do the I/O, and the owner runs the calls."""

    def __new__(
        cls,
        *,
        receive_bytes: int,
        connections: int,
        calls_per_connection: int,
        handshake_s: float,
        idle_s: float,
        keepalive_s: float,
        keepalive_timeout_s: float,
        threads: int,
    ) -> Transport: ...
    @property
    def file(self) -> int:
        """The file that can be read while events wait."""
    def listen(self, host: str, port: int) -> int:
        """Accept connections on all addresses of a host; return the port. Raises OSError."""
    def set_tls(self, key: bytes, certificate: bytes, client_ca: bytes | None = None) -> None:
        """Use these files in PEM for new connections. Raises ValueError."""
    def events(self) -> list[Call | int]:
        """Return what has happened: a call was opened, or something has come for the call of this number."""
    def drain(self) -> None:
        """Accept no more connections and no more calls."""
    def close(self, wait_s: float) -> None:
        """Wait up to ``wait_s`` until the connections have ended, then close those left, and end the threads."""

@final
class Received:
    """A batch from a message; its columns are not checked yet."""

    @property
    def sequence(self) -> int:
        """The sequence number of a PublishRequest, otherwise 0."""
    def decode(self, elements_max: int, payload_bytes_max: int) -> Columns:
        """Return the batch, without a copy; nothing is trusted. Raises DecodeError."""

def read_publish(message: bytes | Message) -> Received | None:
    """Return the batch of a PublishRequest; None if it has another content, or protobuf must decide about the bytes."""

def read_subscribe(message: bytes | Message) -> Received | None:
    """Return the batch of a SubscribeResponse; None if it has another content, or protobuf must decide about it."""

def encode_publish(sequence: int, batches: Sequence[Columns]) -> bytes:
    """Return a PublishRequest with these batches as one. Raises OverflowError above 4 GiB of payloads."""

def encode_subscribe(batches: Sequence[Columns]) -> bytes:
    """Return a SubscribeResponse with these batches as one. Raises OverflowError above 4 GiB of payloads."""

def pack_elements(
    batches: Sequence[Any], shards: int, has_order: bool
) -> tuple[list[tuple[Columns, bytes, int, int] | None], bool] | None:
    """Return the elements of record batches for each shard, and whether an element is for all shards.

    For each shard: its elements by their order, the bytes of the orders, the first and the last; None if there are
    none. ``has_order``: without a column of order, inserts come first, then adjusts, then stables. None if a row is no
    insert, adjust or stable, or a column has another type than ``lmerge.spark.merging.packs`` gives it.
    """

def divide(columns: Columns, shards: int, order: int) -> tuple[list[tuple[Columns, bytes, int, int] | None], bool]:
    """Return the elements of a batch, all of one order, as ``pack_elements`` does."""

def in_order(packs: Sequence[tuple[Columns, bytes]], has_order: bool) -> Columns:
    """Return the elements of several packs by their orders. Raises ValueError if an element has no order."""

def element_rows(columns: Columns, shard: int, first: int) -> ArrowBatch | None:
    """Return inserts and adjusts as rows, whose orders count from ``first`` on; None if there is a stable."""

def element_columns(columns: Columns) -> ArrowBatch:
    """Return all elements of a batch as columns of Arrow: kind, vs, ve, vold, payload."""

def event_changes(batches: Sequence[Columns], parts: Sequence[Any], adds_up: bool) -> ArrowBatch | None:
    """Return what elements change in the sum of events, and the changes in record batches: vs, ve, payload, change.

    They are in order of (Ve, Vs, payload). ``adds_up``: one for each event; none that is 0. None for parts with other
    columns, or if the payloads do not fit into one array.
    """

def without_stables(columns: Columns) -> Columns:
    """Return the inserts and adjusts of a batch."""

@final
class Rows:
    """Converts rows of one schema between Arrow and payloads.

    Methods return None for data that they refuse; ``lmerge.wire.native_rows`` describes what happens then. Batches are
    objects with ``__arrow_c_array__`` whose columns are found by name. Other columns are not allowed.
    """

    def __init__(self, columns: Sequence[tuple[str, str, bool, int | None, int, list[Any]]]) -> None:
        """``columns``: name, type, nullable, round_digits, scale, children. Raises ValueError for an unknown type."""
    def payloads(self, batches: Sequence[Any]) -> list[bytes] | None:
        """Return the payloads of all rows, in order."""
    def inserts(self, batches: Sequence[Any], vs: str, ve: str | None) -> Columns | None:
        """Return an insert for each row.

        ``vs`` and ``ve`` name columns of times, which need not be columns of the schema. Without ``ve`` the events have
        no end.
        """
    def decode(self, payloads: Sequence[bytes] | Columns) -> ArrowBatch | None:
        """Return the rows of all payloads."""
    def first_doubt(self, columns: Columns, start: int) -> int | None:
        """Return the index of the first insert or adjust from ``start`` on whose payload is not certainly a row.

        None if there is none. ``lmerge.wire.fitting`` checks such a payload with the codec.
        """

@final
class ArrowBatch:
    """A record batch for any library with the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]: ...

@final
class Violation:
    """A broken promise, as numbers; ``lmerge.core.violations`` has the messages.

    ``detail``: last_vs for out-of-order, the input's stable point for the codes with ``stable``. ``ends``: the ends
    that the input has where ``code`` is unknown-event, None for none.
    """

    code: str
    slot: int
    index: int
    row: Row
    detail: int
    strictly: bool
    ends: list[int] | None

@final
class Tdb:
    """The live events of one stream (III.A). ``slot`` of its violations is 0."""

    def __init__(self, stable_point: int = ..., trimmed: int = ...) -> None:
        """``trimmed``: +inf if fully frozen events are dropped at once; otherwise they are kept until ``trim``."""
    @property
    def stable_point(self) -> int: ...
    @property
    def trimmed(self) -> int: ...
    @property
    def memory(self) -> tuple[int, int]:
        """Bytes allocated; bytes of the payloads in them."""
    def __len__(self) -> int:
        """Return the number of live events."""
    @property
    def at_most(self) -> int:
        """An upper bound of the number of live events, in O(1). ``len`` is exact, and indexes all waiting batches."""
    def apply(self, columns: Columns) -> Violation | None:
        """Apply a batch; elements before an offender have been applied. The batch may be kept and indexed later."""
    def apply_row(self, kind: int, vs: int, ve: int, vold: int, payload: bytes) -> Violation | None: ...
    def enter(self, vs: int, payload: bytes, ve: int) -> None:
        """Add a live event without checks, below the stable point too."""
    def trim(self, stable_point: int) -> None:
        """Drop the events that are fully frozen both at ``stable_point`` and at the stream's own stable point."""
    def prelude(self) -> Columns:
        """Return the live events as inserts in order of insertion, then the stream's stable point if it has one."""
    def live_events(self) -> Columns:
        """Return the live events as inserts, ordered by (vs, payload, ve)."""
    def live_ends(self, vs: int, payload: bytes) -> list[int]: ...
    def check(self) -> None:
        """Assert every invariant. Raises AssertionError."""

@final
class Core:
    """One running merge by slot numbers. Python handles names and messages. Every method releases the GIL."""

    def __init__(
        self,
        algorithm: str,
        show: str,
        reflects_adjusts: bool,
        quorum: int,
        quorum_percent: int,
        leader: str,
        lag: int,
        closing: int,
        track_live: bool,
        shards: int = 1,
        lead_max: int | None = None,
    ) -> None:
        """``algorithm``: r0 .. r4, r3-. ``show``: the values of policy.Show. ``closing``: 0 means all."""
    @property
    def algorithm(self) -> str: ...
    @property
    def max_stable(self) -> int: ...
    @property
    def announced(self) -> int: ...
    @property
    def node_count(self) -> int:
        """Size of the index: (Vs, payload) pairs; 0 under R0-R2."""
    @property
    def live_count(self) -> int | None:
        """Number of live output events, None where they are not tracked separately from the index."""
    @property
    def visits(self) -> int: ...
    @property
    def memory(self) -> tuple[int, int]:
        """Bytes allocated by the index and the live output; bytes of payloads stored in them."""
    @property
    def changes(self) -> int:
        """Inserts and adjusts in the output since the last ``take``."""
    @property
    def swept(self) -> int: ...
    def free_slot(self) -> int: ...
    def attach(self, slot: int, place: int, demands: int, join_at: int | None, observes: bool, joined: bool) -> None:
        """Attach an input, in order of attachment.

        ``demands``: bits 1 insert-only, 2 ordered, 4 strictly-ordered, 8 deterministic-ties, 16 key. The core adds the
        properties that ``strictly-ordered`` implies.
        """
    def demand(self, slot: int, demands: int) -> None:
        """Change the properties that the input must keep."""
    def remove(self, slot: int) -> None:
        """Remove the input and its entries."""
    def after_detach(self) -> None:
        """Let the inputs that remain decide again, on closing for example."""
    def admit(self, slot: int) -> None: ...
    def excuse(self, slot: int) -> None:
        """Do not measure the lead of others by the input until it has a new stable point."""
    def apply(self, slot: int, columns: Columns, start: int) -> Violation | None:
        """Merge the elements from ``start`` on.

        A violation has the index of the offender; the elements before it are merged.
        """
    def switch(self, algorithm: str, started: bool) -> None:
        """Run another algorithm. ``started``: it is more general, and the state is carried over."""
    def keep_delivered(self) -> None:
        """Keep what inputs deliver under R0-R2. To be called before an input attaches."""
    def repeats_a_key(self) -> bool:
        """Return whether two live events of the output, or of one input, have one (Vs, payload). R0-R2 only."""
    def take(self) -> tuple[Columns, list[int], list[Violation]]:
        """Return the results since the last call: output, slots that joined, promises found broken."""
    def input(self, slot: int) -> tuple[bool, int, int | None, int, int]:
        """Return joined, stable, last_vs (None before its first insert), tie_count, late."""
    def live_events(self) -> Columns | None:
        """Return inserts of all live output events, then stable(announced) if there is one.

        The inserts are ordered by (vs, payload, ve). None if the live events are not tracked.
        """
    def check(self) -> None:
        """Assert every invariant. Raises AssertionError."""
    def supporters(self, columns: Columns) -> list[int]:
        """Return, for each insert, how many inputs have that event now."""
    def state(self, with_nodes: bool = True) -> dict[str, bytes]:
        """Return the algorithm's fields of a snapshot, each as JSON text: those of Algorithm.state(), by name.

        ``with_nodes``: otherwise the list of nodes is empty, and ``node_block`` has them.
        """
    def node_block(self) -> bytes | None:
        """Return the nodes as ``lmerge.core.node_block`` describes; None if the algorithm has no index of nodes."""
    def live_state(self) -> bytes | None:
        """Return the live output's field of a snapshot as JSON text: sorted [vs, payload in base64, ve].

        None if it is not tracked.
        """
    def input_state(self, slot: int) -> dict[str, bytes]:
        """Return the fields of ``dump_input_state`` for an input, each as JSON text."""
    def load(self, state: dict[str, object], live: list[list[object]] | None) -> None:
        """Load the parsed results of ``state`` and ``live_state``. The inputs are attached already.

        Raises KeyError, TypeError or ValueError if the state is damaged.
        """
    def load_input(self, slot: int, fields: dict[str, object], excused: bool = False) -> None:
        """Load the parsed dynamic fields of an input.

        They are joined, stable, last_vs (None before its first insert), tie_count, late, at_last_vs, waiting, tie_order
        and tie_marks.
        """

@final
class Cleanse:
    """``core.comparison.cleanse.Cleanse`` on columns, for comparison. Raises InputViolation on a broken stream."""

    def __init__(self, name: str = "stream") -> None: ...
    @property
    def buffered(self) -> int:
        """Number of buffered events."""
    @property
    def memory(self) -> tuple[int, int]:
        """Bytes held, estimated; bytes of the buffered payloads."""
    def apply(self, columns: Columns) -> Columns:
        """Take a batch and return the events that can be released."""

@final
class Limit:
    """One hash-table probe per element: the minimal work of any merge by key. See native/core/src/limit.rs."""

    def __init__(self) -> None: ...
    def apply(self, columns: Columns) -> int:
        """Probe for every element. Returns how many keys were new."""

@final
class CountLimit:
    """One hash-table probe and one addition per key: the minimal work of any count by key."""

    def __init__(self) -> None: ...
    def apply(self, keys: bytes) -> int:
        """Count keys, 64-bit integers in native order. Returns how many different ones there were."""

@final
class Digests:
    """``lmerge.core.divergence.digests.PythonDigests`` on columns."""

    HASH: Final[str]

    def __init__(self, interval: int, starts: bool, open_max: int) -> None: ...
    @property
    def stable_point(self) -> int: ...
    @property
    def overflowed(self) -> bool: ...
    @property
    def open(self) -> int: ...
    def add(self, columns: Columns, stop: int) -> tuple[int | None, tuple[int, int] | None]:
        """Add the first ``stop`` elements.

        Returns the index of an element that the stream's own stable point forbids, and the first and last interval
        touched.
        """
    def take_below(self, bound: int | None) -> list[tuple[int, int, int, int, int]]:
        """Remove and return intervals below ``bound``, all if it is None, in order.

        Each is (interval, events, sum, starts, sum).
        """

@final
class ColumnForm:
    """The rows of one schema as columns. ``columns``: as those of ``Rows``."""

    def __init__(self, columns: Sequence[Any]) -> None: ...
    def batch(self, changes: list[Any], stable: int | None = None, mark: int | None = None) -> ColumnBatch:
        """Return changes (row, vs, old, new) as a batch. Raises TypeError or ValueError for values of another type."""
    def inserts(self, rows: Any, times: Any, stable: int | None = None, mark: int | None = None) -> ColumnBatch:
        """Return inserts as a batch, without a copy.

        ``rows``: a record batch with the schema's columns; its floats have no -0.0 and one NaN. ``times``: one with
        start and end of each, as int64. Raises TypeError, ValueError if they are not.
        """

    def elements(self, batches: Sequence[ColumnBatch]) -> Columns | None:
        """Return the elements of batches in their order, or None if they are refused: then Python writes them."""

@final
class ColumnTable:
    """The table of a result: what its batches add up to. One call at a time; the GIL is released."""

    def __init__(self, form: ColumnForm) -> None: ...
    def apply(self, batch: ColumnBatch) -> None:
        """Take a batch of the result."""
    def events(self) -> ColumnBatch:
        """Return the events as inserts, by start, row and end."""

@final
class ColumnBatch:
    """An immutable batch of changes as columns, with the stable point and the watermark behind them: a ``Delta``."""

    @property
    def stable(self) -> int | None: ...
    @property
    def mark(self) -> int | None: ...
    @property
    def is_empty(self) -> bool: ...
    def __len__(self) -> int: ...
    def marked(self, mark: int | None) -> ColumnBatch:
        """Return the same batch with another watermark."""
    def part(self, first: int, count: int) -> ColumnBatch:
        """Return changes from ``first`` on, without stable point and watermark, and without a copy."""
    def in_order(self, count: int) -> list[ColumnBatch]:
        """Return inserts as the batches of a source that ends: by start, each with the stable point that is allowed."""
    def changes(self) -> list[tuple[Any, int, int, int]]:
        """Return the changes as (row, vs, old, new)."""
    def blocks_by_window(
        self,
        grid: tuple[int, int, int, int | None],
        begun: int,
        reach: int,
        windows_max: int,
        keys: Sequence[int] | None = None,
        key_of: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None,
    ) -> dict[tuple[Any, ...], tuple[dict[int, RowBlock], RowBlock]] | None:
        """Return new events by group: blocks of rows by the starts of windows, and those that end from ``reach`` on.

        None if a change is no new event, an event has no first window, or opens more than ``windows_max`` windows.
        ``grid``: size, hop, offset, and the time before which no window begins. Windows begin until ``begun``.
        ``keys``: the columns of the key; else ``key_of`` returns that of a row; without either all have that of no
        columns.
        """
    def rows(self) -> ArrowBatch:
        """Return the rows of the changes as a record batch."""
    def times(self) -> ArrowBatch:
        """Return vs, old and new of the changes as a record batch of int64."""

@final
class RowBlock:
    """New events of one group as columns, in the order in which they came."""

    def __len__(self) -> int: ...
    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows. They are made once."""
    def events(self) -> list[tuple[tuple[Any, ...], int, int]]:
        """Return the events as (row, start, end)."""
    def ends(self) -> tuple[int | None, int | None, int | None]:
        """Return the first end, the last end, and the last one that is finite; None where there is none."""
    def overlapping(self, start: int, end: int) -> RowBlock:
        """Return the events whose lifetimes overlap ``[start, end)``."""
    def ending_after(self, t: int) -> RowBlock:
        """Return the events that end after ``t``."""
    def split(self, t: int) -> tuple[RowBlock, RowBlock]:
        """Return the events that start before ``t``, and the others."""

def block_values(blocks: Sequence[RowBlock], numbers: Sequence[int]) -> list[Any]:
    """Return the rows of columns of several blocks in their order: tuples, or values of a single column."""

def block_arrays(blocks: Sequence[RowBlock], numbers: Sequence[int]) -> ArrowBatch:
    """Return columns of several blocks as a record batch, in the order of its rows."""

@final
class ColumnEntrance:
    """A native ``StreamEntrance``. One call at a time; the GIL is released."""

    def __init__(
        self,
        name: str,
        form: ColumnForm,
        rule: tuple[int, int, int] | None,
        late: str,
        has_points: bool,
        promises: Sequence[str],
    ) -> None:
        """``rule``: delay, every and events; ``promises``: closed. Raises ValueError."""
    def take(self, changes: ColumnBatch, stables: Sequence[tuple[int, int]]) -> list[ColumnBatch]:
        """Return the batches of changes. ``stables``: how many changes are before each, and the stable point."""
    def advance(self, latest: int) -> list[ColumnBatch]: ...
    @property
    def mark(self) -> int: ...
    @property
    def stable(self) -> int:
        """The stable point of the live events."""
    @property
    def late(self) -> tuple[int, int]:
        """How many changes were dropped, and how many were moved."""
    def live(self) -> int: ...
    def events(self) -> ColumnBatch:
        """Return the live events as inserts, by start, row and end."""
    def state(self) -> dict[str, Any]: ...
    def packed_state(self) -> bytes:
        """Return the state as MessagePack."""
    def restore_packed(self, state: bytes) -> None:
        """Take a state that ``packed_state`` has returned."""
    def restore(self, state: dict[str, Any]) -> None: ...
    def check(self) -> None: ...

@final
class Expressions:
    """The expressions of one operator, for rows of one schema. Equal parts of them are evaluated once a batch."""

    def __init__(
        self,
        form: ColumnForm,
        nodes: Sequence[tuple[str, tuple[Any, ...], Sequence[int], Any]],
        roots: Sequence[int],
        host: Any,
    ) -> None:
        """Make them of lowered nodes (``lmerge.temporal.expressions.lowering``). Raises ValueError.

        ``host``: an ``ExpressionHost`` (``lmerge.temporal.native.expressions``).
        """
    def evaluate(self, batch: ColumnBatch) -> ColumnBatch:
        """Return the batch with their values as rows. Raises the error of the first row that has one."""

@final
class TemporalOperator:
    """A native ``PlanOperator``. One call at a time; the GIL is released."""

    def __init__(
        self, name: str, inputs: Sequence[ColumnForm], output: ColumnForm, description: dict[str, Any]
    ) -> None:
        """Make an operator. ``description``: see ``lmerge.temporal.native.describing``. Raises ValueError."""
    def step(self, inputs: Sequence[ColumnBatch]) -> ColumnBatch: ...
    def mark_of(self, mark: int) -> int: ...
    def fast_forward(self, t: int) -> list[int]: ...
    def state(self) -> dict[str, Any]: ...
    def packed_state(self) -> bytes:
        """Return the state as MessagePack."""
    def restore_packed(self, state: bytes) -> tuple[int, int]:
        """Take a state that ``packed_state`` has returned. Return its stable point, and since when events count."""
    def restore(self, state: dict[str, Any]) -> None: ...
    def live(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def purged(self) -> int: ...
    def sizes(self) -> list[tuple[str, int]]: ...
    def check(self) -> None: ...
