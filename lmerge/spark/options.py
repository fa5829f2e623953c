"""Options of ``format("lmerge")``: their names, what they may say, and errors that name the option.

Spark keeps option names without regard to case, and people write them with and without underscores: ``tokenFile``,
``token_file`` and ``tokenfile`` are one. A name that nobody knows is refused, because a misspelt option would otherwise
be a default in silence; Spark's own names, such as ``checkpointLocation``, pass.

A token itself is no option: options stand in Spark's event log, in its UI and in ``explain``. A file of it is, and so
is the environment (LMERGE_TOKEN and the like, see ``client.connection.security``), on the driver and on every executor.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from google.protobuf.json_format import MessageToJson, ParseError
from google.protobuf.json_format import Parse as ParseJson

from lmerge.client.connection.security import Security
from lmerge.client.connection.streams import parse_targets
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.inputs import ACTIVE, ROLES
from lmerge.core.properties import parse_properties
from lmerge.errors import UsageError
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import Schema

APPEND: Final = "append"
UPDATE: Final = "update"
INTERVALS: Final = "intervals"
ELEMENTS: Final = "elements"
MODES: Final = (APPEND, UPDATE, INTERVALS, ELEMENTS)
KEYED: Final = (UPDATE, INTERVALS)

FAIL: Final = "fail"
DROP: Final = "drop"

# Instead of a schema: the one column of the payload holds it as it is.
RAW: Final = "raw"

# The number of the batch, where a streaming query writes it by itself, and of whom it is where Spark's own properties
# do not say so: see ``update_sink``.
BATCH: Final = "batch"
QUERY: Final = "query"
RUN: Final = "run"

# The columns of a prepared DataFrame that hold the lifetime, in microseconds since the epoch.
VS: Final = "lmerge_vs"
VE: Final = "lmerge_ve"
# The function by which a query leaves out what nobody wants any more (``skipping``).
WANTED: Final = "lmerge_wanted"

CONNECTION: Final = frozenset(
    {"servers", "merge", "ca", "cert", "key", "token_file", "tls", "insecure", "server_name"}
)
SINK: Final = CONNECTION | {
    "replica", "mode", "properties", "role", "join_at", "spool", "schema", "keys", "kind", "vs", "ve", "stable_lag_us",
    "late", "give_up_after", "skips", "stage", "ends_after_cutover", BATCH, QUERY, RUN,
}
# Names that Spark, or the people who write to any sink, put there.
SPARKS: Final = frozenset({
    "checkpoint_location", "path", "query_name", "output_mode", "trigger", "header", "truncate", "num_rows",
})
# What a wait for servers may be told to last: longer is "never", which is what no option means.
WAIT_S_MAX: Final = 7 * 86_400.0

_UNITS_US: Final = {
    "us": 1, "microsecond": 1, "ms": 1_000, "millisecond": 1_000, "s": 1_000_000, "second": 1_000_000,
    "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000, "h": 3_600_000_000, "hour": 3_600_000_000,
    "d": 86_400_000_000, "day": 86_400_000_000,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class SinkOptions:
    """What a query that publishes was told. Times are microseconds, waits seconds."""

    servers: tuple[str, ...]
    merge: str
    replica: str
    checkpoint: str
    spool: str
    mode: str = ELEMENTS
    properties: tuple[str, ...] = ()
    role: str = ACTIVE
    join_at: int | None = None
    schema: str | None = None  # JSON, as ``schema_text`` writes it, or RAW
    keys: tuple[str, ...] = ()
    vs: str = VS
    ve: str | None = None
    kind: str | None = None
    stable_lag_us: int | None = None  # None: the watermark says nothing, and no stable is said by it
    late: str = DROP
    give_up_after_s: float | None = None
    skips: bool = False
    stages: bool = True
    ends_after_cutover: bool = False  # somebody stops the query when another has taken its place: ``session``
    security: Security | None = None

    @property
    def target(self) -> str:
        """The servers, in one word."""
        return ",".join(self.servers)

    def __str__(self) -> str:
        return f"replica {self.replica!r} of merge {self.merge!r} at {self.target}"


class OptionReader:
    """Options by name, however they were written. Raises UsageError naming the option."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str], what: str) -> None:
        self._what = what
        self._names = {folded(name): name for name in (*known, *SPARKS)}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            if folded(name) == "token":
                raise UsageError(
                    f"{what}: option token would stand in Spark's UI and logs for all to read: give token_file, or "
                    "set LMERGE_TOKEN in the environment of the driver and the executors"
                )
            if folded(name) not in self._names:
                raise UsageError(f"{what}: unknown option {name!r}{self._nearest(name)}")
            self._given[self._names[folded(name)]] = value

    def text(self, name: str) -> str | None:
        """The option's words; None if it was not given, or is empty."""
        value = self._given.get(name, "").strip()
        return value or None

    def needed(self, name: str, hint: str = "") -> str:
        """The same for an option that there must be."""
        value = self.text(name)
        if value is None:
            raise UsageError(f"{self._what}: option {name} is missing{hint}")
        return value

    def one_of(self, name: str, words: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in words:
            raise UsageError(f"{self._what}: option {name} is {value!r:.40}; it is {' or '.join(words)}")
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """Words with commas between, or a JSON list."""
        text = self.text(name) or ""
        if text.startswith("["):
            return tuple(str(word) for word in self._json(name, text, list))
        return tuple(word.strip() for word in text.split(",") if word.strip())

    def whole(self, name: str) -> int | None:
        text = self.text(name)
        try:
            return None if text is None else int(text)
        except ValueError:
            raise UsageError(f"{self._what}: option {name} is {text!r:.40}, not a whole number") from None

    def flag(self, name: str, default: bool = False) -> bool:
        word = self.one_of(name, ("true", "false", "1", "0", "yes", "no"), "true" if default else "false")
        return word in ("true", "1", "yes")

    def seconds(self, name: str) -> float | None:
        """A wait: ``30`` or ``30 seconds``."""
        text = self.text(name)
        if text is None:
            return None
        try:
            wait_s = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else duration_us(text) / 1e6
        except UsageError as problem:
            raise UsageError(f"{self._what}: option {name}: {problem}") from None
        if not 0 < wait_s <= WAIT_S_MAX:
            raise UsageError(f"{self._what}: option {name} is {text!r:.40}; it is more than 0 and at most a week")
        return wait_s

    def time(self, name: str) -> int | None:
        """A moment: microseconds since the epoch, or ISO 8601 with a zone."""
        text = self.text(name)
        if text is None:
            return None
        try:
            t = int(text) if re.fullmatch(r"-?\d+", text) else moment_us(text)
        except UsageError as problem:
            raise UsageError(f"{self._what}: option {name}: {problem}") from None
        if not NEG_INF < t < INF:
            raise UsageError(f"{self._what}: option {name} is {text!r:.40}, which is no 64-bit time")
        return t

    def servers(self) -> tuple[str, ...]:
        try:
            return parse_targets(self.needed("servers", ": give HOST:PORT, several with commas between"))
        except UsageError as problem:
            raise self._naming("servers", problem) from None

    def security(self) -> Security | None:
        """What the options and this process's environment say together."""
        over: dict[str, Any] = {
            name: self.text(name) for name in ("ca", "cert", "key", "token_file", "server_name")
        }
        over |= {"tls": self.flag("tls"), "insecure": self.flag("insecure")}
        try:
            return Security.from_environment(**over)
        except UsageError as problem:
            raise UsageError(f"{self._what}: options ca, cert, key, token_file: {problem}") from None

    def _json(self, name: str, text: str, kind: type) -> Any:
        try:
            value = json.loads(text)
        except ValueError as problem:
            raise UsageError(f"{self._what}: option {name} cannot be read as JSON: {problem}") from None
        if not isinstance(value, kind):
            raise UsageError(f"{self._what}: option {name} is {text!r:.40}, not a JSON {kind.__name__}")
        return value

    def _naming(self, name: str, problem: UsageError) -> UsageError:
        words = str(problem)
        return problem if words.startswith(self._what) else UsageError(f"{self._what}: option {name}: {words}")

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(folded(name), self._names, 1)
        return f"; did you mean {self._names[near[0]]}?" if near else ""


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a query that publishes. Raises UsageError naming the option."""
    options = OptionReader(given, SINK, "publishing to lmerge")
    checkpoint = options.needed(
        "checkpoint_location",
        ': a restart goes on from there, so say .option("checkpointLocation", ...) on the query itself '
        "(the setting spark.sql.streaming.checkpointLocation does not tell a sink where it is)",
    )
    mode = options.one_of("mode", MODES, ELEMENTS)
    try:
        properties = tuple(sorted(parse_properties(options.words("properties"))))
    except UsageError as problem:
        raise UsageError(f"publishing to lmerge: option properties: {problem}") from None
    if mode != ELEMENTS and options.text("schema") is None:
        raise UsageError(
            f"publishing to lmerge: option mode is {mode}, which lmerge.spark.publish() prepares; a query by itself "
            "publishes elements"
        )
    return SinkOptions(
        servers=options.servers(),
        merge=options.needed("merge"),
        replica=options.needed("replica"),
        checkpoint=checkpoint,
        spool=options.text("spool") or spool_in(checkpoint),
        mode=mode,
        properties=properties,
        role=options.one_of("role", tuple(ROLES), ACTIVE),
        join_at=options.time("join_at"),
        schema=options.text("schema"),
        keys=options.words("keys"),
        vs=options.text("vs") or VS,
        ve=options.text("ve"),
        kind=options.text("kind"),
        stable_lag_us=options.whole("stable_lag_us"),
        late=options.one_of("late", (FAIL, DROP), FAIL if mode == ELEMENTS else DROP),
        give_up_after_s=options.seconds("give_up_after"),
        skips=options.flag("skips"),
        stages=options.flag("stage", default=True),
        ends_after_cutover=options.flag("ends_after_cutover"),
        security=options.security(),
    )


def spool_in(checkpoint: str) -> str:
    """Where the spool of a query is, if nothing else was said."""
    return f"{checkpoint.rstrip('/')}/lmerge"


def schema_text(schema: Schema) -> str:
    """A schema as an option holds it; equal schemas give equal texts."""
    return str(MessageToJson(schema.to_message(), indent=None, preserving_proto_field_name=True))


def schema_of_text(text: str | None) -> Schema | None:
    """The schema that ``schema_text`` has written; None: payloads are bytes. Raises UsageError."""
    if text is None or text == RAW:
        return None
    try:
        return Schema.from_message(ParseJson(text, pb.Schema()))
    except ParseError as problem:
        raise UsageError(f"publishing to lmerge: option schema cannot be read: {problem}") from None


def folded(name: str) -> str:
    """A name as it is compared."""
    return re.sub(r"[_\-. ]", "", name).lower()


def duration_us(text: str) -> int:
    """``"10 seconds"``, ``"500 ms"``, ``"1 hour"`` in microseconds; days are of 24 hours. Raises UsageError."""
    total, rest = 0, text.strip().lower().removeprefix("interval ")
    pieces = re.findall(r"(\d+)\s*([a-z]+)", rest)
    if not pieces or re.sub(r"\d+\s*[a-z]+|[\s,]", "", rest):
        raise UsageError(f"{text!r:.40} is no duration such as '10 seconds'")
    for number, word in pieces:
        unit = word if word in _UNITS_US else word.removesuffix("s")
        if unit not in _UNITS_US:
            raise UsageError(f"{text!r:.40} is no duration such as '10 seconds': unknown unit {word!r}")
        total += int(number) * _UNITS_US[unit]
    return total


def moment_us(text: str) -> int:
    """ISO 8601 with a zone in microseconds since the epoch. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"{text!r:.40} is neither microseconds since the epoch nor a time such as "
                         "2024-05-01T12:00:00Z") from None
    if moment.tzinfo is None:
        raise UsageError(f"{text!r:.40} has no time zone, so it names no moment")
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
