"""The native core, built from native/python: see there. Absent where there was no cargo at installation."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

from lmerge.core.batch import Batch, Row
from lmerge.core.elements import Element

__version__: Final[str]

class DecodeError(Exception):
    """Columns that cannot be a batch. ``args[0]``: the message; ``is_limit``: whether a limit was exceeded."""

    is_limit: bool

@final
class Columns:
    """An immutable batch: the wire's columns as they came, or as the core wrote them. Structurally a Batch."""

    @staticmethod
    def of(batch: Batch) -> Columns:
        """The same elements as columns. Raises OverflowError or TypeError if a value does not fit its column."""
    @staticmethod
    def decode(
        kinds: bytes, vs: bytes, ve: bytes, vold: bytes, payload_ends: bytes, payloads: bytes,
        elements_max: int, payload_bytes_max: int,
    ) -> Columns:
        """The batch that these wire columns hold, without a copy; nothing is trusted. Raises DecodeError."""
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
    def payload_bytes(self) -> int:
        """Bytes of all payloads together."""
    @property
    def largest_payload(self) -> int:
        """Bytes of the largest payload; 0 if there is none."""
    def __len__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def elements(self) -> Iterator[Element]: ...
    def element(self, i: int) -> Element: ...
    def rows(self, start: int = 0) -> Iterator[Row]: ...
    def slice(self, start: int, stop: int) -> Columns:
        """The elements from ``start`` up to, not including, ``stop``; shares the bytes."""
    def counts(self, stop: int) -> tuple[int, int, int]:
        """Inserts, adjusts and stables among the first ``stop`` elements."""
    def split(self, elements_max: int, bytes_max: int) -> list[Columns]:
        """Pieces, in order, each of at most so many elements and bytes of columns; a single element always fits."""

@final
class Received:
    """A batch that came in a message; its columns have not been looked at yet."""

    @property
    def sequence(self) -> int:
        """Of a PublishRequest; 0 else."""
    def decode(self, elements_max: int, payload_bytes_max: int) -> Columns:
        """The batch, without a copy; nothing is trusted. Raises DecodeError."""

def read_publish(message: bytes) -> Received | None:
    """The batch of a PublishRequest; None if it carries something else, or protobuf must judge the bytes."""

def read_subscribe(message: bytes) -> Received | None:
    """The batch of a SubscribeResponse; None if it carries something else, or protobuf must judge the bytes."""

def encode_publish(sequence: int, batches: Sequence[Columns]) -> bytes:
    """A PublishRequest with these batches as one. Raises OverflowError above 4 GiB of payloads."""

def encode_subscribe(batches: Sequence[Columns]) -> bytes:
    """A SubscribeResponse with these batches as one. Raises OverflowError above 4 GiB of payloads."""

@final
class Rows:
    """Rows of one schema between Arrow and payloads. None: refused; ``lmerge.wire.native_rows`` says what that means.

    Batches are objects with ``__arrow_c_array__`` whose columns are found by name; no others may be there.
    """

    def __init__(self, columns: Sequence[tuple[str, str, bool, int | None, int, list[Any]]]) -> None:
        """Columns as name, type, nullable, round_digits, scale, children. ValueError: no such type."""
    def payloads(self, batches: Sequence[Any]) -> list[bytes] | None:
        """The payloads of all rows, in order."""
    def inserts(self, batches: Sequence[Any], vs: str, ve: str | None) -> Columns | None:
        """An insert for each row. ``vs`` and ``ve`` name columns of times, which may be others than the schema's;
        without ``ve`` events do not end.
        """
    def decode(self, payloads: Sequence[bytes] | Columns) -> ArrowBatch | None:
        """The rows of all payloads."""
    def first_doubt(self, columns: Columns, start: int) -> int | None:
        """The index of the first insert or adjust from ``start`` on whose payload is not certainly a row, None if there
        is none. ``lmerge.wire.fitting`` asks the codec about it.
        """

@final
class ArrowBatch:
    """A record batch for any library that knows the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]: ...

@final
class Violation:
    """A broken promise, as numbers; lmerge.core.violations has the words.

    ``detail``: last_vs for out-of-order, the input's stable point for the codes with ``stable``. ``ends``: the
    ends that the input has where ``code`` is unknown-event, None for none.
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
        """``trimmed``: +inf if fully frozen events are forgotten at once; otherwise they are kept until
        ``trim`` as well.
        """
    @property
    def stable_point(self) -> int: ...
    @property
    def trimmed(self) -> int: ...
    @property
    def memory(self) -> tuple[int, int]:
        """Bytes allocated; bytes of the payloads in them."""
    def __len__(self) -> int:
        """Number of live events."""
    @property
    def at_most(self) -> int:
        """No fewer than there are live events, in O(1): ``len`` indexes all that waits, this counts it whole."""
    def apply(self, columns: Columns) -> Violation | None:
        """Notice a batch; elements before an offender have been noticed. It may be kept as it is, and indexed later."""
    def apply_row(self, kind: int, vs: int, ve: int, vold: int, payload: bytes) -> Violation | None: ...
    def enter(self, vs: int, payload: bytes, ve: int) -> None:
        """Put a live event in as it is, below the stable point too."""
    def trim(self, stable_point: int) -> None:
        """What is fully frozen here, and at the stream's own stable point, is not needed any more."""
    def prelude(self) -> Columns:
        """The live events as inserts in order of insertion, then the stream's stable point if it has said one."""
    def live_events(self) -> Columns:
        """The live events as inserts, ordered by (vs, payload, ve)."""
    def live_ends(self, vs: int, payload: bytes) -> list[int]: ...
    def check(self) -> None:
        """Assert every invariant. Raises AssertionError."""

