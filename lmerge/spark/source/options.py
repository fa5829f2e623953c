"""Options of queries that read a merge, beside those of the connection (``options``).

=================== =====================================================================  =====================
option              meaning                                                                default
=================== =====================================================================  =====================
``envelope``        ``final``, ``upsert``, ``elements``, ``frames``: ``envelope_rows``     final
``timeType``        times as ``timestamp`` or as ``long``                                  timestamp
``payload``         ``columns`` of the merge's schema, or ``binary``                       columns
``giveUpAfter``     how long to wait for servers that are all away, in seconds             120
``failOnDataLoss``  what no server has any more ends the query; false: it is left out      true
``partitions``      the largest number of tasks for a large range                          8
``startingOffsets`` streaming: ``latest``, ``earliest``, a time, or a token ``MERGE@T``    latest
``maxRowsPerBatch`` streaming: the most rows of a micro-batch                              1,000,000
``waitForMerge``    streaming: a merge that does not exist yet is waited for               true
``bufferBytes``     streaming: the size of what the driver reads ahead                     64 MiB
``skipTo``          streaming, final: the checkpoint of the query that reads and           read all
                    publishes; what its merge does not need any more is not read
``skipSlack``       streaming: how much later a row made from an event can end             0 seconds
``asOf``            batch: the table as of this time, or token                             now
``since``           batch: events that ended from here on too: ``earliest``, a time, ...   only what continues
=================== =====================================================================  =====================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lmerge.client.connection.security import Security
from lmerge.errors import UsageError
from lmerge.spark.options import CONNECTION, OptionReader, duration_us
from lmerge.spark.source.envelope_rows import ELEMENTS, ENVELOPES, FINAL, FRAMES
from lmerge.wire.token import Token, read_token

LATEST: Final = "latest"
EARLIEST: Final = "earliest"

TIMESTAMP: Final = "timestamp"
LONG: Final = "long"
COLUMNS: Final = "columns"
BINARY: Final = "binary"

COMMON: Final = CONNECTION | {"envelope", "time_type", "payload", "give_up_after", "fail_on_data_loss", "partitions"}
STREAM_ONLY: Final = frozenset(
    {"starting_offsets", "max_rows_per_batch", "wait_for_merge", "buffer_bytes", "skip_to", "skip_slack"}
)
BATCH_ONLY: Final = frozenset({"as_of", "since"})

# A server that is restarted is back within seconds. A query that waits for ever shows no error.
GIVE_UP_S: Final = 120.0
# Some seconds of work for a micro-batch of small rows.
ROWS_MAX: Final = 1_000_000
# More tasks than the cores of most queries only wait for each other.
PARTITIONS: Final = 8
_PARTITIONS_MAX: Final = 1024
# Enough for the next micro-batch of 1,000,000 small rows. It is held twice at times.
BUFFER_BYTES: Final = 64 * 2**20


@dataclass(frozen=True)
class ReadOptions:
    """The options of a query that reads. ``start``, ``since``: LATEST, EARLIEST or a time; ``as_of`` None: now.

    A time that was given as a number is valid in any epoch of the merge.
    """

    given: Mapping[str, str] = field(repr=False)
    servers: tuple[str, ...]
    merge: str
    envelope: str = FINAL
    time_type: str = TIMESTAMP
    payload: str = COLUMNS
    give_up_s: float = GIVE_UP_S
    fails_on_loss: bool = True
    partitions: int = PARTITIONS
    start: str | Token = LATEST
    rows_max: int = ROWS_MAX
    waits_for_merge: bool = True
    buffer_bytes: int = BUFFER_BYTES
    skip_to: str | None = None
    skip_slack_us: int = 0
    as_of: Token | None = None
    since: str | Token | None = None
    security: Security | None = field(default=None, repr=False)

    @property
    def target(self) -> str:
        """The servers as one text."""
        return ",".join(self.servers)

    def __str__(self) -> str:
        return f"merge {self.merge!r} at {self.target}"


def any_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a query that may be streaming or not. Raises UsageError naming the option."""
    return _read(given, COMMON | STREAM_ONLY | BATCH_ONLY)


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a streaming query. Raises UsageError naming the option."""
    options = _read(given, COMMON | STREAM_ONLY)
    if options.skip_to is not None and options.envelope != FINAL:
        raise UsageError(
            f"reading lmerge: option skipTo leaves out events that have ended, and option envelope is "
            f"{options.envelope}, which has shown their beginning: use final"
        )
    return options


def batch_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a batch query. Raises UsageError naming the option."""
    options = _read(given, COMMON | BATCH_ONLY)
    if options.envelope in (ELEMENTS, FRAMES):
        raise UsageError(
            f"reading lmerge: option envelope is {options.envelope}, which only a streaming query can read; for the "
            "table as it is now use final, or upsert for its keys as well"
        )
    return options


def _read(given: Mapping[str, str], names: frozenset[str]) -> ReadOptions:
    given = dict(given)
    options = OptionReader(given, names, "reading lmerge")
    merge = options.needed("merge")
    start = _moment(options, "starting_offsets", merge, (LATEST, EARLIEST))

    def counted(name: str, default: int, most: int) -> int:
        number = options.whole(name)
        if number is None:
            return default
        if not 1 <= number <= most:
            raise UsageError(f"reading lmerge: option {name} is {number}; it is from 1 to {most}")
        return number

    return ReadOptions(
        given=given,
        servers=options.servers(),
        merge=merge,
        envelope=options.one_of("envelope", ENVELOPES, FINAL),
        time_type=options.one_of("time_type", (TIMESTAMP, LONG), TIMESTAMP),
        payload=options.one_of("payload", (COLUMNS, BINARY), COLUMNS),
        give_up_s=options.seconds("give_up_after") or GIVE_UP_S,
        fails_on_loss=options.flag("fail_on_data_loss", default=True),
        partitions=counted("partitions", PARTITIONS, _PARTITIONS_MAX),
        start=LATEST if start is None else start,
        rows_max=counted("max_rows_per_batch", ROWS_MAX, 2**31),
        waits_for_merge=options.flag("wait_for_merge", default=True),
        buffer_bytes=counted("buffer_bytes", BUFFER_BYTES, 2**40),
        skip_to=options.text("skip_to"),
        skip_slack_us=_duration(options, "skip_slack"),
        as_of=_time(options, "as_of", merge),
        since=_moment(options, "since", merge, (EARLIEST,)),
        security=options.security(),
    )


def _duration(options: OptionReader, name: str) -> int:
    """Return a length of time in microseconds; 0 if it is not given."""
    text = options.text(name)
    try:
        return 0 if text is None else duration_us(text)
    except UsageError as problem:
        raise UsageError(f"reading lmerge: option {name}: {problem}") from None


def _moment(options: OptionReader, name: str, merge: str, choices: tuple[str, ...]) -> str | Token | None:
    """Return one of ``choices``, a time, or a token; None if it is not given."""
    text = options.text(name)
    if text is not None and text.lower() in choices:
        return text.lower()
    try:
        return _time(options, name, merge)
    except UsageError as problem:
        raise UsageError(f"{problem}; or {', '.join(choices)}") from None


def _time(options: OptionReader, name: str, merge: str) -> Token | None:
    text = options.text(name)
    if text is None or "@" not in text:
        time = options.time(name)
        return None if time is None else Token(None, time)
    try:
        return read_token(text, merge)
    except UsageError as problem:
        raise UsageError(f"reading lmerge: option {name}: {problem}") from None
