"""The rules of streams, as SQL over the table ``elements`` (6.3: the output stream verifier).

A rule is a query with a row for each element that breaks it: its ``stream`` and ``place``, then what its message needs.
Codes and messages are those of a server, which judges the same on the core.

An element that breaks a rule counts in what follows as it came, so that one fault is one row: after an adjust of an
event that is not there, the event ends where the adjust put it. Of the rules of all streams an element breaks the first
one alone. It breaks each of those that were promised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lmerge.core import violations
from lmerge.core.batch import Row
from lmerge.core.properties import DETERMINISTIC_TIES, INSERT_ONLY, KEY, ORDERED, STRICTLY_ORDERED, Properties, closure
from lmerge.errors import InputViolation

FAULTS_SHOWN: Final = 20
"""Of each stream; all are counted."""

Message: TypeAlias = Callable[[str, Row, Mapping[str, Any]], InputViolation]
"""Of the stream's name, the element and the row of the query."""


@dataclass(frozen=True)
class StreamRule:
    """A rule that every stream keeps, or those that promise ``promise``. ``unless``: a promise with its own rule."""

    code: str
    sql: str
    message: Message
    promise: str | None = None
    unless: str | None = None

    def is_for(self, promises: Properties) -> bool:
        """Return whether a stream with these promises must keep the rule."""
        promised = closure(promises)
        return (self.promise is None or self.promise in promised) and self.unless not in promised


def _where(condition: str) -> str:
    return f"SELECT stream, place FROM elements WHERE {condition}"


# With what the message needs of the first faults: the ends of the live events with this payload and Vs.
_UNKNOWN: Final = f"""
WITH faults AS (
    SELECT u.*, e.stable_before, row_number() OVER (PARTITION BY u.stream ORDER BY u.place) AS number
    FROM unknown AS u JOIN elements AS e USING (stream, place)
    WHERE e.ve >= e.vs AND coalesce(least(e.vold, e.ve) >= e.stable_before, true)
),
known AS (
    SELECT f.stream, f.place, c.event_end, CAST(sum(c.step) AS BIGINT) AS copies FROM faults AS f
    JOIN changes AS c ON c.stream = f.stream AND c.payload = f.payload AND c.vs = f.vs AND c.place < f.place
    WHERE f.number <= {FAULTS_SHOWN} AND coalesce(c.event_end >= f.stable_before, true)
    GROUP BY ALL HAVING copies > 0
)
SELECT f.stream, f.place, list((k.event_end, k.copies) ORDER BY k.event_end) FILTER (k.copies IS NOT NULL) AS known
FROM faults AS f LEFT JOIN known AS k USING (stream, place) GROUP BY ALL"""
# Which (Vs, payload) may have two events is found by their hashes, which takes half the time (bench/verify.py).
_SECOND: Final = """
WITH several AS (
    SELECT hash(stream, payload, vs) AS hashed FROM elements WHERE kind = 0 AND ve > vs GROUP BY ALL HAVING count(*) > 1
    UNION ALL SELECT hash(stream, payload, vs) FROM unknown
),
counted AS (
    SELECT *, sum(step) OVER (PARTITION BY stream, payload, vs ORDER BY place ROWS UNBOUNDED PRECEDING) AS there
    FROM changes WHERE hash(stream, payload, vs) IN (FROM several)
)
SELECT stream, place FROM counted JOIN elements AS e USING (stream, place)
WHERE there > 1 AND e.kind = 0 AND coalesce(e.vs >= e.stable_before, true)"""
# What a stream has twice at one Vs is no evidence of an order (docs/design/0011-the-order-of-ties.md).
_TIES: Final = """
WITH inserted AS (
    SELECT stream, vs, payload, ve, min(place) AS place, count(*) AS copies FROM elements
    WHERE kind = 0 AND ve > vs AND stream IN (SELECT stream FROM promises WHERE promise = 'deterministic-ties')
    GROUP BY ALL
),
repeated AS (SELECT vs, payload, ve FROM inserted WHERE copies > 1),
once AS (SELECT * FROM inserted ANTI JOIN repeated USING (vs, payload, ve)),
pairs AS (
    SELECT b.stream, b.place, b.vs, a.stream AS other, a.place AS other_place
    FROM once AS a JOIN once AS b USING (vs, payload, ve) WHERE a.stream < b.stream
),
in_turn AS (
    SELECT *, max(place) OVER (
        PARTITION BY stream, other, vs ORDER BY other_place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS latest FROM pairs
)
SELECT DISTINCT stream, place FROM in_turn WHERE place < latest"""


def _ends(found: Mapping[str, Any]) -> list[int]:
    """Return the ends that an unknown event could have had, each as often as it is there."""
    return [end for end, copies in found["known"] or () for _ in range(copies)]


RULES: Final = (
    StreamRule(
        "end-before-start",
        _where("kind < 2 AND ve < vs"),
        lambda name, row, _: violations.end_before_start(name, row, 0),
    ),
    StreamRule(
        "insert-below-stable",
        _where("kind = 0 AND ve >= vs AND vs < stable_before"),
        lambda name, row, found: violations.insert_below_stable(name, row, 0, found["stable_before"]),
    ),
    StreamRule(
        "adjust-below-stable",
        _where("kind = 1 AND ve >= vs AND least(vold, ve) < stable_before"),
        lambda name, row, found: violations.adjust_below_stable(name, row, 0, found["stable_before"]),
    ),
    StreamRule(
        "stable-backwards",
        _where("kind = 2 AND vs < stable_before"),
        lambda name, row, found: violations.stable_backwards(name, row, 0, found["stable_before"]),
    ),
    StreamRule(
        "unknown-event",
        _UNKNOWN,
        lambda name, row, found: violations.unknown_event(name, row, 0, violations.known_live_ends(_ends(found))),
    ),
    StreamRule(
        "adjust-not-promised",
        _where("kind = 1"),
        lambda name, row, _: violations.adjust_not_promised(name, row, 0),
        promise=INSERT_ONLY,
    ),
    StreamRule(
        "out-of-order",
        _where("kind = 0 AND vs < start_before"),
        lambda name, row, found: violations.out_of_order(name, row, 0, found["start_before"], strictly=False),
        promise=ORDERED,
        unless=STRICTLY_ORDERED,
    ),
    StreamRule(
        "out-of-order",
        _where("kind = 0 AND vs <= start_before"),
        lambda name, row, found: violations.out_of_order(name, row, 0, found["start_before"], strictly=True),
        promise=STRICTLY_ORDERED,
    ),
    StreamRule("duplicate-key", _SECOND, lambda name, row, _: violations.duplicate_key(name, row, 0), promise=KEY),
    StreamRule(
        "ties-differ", _TIES, lambda name, row, _: violations.ties_differ(name, row, 0), promise=DETERMINISTIC_TIES
    ),
)