@final
class Core:
    """One running merge by slot numbers; names and messages are Python's. Every method releases the GIL while
    it works.
    """

    def __init__(
        self, algorithm: str, show: str, reflects_adjusts: bool, quorum: int, quorum_percent: int, leader: str,
        lag: int, closing: int, track_live: bool, shards: int = 1, lead_max: int | None = None,
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
        """Live output events, None where they are not tracked apart from the index."""
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
    def attach(
        self, slot: int, place: int, demands: int, join_at: int | None, observes: bool, joined: bool
    ) -> None:
        """Attach in order of attachment. ``demands``: bits 1 insert-only, 2 ordered, 4 strictly-ordered, 8
        deterministic-ties, 16 key (of what is demanded; ``strictly-ordered`` implies the rest where it does)."""
    def demand(self, slot: int, demands: int) -> None:
        """What the input must keep has changed."""
    def remove(self, slot: int) -> None:
        """Forget the input and its entries."""
    def after_detach(self) -> None:
        """Those that remain may agree on closing."""
    def admit(self, slot: int) -> None: ...
    def excuse(self, slot: int) -> None:
        """Nobody's lead is measured by the input until it has a new stable point."""
    def apply(self, slot: int, columns: Columns, start: int) -> Violation | None:
        """Merge the elements from ``start`` on; a violation has the index of the offender, and those before it are
        merged."""
    def switch(self, algorithm: str, started: bool) -> None:
        """Run another algorithm; ``started``: carry over the state to something more general."""
    def keep_delivered(self) -> None:
        """Keep what inputs deliver under R0-R2. Before any attaches."""
    def repeats_a_key(self) -> bool:
        """Whether two live events of the output, or of an input, have one (Vs, payload). Under R0-R2 only."""
    def take(self) -> tuple[Columns, list[int], list[Violation]]:
        """What has happened since the last call: output, slots that joined, promises found broken meanwhile."""
    def input(self, slot: int) -> tuple[bool, int, int | None, int, int]:
        """joined, stable, last_vs (None before its first insert), tie_count, late."""
    def live_events(self) -> Columns | None:
        """Inserts of all live output events, ordered by (vs, payload, ve), then stable(announced) if there is one;
        None if
        they are not known."""
    def check(self) -> None:
        """Assert every invariant. Raises AssertionError."""
    def supporters(self, columns: Columns) -> list[int]:
        """For each insert: how many inputs have that event now."""
    def state(self) -> dict[str, bytes]:
        """The algorithm's fields of a snapshot, each as JSON text: what Algorithm.state() gives, by name."""
    def live_state(self) -> bytes | None:
        """The live output's field of a snapshot as JSON text: sorted [vs, payload in base64, ve]; None if not
        tracked.
        """
    def input_state(self, slot: int) -> dict[str, bytes]:
        """What dump_input_state gives of a snapshot's input, each as JSON text."""
    def load(
        self, state: dict[str, object], live: list[list[object]] | None,
    ) -> None:
        """The reverse of ``state`` and ``live_state``, parsed; the inputs are attached already. Raises KeyError,
        TypeError
        or ValueError if the state is damaged."""
    def load_input(self, slot: int, fields: dict[str, object], excused: bool = False) -> None:
        """The dynamic fields of a snapshot's input, parsed: joined, stable, last_vs (None before its first
        insert), tie_count, late, at_last_vs, waiting, tie_order, tie_marks."""

@final
class Cleanse:
    """``core.comparison.cleanse.Cleanse`` on columns, for comparison. Raises InputViolation on a broken stream."""

    def __init__(self, name: str = "stream") -> None: ...
    @property
    def buffered(self) -> int:
        """Number of events that wait."""
    @property
    def memory(self) -> tuple[int, int]:
        """Bytes held, estimated; bytes of the payloads that wait."""
    def apply(self, columns: Columns) -> Columns:
        """Take a batch, release what can be released."""

@final
class Limit:
    """One hash-table probe per element, for benchmarks: what any merge by key must at least do;
    native/core/src/limit.rs.
    """

    def __init__(self) -> None: ...
    def apply(self, columns: Columns) -> int:
        """Probe for every element; how many keys were new."""

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
        """Hear the first ``stop`` elements: the index of one that the stream itself forbids, and the first and last
        interval touched."""
    def take_below(self, bound: int | None) -> list[tuple[int, int, int, int, int]]:
        """(interval, events, sum, starts, sum) in order of interval; all intervals if ``bound`` is None."""
