"""The verdict over one operator of a run: steps 1 to 5 of 6.3, and after every stable what was frozen there.

The table of each input, with all its changes applied, goes into a database, and the operator's sequence of queries over
it gives the table that it must mean. What it emitted is compared at the end, and at each of its stable points: what is
frozen there can never be put right, so it has to be right then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import duckdb

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.core.properties import NOTHING, Properties
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.properties import derive
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.values import show_values
from lmerge.testing.decided import Events, decided
from lmerge.testing.judging.definitions import EVENTS_MAX, defined
from lmerge.testing.judging.functions import Functions
from lmerge.testing.judging.liveliness import stuck
from lmerge.testing.judging.operator_run import OperatorRun
from lmerge.testing.judging.promises import broken_promise
from lmerge.testing.judging.queries import sequence
from lmerge.testing.judging.tables import EventTable, Sequences
from lmerge.testing.judging.unjudged import NotJudged
from lmerge.text_enum import TextEnum

SHOWN_MAX: Final = 20


class Judgement(TextEnum):
    """What a verdict is."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_JUDGED = "not judged"
    BROKEN = "broken"
    """The query or the framework is wrong, not what it judges."""


class RowDifference(NamedTuple):
    """An event that is there too often (``extra``) or too rarely, as text; ``ve`` None: it goes on at the stable."""

    row: str
    vs: int
    ve: int | None
    expected: int
    found: int

    def __str__(self) -> str:
        end = "..." if self.ve is None else show_time(self.ve)
        kind = "extra" if self.found > self.expected else "missing"
        return f"{kind}: {self.row} [{show_time(self.vs)}, {end}), {self.found} times instead of {self.expected}"


