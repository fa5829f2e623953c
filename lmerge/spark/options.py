"""Options of ``format("lmerge")``: their names, their values, and errors that name the option.

Spark ignores the case of option names, and users write them with and without underscores: ``tokenFile``, ``token_file``
and ``tokenfile`` are the same. An unknown name is refused, because a misspelt option would otherwise silently have its
default. Spark's own names, such as ``checkpointLocation``, are accepted.

A token itself is not an option, because options are shown in Spark's event log, in its UI and in ``explain``. The token
comes from a file, or from the environment (LMERGE_TOKEN and the like, see ``client.connection.security``), on the
driver and on every executor.
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
from lmerge.core.inputs import InputRole
from lmerge.core.properties import parse_properties
from lmerge.errors import UsageError
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import Schema

APPEND: Final = "append"
UPDATE: Final = "update"
INTERVALS: Final = "intervals"
ELEMENTS: Final = "elements"
FRAMES: Final = "frames"
MODES: Final = (APPEND, UPDATE, INTERVALS, ELEMENTS, FRAMES)
# The modes in which rows hold elements: a query writes them by itself, with the option ``envelope``.
ENVELOPES: Final = (ELEMENTS, FRAMES)
KEYED: Final = (UPDATE, INTERVALS)

FAIL: Final = "fail"
DROP: Final = "drop"

# Instead of a schema: one column holds the bytes of the payload.
RAW: Final = "raw"

# The number of a batch that a query writes by ``foreachBatch``, and the query and run to which it belongs, where
# Spark's own properties lack them: see ``update_sink``.
BATCH: Final = "batch"
QUERY: Final = "query"
RUN: Final = "run"

# The columns of a prepared DataFrame that hold the lifetime, in microseconds since the epoch.
VS: Final = "lmerge_vs"
VE: Final = "lmerge_ve"
# The function by which a query leaves out events that are not needed any more (``skipping``).
SKIP_FILTER: Final = "lmerge_skip_filter"

CONNECTION: Final = frozenset(
    {"servers", "merge", "ca", "cert", "key", "token_file", "tls", "insecure", "server_name", "server_names"}
)
SINK: Final = CONNECTION | {
    "replica",
    "mode",
    "envelope",
    "properties",
    "role",
    "join_at",
    "spool",
    "schema",
    "keys",
    "kind",
    "vs",
    "ve",
    "stable_lag_us",
    "late",
    "give_up_after",
    "skips",
    "stage",
    "ends_after_cutover",
    "driver_pid",
    BATCH,
    QUERY,
    RUN,
}
# Names that belong to Spark, and options that users pass to any sink.
SPARKS: Final = frozenset(
    {"checkpoint_location", "path", "query_name", "output_mode", "trigger", "header", "truncate", "num_rows"}
)
# The longest wait for servers that an option can set. A longer one means "for ever", which is the default.
WAIT_S_MAX: Final = 7 * 86_400.0

_UNITS_US: Final = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class SinkOptions:
    """The options of a query that publishes. Times are microseconds, waits seconds."""

    servers: tuple[str, ...]
    merge: str
    replica: str
    checkpoint: str
    spool: str
    mode: str = ELEMENTS
    properties: tuple[str, ...] = ()
    role: str = InputRole.ACTIVE
    join_at: int | None = None
    schema: str | None = None  # JSON, as ``schema_text`` writes it, or RAW
    keys: tuple[str, ...] = ()
    vs: str = VS
    ve: str | None = None
    kind: str | None = None
    stable_lag_us: int | None = None  # None: no stable follows from the watermark
    late: str = DROP
    give_up_after_s: float | None = None
    skips: bool = False
    stages: bool = True
    ends_after_cutover: bool = False  # ``session`` stops the query after a cutover
    driver_pid: int | None = None  # of the JVM: the query's agent ends with it, and attaches at the query's start
    security: Security | None = None

    @property
    def target(self) -> str:
        """The servers as one text."""
        return ",".join(self.servers)

    def __str__(self) -> str:
        return f"replica {self.replica!r} of merge {self.merge!r} at {self.target}"


class OptionReader:
    """Reads options by name, in any spelling. Raises UsageError naming the option."""

    def __init__(self, given: Mapping[str, str], names: Iterable[str], what: str) -> None:
        self._what = what
        self._names = {folded(name): name for name in (*names, *SPARKS)}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            if folded(name) == "token":
                raise UsageError(
                    f"{what}: option token would be readable for all in Spark's UI and logs: give token_file, or "
                    "set LMERGE_TOKEN in the environment of the driver and the executors"
                )
            if folded(name) not in self._names:
                raise UsageError(f"{what}: unknown option {name!r}{self._nearest(name)}")
            self._given[self._names[folded(name)]] = value

    def text(self, name: str) -> str | None:
        """Return the text of the option, or None if it is missing or empty."""
        value = self._given.get(name, "").strip()
        return value or None

    def needed(self, name: str, hint: str = "") -> str:
        """Return the text of a required option."""
        value = self.text(name)
        if value is None:
            raise UsageError(f"{self._what}: option {name} is missing{hint}")
        return value

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise UsageError(f"{self._what}: option {name} is {value!r:.40}; it is {' or '.join(choices)}")
        return value

    def items(self, name: str) -> tuple[str, ...]:
        """Return the items of a list, with commas between them or in JSON."""
        text = self.text(name) or ""
        if text.startswith("["):
            return tuple(str(item) for item in self._json(name, text, list))
        return tuple(item.strip() for item in text.split(",") if item.strip())

    def whole(self, name: str) -> int | None:
        text = self.text(name)
        try:
            return None if text is None else int(text)
        except ValueError:
            raise UsageError(f"{self._what}: option {name} is {text!r:.40}, not a whole number") from None

    def flag(self, name: str, default: bool = False) -> bool:
        text = self.one_of(name, ("true", "false", "1", "0", "yes", "no"), "true" if default else "false")
        return text in ("true", "1", "yes")

    def seconds(self, name: str) -> float | None:
        """Return a wait: ``30`` or ``30 seconds``."""
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
        """Return a moment: microseconds since the epoch, or ISO 8601 with a zone."""
        text = self.text(name)
        if text is None:
            return None
        try:
            t = int(text) if re.fullmatch(r"-?\d+", text) else moment_us(text)
        except UsageError as problem:
            raise UsageError(f"{self._what}: option {name}: {problem}") from None
        if not NEG_INF < t < INF:
            raise UsageError(f"{self._what}: option {name} is {text!r:.40}, which is not a 64-bit time")
        return t

    def servers(self) -> tuple[str, ...]:
        try:
            return parse_targets(self.needed("servers", ": give HOST:PORT, several with commas between"))
        except UsageError as problem:
            raise self._naming("servers", problem) from None

    def security(self) -> Security | None:
        """Return the security settings of the options and of this process's environment."""
        over: dict[str, Any] = {name: self.text(name) for name in ("ca", "cert", "key", "token_file", "server_name")}
        over |= {"tls": self.flag("tls"), "insecure": self.flag("insecure"), "server_names": self._server_names()}
        try:
            return Security.from_environment(**over)
        except UsageError as problem:
            raise UsageError(f"{self._what}: options ca, cert, key, token_file: {problem}") from None

    def _server_names(self) -> dict[str, str]:
        """Return the names in certificates by address, from a JSON object."""
        text = self.text("server_names")
        names: dict[str, str] = {} if text is None else self._json("server_names", text, dict)
        if not all(isinstance(name, str) for name in names.values()):
            raise UsageError(f"{self._what}: option server_names is {text!r:.40}: it gives a name for each HOST:PORT")
        return names

    def _json(self, name: str, text: str, kind: type) -> Any:
        try:
            value = json.loads(text)
        except ValueError as problem:
            raise UsageError(f"{self._what}: option {name} cannot be read as JSON: {problem}") from None
        if not isinstance(value, kind):
            raise UsageError(f"{self._what}: option {name} is {text!r:.40}, not a JSON {kind.__name__}")
        return value

    def _naming(self, name: str, problem: UsageError) -> UsageError:
        message = str(problem)
        return problem if message.startswith(self._what) else UsageError(f"{self._what}: option {name}: {message}")

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(folded(name), self._names, 1)
        return f"; did you mean {self._names[near[0]]}?" if near else ""


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a query that publishes. Raises UsageError naming the option."""
    options = OptionReader(given, SINK, "publishing to lmerge")
    checkpoint = options.needed(
        "checkpoint_location",
        ': a restart continues from there, so set .option("checkpointLocation", ...) on the query itself '
        "(Spark does not pass the setting spark.sql.streaming.checkpointLocation to a sink)",
    )
    envelope = options.one_of("envelope", ENVELOPES, ELEMENTS)
    mode = options.one_of("mode", MODES, envelope)
    try:
        properties = tuple(sorted(parse_properties(options.items("properties"))))
    except UsageError as problem:
        raise UsageError(f"publishing to lmerge: option properties: {problem}") from None
    if mode not in ENVELOPES and options.text("schema") is None:
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
        role=options.one_of("role", tuple(InputRole), InputRole.ACTIVE),
        join_at=options.time("join_at"),
        schema=options.text("schema"),
        keys=options.items("keys"),
        vs=options.text("vs") or VS,
        ve=options.text("ve"),
        kind=options.text("kind"),
        stable_lag_us=options.whole("stable_lag_us"),
        late=options.one_of("late", (FAIL, DROP), FAIL if mode in ENVELOPES else DROP),
        give_up_after_s=options.seconds("give_up_after"),
        skips=options.flag("skips"),
        stages=options.flag("stage", default=True),
        ends_after_cutover=options.flag("ends_after_cutover"),
        driver_pid=options.whole("driver_pid"),
        security=options.security(),
    )


def spool_in(checkpoint: str) -> str:
    """Return the default folder of the spool of a query."""
    return f"{checkpoint.rstrip('/')}/lmerge"


def schema_text(schema: Schema) -> str:
    """Return a schema as the text of an option. Equal schemas give equal texts."""
    return str(MessageToJson(schema.to_message(), indent=None, preserving_proto_field_name=True))


def schema_of_text(text: str | None) -> Schema | None:
    """Return the schema of a text of ``schema_text``; None: payloads are bytes. Raises UsageError."""
    if text is None or text == RAW:
        return None
    try:
        return Schema.from_message(ParseJson(text, pb.Schema()))
    except ParseError as problem:
        raise UsageError(f"publishing to lmerge: option schema cannot be read: {problem}") from None


def folded(name: str) -> str:
    """Return a name in the form in which names are compared."""
    return re.sub(r"[_\-. ]", "", name).lower()


def duration_us(text: str) -> int:
    """Return ``"10 seconds"``, ``"500 ms"``, ``"1 hour"`` in microseconds; a day has 24 hours. Raises UsageError."""
    total, rest = 0, text.strip().lower().removeprefix("interval ")
    pieces = re.findall(r"(\d+)\s*([a-z]+)", rest)
    if not pieces or re.sub(r"\d+\s*[a-z]+|[\s,]", "", rest):
        raise UsageError(f"{text!r:.40} is not a duration such as '10 seconds'")
    for number, name in pieces:
        unit = name if name in _UNITS_US else name.removesuffix("s")
        if unit not in _UNITS_US:
            raise UsageError(f"{text!r:.40} is not a duration such as '10 seconds': unknown unit {name!r}")
        total += int(number) * _UNITS_US[unit]
    return total


def moment_us(text: str) -> int:
    """Return a time in ISO 8601, with a zone, in microseconds since the epoch. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(
            f"{text!r:.40} is neither microseconds since the epoch nor a time such as 2024-05-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise UsageError(f"{text!r:.40} has no time zone, so it names no moment")
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
