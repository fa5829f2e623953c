"""Queries that run: over history and step by step, from rows of users to elements of a publisher."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal

import pytest
from history_world import collect
from temporal_world import StreamTable, random_stream
from typed_rows import EVERY_TYPE, TYPED_ROWS

from lmerge.core.elements import INF
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation, InvalidRow, UsageError
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.entrance import LatePolicy, ProgressRule
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import Stream, count, source
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import ElementWriter, QueryRun, ResultTable, SourceSettings
from lmerge.temporal.windows.policies import Form
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))


def counted(form: str = "final") -> Stream:
    numbers = source("numbers", {"a": "int", "b": "int"}).where(col.b < 2)
    return numbers.group_by("a").hopping(5, 2).agg(n=count(), form=form)


def test_rows_become_values_and_the_payload_of_the_wire() -> None:
    schema = parse_schema(EVERY_TYPE)
    forms = RowForms(schema)
    values = forms.values(TYPED_ROWS[0])
    nested = (Decimal("0.5"), Decimal("0.0")), (1, ("a", None))
    assert values == (True, None, 0.0, "é", b"\0", 1767225600000000, -1, Decimal("-1.50"), *nested)
    assert hash(values) is not None
    assert forms.payload(values) == RowCodec(schema).encode(TYPED_ROWS[0])
    assert forms.of_payload(forms.payload(values)) == values
    assert forms.row(values) == TYPED_ROWS[0] | {"f": 0.0, "l": [Decimal("0.5"), Decimal("0.0")]}
    with pytest.raises(InvalidRow, match="row 3, column 's'"):
        forms.values(TYPED_ROWS[0] | {"s": 5}, 3)


@pytest.mark.parametrize("form", list(Form))
def test_history_and_steps_have_one_table_in_every_form(form: Form) -> None:
    for seed in range(60):
        stream = random_stream(random.Random(seed), 25, rows=ROWS)
        run, table = QueryRun({"n": counted(form).node}), ResultTable()
        steps = [step for item in stream for step in run.take("numbers", [item])] + run.end()
        for step in steps:
            table.apply(step["n"])
        assert table.stable == INF
        assert sorted(table.events.elements()) == sorted(collect(counted().node, {"numbers": stream}))
        run.graph.check()
        assert run.graph.live() == 0


def test_a_publisher_gets_a_legal_stream_of_the_rows() -> None:
    plan = counted("eager")
    for seed in range(40):
        run, writer, tdb, table = QueryRun({"n": plan.node}), ElementWriter(plan.node), Tdb(), ResultTable()
        for item in random_stream(random.Random(seed), 25, rows=ROWS):
            deltas = [step["n"] for step in run.take("numbers", [item])]
            for delta in deltas:
                table.apply(delta)
            tdb.apply_batch(writer.batch(deltas))
        forms = RowForms(plan.schema)
        events = Counter(Lifetime(forms.of_payload(event.payload), event.vs, event.ve) for event in tdb.events())
        assert events == table.events
        assert tdb.stable_point == table.stable


def test_several_results_come_from_one_run() -> None:
    base = source("numbers", {"a": "int", "b": "int"})
    run = QueryRun({"all": base.node, "some": base.where(col.a > 0).node})
    (step,) = run.take("numbers", [Change((0, 1), 1, 1, 5), Change((1, 1), 2, 2, 5), 3])
    assert [len(step[name].changes) for name in ("all", "some")] == [2, 1]
    assert {name: delta.stable for name, delta in step.items()} == {"all": 3, "some": 3}


def test_a_source_that_breaks_its_stream_is_named() -> None:
    run = QueryRun({"n": counted().node})
    with pytest.raises(UsageError, match="no source 'letters'; it has numbers"):
        run.take("letters", [5])
    with pytest.raises(UsageError, match="no source 'letters'"):
        QueryRun({"n": counted().node}, {"letters": SourceSettings()})
    run.take("numbers", [7])
    with pytest.raises(InputViolation, match="numbers"):
        run.take("numbers", [Change((0, 0), 6, 6, 9)])


def test_a_rule_makes_the_stable_points_of_a_source() -> None:
    settings = {"numbers": SourceSettings(ProgressRule(delay=2), LatePolicy.DROP)}
    run, table = QueryRun({"n": counted().node}, settings), StreamTable()
    for t in (1, 9, 4, 20):
        for step in run.take("numbers", [Change((0, 0), t, t, t + 1)]):
            table.apply(step["n"])
    assert run.entrances["numbers"].dropped == 1
    assert table.stable == 14
    for step in run.end():
        table.apply(Delta(step["n"].changes, step["n"].stable))
    assert sum(table.events.values()) == 7


def test_a_signal_is_its_samples_each_until_the_next_one() -> None:
    signal = source("signal", {"a": "int", "b": "int"}, shape="edge", by="a")
    samples: list[Change | int] = [
        Change((0, 5), 1, 1, INF),
        Change((0, 6), 9, 9, 10),
        Change((1, 7), 4, 4, 5),
        9,
        Change((0, 4), 9, 9, 11),
    ]
    assert collect(signal.node, {"signal": samples}) == [
        Lifetime((0, 5), 1, 9),
        Lifetime((1, 7), 4, INF),
        Lifetime((0, 6), 9, INF),
    ]


def test_a_source_of_points_has_nothing_else() -> None:
    points = source("points", {"a": "int"}, shape="point")
    kept = [Change((0,), 1, 1, 2), Change((1,), 5, 5, 6), Change((1,), 5, 6, 5)]
    assert collect(points.node, {"points": kept}) == [Lifetime((0,), 1, 2)]
    for wrong in (Change((0,), 1, 1, 3), Change((0,), 1, 1, INF)):
        run = QueryRun({"result": points.node})
        with pytest.raises(InputViolation, match=r"'points' broke its promise .no-point.*events of one unit of time"):
            run.take("points", [wrong])