@dataclass(frozen=True)
class OperatorVerdict:
    """The verdict over an operator. ``step``: of the run, at which the difference was frozen; None: at the end.

    ``stable``: the stable point there. ``differences``: the first ones of ``count``. ``sql``: the queries.
    """

    name: str
    outcome: Judgement
    reason: str = ""
    step: int | None = None
    stable: int = INF
    differences: list[RowDifference] = field(default_factory=list)
    count: int = 0
    sql: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether something is wrong."""
        return self.outcome in (Judgement.DIFFERENT, Judgement.BROKEN)

    def __str__(self) -> str:
        at = "" if self.step is None else f" at step {self.step}, stable({show_time(self.stable)})"
        lines = [f"{self.name}: {self.outcome}{at}{': ' * bool(self.reason)}{self.reason}"]
        return "\n".join([*lines, *(f"  {one}" for one in self.differences)])


class IllegalStream(Exception):
    """A stream broke a law: an adjust of what is not there, or a change below its stable point."""


class JudgedTable:
    """The table of a stream as far as it has come. It checks the laws of streams."""

    def __init__(self, node: PlanNode) -> None:
        self.events: Events = Counter()
        self.stable = NEG_INF
        self._payload = RowForms(node.schema).payload

    def take(self, delta: Delta) -> None:
        """Take a batch. Raises IllegalStream."""
        for change in delta.changes:
            self._change(change)
        if delta.stable is not None:
            if delta.stable < self.stable:
                raise IllegalStream(f"stable({show_time(delta.stable)}) came after stable({show_time(self.stable)})")
            self.stable = delta.stable

    def _change(self, change: Change) -> None:
        row, vs, old, new = change
        if min(old, new) < self.stable:
            raise IllegalStream(f"{change} came after stable({show_time(self.stable)})")
        if min(old, new) < vs:
            raise IllegalStream(f"{change} has an end before its start")
        payload = self._payload(row)
        if old > vs:
            if not self.events[payload, vs, old]:
                raise IllegalStream(f"{change} came, and there is no such event")
            self.events[payload, vs, old] -= 1
            if not self.events[payload, vs, old]:
                del self.events[payload, vs, old]
        if new > vs:
            self.events[payload, vs, new] += 1


class Judge:
    """Judges operators in one database, which is kept: to open one takes longer than to judge an operator."""

    def __init__(self) -> None:
        self._database = duckdb.connect(config={"threads": 1})
        self._functions = Functions(self._database)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._functions.clear()
        self._database.close()

    def judged(self, operator: OperatorRun) -> OperatorVerdict:
        """Return the verdict over an operator of a run."""
        try:
            reads = enumerate(operator.reads)
            tables = [final_table(read, (taken[at] for _, taken, _ in operator.steps)) for at, read in reads]
        except IllegalStream as problem:
            return OperatorVerdict(operator.name, Judgement.NOT_JUDGED, f"its input is no legal stream: {problem}")
        made = Sequences(self._functions)
        try:
            expected = self._expected(operator, tables, made)
            verdict = _compared(operator, expected, made.text)
            return _seconded(verdict, operator, tables, expected) if verdict.is_bad else verdict
        except NotJudged as problem:
            return OperatorVerdict(operator.name, Judgement.NOT_JUDGED, str(problem))
        except duckdb.Error as problem:
            cause = self._functions.failure or problem
            return OperatorVerdict(operator.name, Judgement.BROKEN, f"the query failed: {cause}", sql=made.text)
        finally:
            for name in [*(name for name, _ in made.statements), *_input_names(operator)]:
                self._database.execute(f"DROP TABLE IF EXISTS {name}")
            self._functions.clear()

    def _expected(self, operator: OperatorRun, tables: Sequence[Events], made: Sequences) -> Events:
        """Return the table that an operator must mean, by its queries over those of its inputs. Raises NotJudged."""
        loaded: dict[PlanNode, EventTable] = {}
        for at, (name, read) in enumerate(zip(_input_names(operator), operator.reads, strict=True)):
            load(self._database, name, tables[at])
            loaded.setdefault(read, EventTable(name, (), operator.begun(at)))
        found = sequence([operator.result], loaded, made)[operator.result]
        for name, query in made.statements:
            self._database.execute(f"CREATE TEMP TABLE {name} AS {query}")
        rows = self._database.execute(f"SELECT payload, vs, ve, count(*) FROM {found.name} GROUP BY ALL").fetchall()
        return Counter({(payload, vs, ve): count for payload, vs, ve, count in rows})


def _input_names(operator: OperatorRun) -> list[str]:
    return [f"input_{at}" for at in range(1, len(operator.reads) + 1)]


def final_table(node: PlanNode, deltas: Iterable[Delta]) -> Events:
    """Return the table of a stream with all its changes applied. Raises IllegalStream."""
    table = JudgedTable(node)
    for delta in deltas:
        table.take(delta)
    return table.events


def load(database: duckdb.DuckDBPyConnection, name: str, events: Mapping[tuple[bytes, int, int], int]) -> None:
    """Make a table of events in a database."""
    listed = [event for event, count in events.items() for _ in range(count)]
    columns: list[list[Any]] = [[event[at] for event in listed] for at in range(3)]
    database.execute(
        f"CREATE TEMP TABLE {name} AS SELECT unnest(?::BLOB[]) AS payload, unnest(?::BIGINT[]) AS vs, "
        "unnest(?::BIGINT[]) AS ve",
        columns,
    )


def _compared(operator: OperatorRun, expected: Events, sql: str) -> OperatorVerdict:
    """Compare what was emitted with the table at each stable point, and at the end."""
    table = JudgedTable(operator.result)
    forms = RowForms(operator.result.schema)
    for step, _, found in operator.steps:
        before = table.stable
        try:
            table.take(found)
        except IllegalStream as problem:
            return OperatorVerdict(operator.name, Judgement.DIFFERENT, str(problem), step, before, sql=sql)
        if table.stable > before:
            differences, count = differing(expected, table.events, table.stable, forms)
            if count:
                reason = f"{count} events are frozen wrong"
                where = (step, table.stable, differences, count, sql)
                return OperatorVerdict(operator.name, Judgement.DIFFERENT, reason, *where)
    broken = broken_promise(promised(operator.result), ((step, found) for step, _, found in operator.steps))
    if broken is not None:
        return OperatorVerdict(operator.name, Judgement.DIFFERENT, broken[1], broken[0], sql=sql)
    behind = stuck(operator)
    if behind is not None:
        step, stable, least = behind
        reason = f"it is at stable({show_time(stable)}), and its input freezes all before {show_time(least)}"
        return OperatorVerdict(operator.name, Judgement.DIFFERENT, reason, step, stable, sql=sql)
    if operator.has_ended() and table.stable < INF:
        reason = f"its inputs have ended, and it is at stable({show_time(table.stable)})"
        return OperatorVerdict(operator.name, Judgement.DIFFERENT, reason, None, table.stable, sql=sql)
    return OperatorVerdict(operator.name, Judgement.EQUAL, sql=sql)


def defined_table(operator: OperatorRun, tables: Sequence[Events]) -> Events | None:
    """Return the table that an operator means by its definition; None for more than a few events, or without one."""
    if any(events.total() > EVENTS_MAX for events in tables):
        return None
    given = {}
    begun = {}
    for at, (read, events) in enumerate(zip(operator.reads, tables, strict=True)):
        row_of = RowForms(read.schema).of_payload
        given[read] = [Lifetime(row_of(payload), vs, ve) for payload, vs, ve in events.elements()]
        begun[read] = operator.begun(at)
    try:
        found = defined(operator.result, given, begun)
    except NotJudged:
        return None
    payload_of = RowForms(operator.result.schema).payload
    return Counter((payload_of(row), vs, ve) for row, vs, ve in found)


def _seconded(
    verdict: OperatorVerdict, operator: OperatorRun, tables: Sequence[Events], expected: Events
) -> OperatorVerdict:
    """Return a verdict with the opinion of the definition: if it is not that of the SQL, the SQL is blamed."""
    third = defined_table(operator, tables)
    if third is None or third == expected:
        return verdict
    differences, count = differing(third, expected, INF, RowForms(operator.result.schema))
    reason = f"the SQL and the definition differ in {count} events"
    return OperatorVerdict(operator.name, Judgement.BROKEN, reason, None, INF, differences, count, verdict.sql)


def promised(node: PlanNode) -> Properties:
    """Return what a plan promises of a stream; nothing for a node that is not one of the plan's own kinds."""
    try:
        return derive(node)[node].promises
    except KeyError:
        return NOTHING


def differing(expected: Events, found: Events, stable: int, forms: RowForms) -> tuple[list[RowDifference], int]:
    """Return the first events that differ up to a stable point, and how many do.

    What ends before it is frozen; of what starts before it and goes on, only the start and the number are.
    """
    one, other = decided(expected, stable), decided(found, stable)
    if one == other:
        return [], 0
    wrong = sorted((key for key in one.keys() | other.keys() if one[key] != other[key]), key=_in_time)
    shown = [
        RowDifference(show_values(forms.of_payload(payload)), vs, ve, one[payload, vs, ve], other[payload, vs, ve])
        for payload, vs, ve in wrong[:SHOWN_MAX]
    ]
    return shown, len(wrong)


def _in_time(event: tuple[bytes, int, int | None]) -> tuple[int, int, bytes]:
    payload, vs, ve = event
    return vs, INF if ve is None else ve, payload
