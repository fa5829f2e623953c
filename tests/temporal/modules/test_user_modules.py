"""Users' modules of all eight kinds: what they get, what they may return, and how they fail (M1-M11, Q3, Q4, Q14)."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from interrupts import accept_interrupts, handled_interrupts
from module_world import (
    ARGUMENT,
    DEFINED,
    NUMBERS,
    CountsByValue,
    Distinct,
    Latest,
    Ranked,
    Spread,
    Total,
    Weighted,
    WeightedTotal,
    events_of,
)
from window_judge import check_windows

from lmerge.core.elements import INF
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.modules.adapters import bind_aggregate_module, bind_operator_module, check_policies
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.builtin import bind_aggregate
from lmerge.temporal.modules.calls import WindowContext
from lmerge.temporal.modules.kinds import Aggregate, AggregateModule, Operator, OperatorModule, TimedOperator
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import CountWindows, Hopping, Snapshots, WindowDescriptor, WindowKind
from lmerge.temporal.windows.module import IncrementalModule, MergeableModule, WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.wire.schema import Schema, SchemaLike, parse_schema

WINDOW = WindowDescriptor(0, 10)
ROWS = ((0,), (1,), (3,))


def bound(module: AggregateModule | OperatorModule) -> WindowModule:
    if isinstance(module, AggregateModule):
        return aggregate_module([bind_aggregate_module(module, [ARGUMENT], "r")], NUMBERS)
    return bind_operator_module(module, NUMBERS, None if module.inputs is None else [ARGUMENT])


def over(module: WindowModule, events: Sequence[Lifetime], window: WindowDescriptor = WINDOW) -> list[Any]:
    return list(module.compute(events, window))


KINDS = list(DEFINED)


def random_events(random_: random.Random) -> list[Lifetime]:
    found = []
    for _ in range(random_.randint(1, 6)):
        vs = random_.randint(-5, 9)
        ve = INF if random_.random() < 0.1 else random_.randint(max(vs, 0) + 1, 12)
        found.append(Lifetime(random_.choice(ROWS), vs, ve))
    return sorted(found, key=lambda event: (event.vs, event.ve, event.row))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_computes_what_its_definition_has(kind: type[AggregateModule | OperatorModule]) -> None:
    module = bound(kind())
    assert module.stamps is (kind in (Ranked, Latest))
    for seed in range(50):
        events = random_events(random.Random(seed))
        assert sorted(over(module, events)) == sorted(DEFINED[kind](events, WINDOW))


@pytest.mark.parametrize("kind", [Total, WeightedTotal, CountsByValue, Latest])
def test_a_state_through_a_history_gives_what_the_set_gives(kind: type[AggregateModule | OperatorModule]) -> None:
    module = bound(kind())
    assert isinstance(module, IncrementalModule)
    for seed in range(30):
        random_ = random.Random(seed)
        state, events = module.begin(), list[Lifetime]()
        for _ in range(20):
            if events and random_.random() < 0.4:
                events.remove(gone := random_.choice(events))
                state = module.remove(state, gone)
            else:
                events.append(random_events(random_)[0])
                state = module.add(state, events[-1])
            if random_.random() < 0.2:
                state = module.restore(module.state_of(module.copied(state)))
            if random_.random() < 0.5:
                expected = DEFINED[kind](events, WINDOW) if events else []
                if isinstance(kind(), AggregateModule) and not events:
                    expected = [(None,)]
                assert sorted(module.result(state, WINDOW), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("kind", [Total, CountsByValue])
def test_merged_states_are_the_state_of_both_sets(kind: type[AggregateModule | OperatorModule]) -> None:
    module = bound(kind())
    assert isinstance(module, MergeableModule)
    for seed in range(20):
        random_ = random.Random(seed)
        sets = [random_events(random_), random_events(random_)]
        left, right = [module.begin(), module.begin()]
        for event in sets[0]:
            left = module.add(left, event)
        for event in sets[1]:
            right = module.add(right, event)
        for state in (left, right):
            if random_.random() < 0.5:
                module.result(state, WINDOW)
        merged = module.merge(module.copied(left), right)
        assert sorted(module.result(merged, WINDOW)) == sorted(DEFINED[kind]([*sets[0], *sets[1]], WINDOW))
        assert sorted(module.result(right, WINDOW)) == sorted(DEFINED[kind](sets[1], WINDOW))


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("kind", KINDS)
def test_windows_with_each_kind_are_those_of_the_definition(
    kind: type[AggregateModule | OperatorModule], form: Form
) -> None:
    user_module = kind()
    module = bound(user_module)
    own = [Stamp.CLIP, Stamp.UNCHANGED] if module.stamps else []
    for seed in range(24):
        random_ = random.Random(seed)
        kinds: list[WindowKind] = [Hopping(5, 5), Hopping(4, 2, 1), Snapshots(), CountWindows(2)]
        window = random_.choice(kinds)
        rules = WindowRules(
            window, module, random_.choice(list(Clip)), random_.choice([Stamp.ALIGN, *own]), form, lambda row: row
        )
        if not user_module.is_timed:
            rules = WindowRules(window, module, Clip.NONE, Stamp.ALIGN, form, lambda row: row)
        check_windows(rules, random_, ROWS)


def test_an_incremental_module_is_called_once_with_what_came_and_once_with_what_went() -> None:
    user_module = Total()
    module = bound(user_module)
    assert isinstance(module, IncrementalModule)
    state = module.begin()
    for event in events_of((5, 3, 4), (1, 1, 2), (4, 0, 9)):
        state = module.add(state, event)
    state = module.remove(state, events_of((4, 0, 9))[0])
    assert module.result(state, WINDOW) == [(6,)]
    assert user_module.calls == ["add [1, 5]"]
    state = module.add(module.remove(state, events_of((5, 3, 4))[0]), events_of((7, 2, 3))[0])
    assert module.result(state, WINDOW) == [(8,)]
    assert user_module.calls[1:] == ["add [7]", "remove [5]"]


def test_a_module_over_two_columns_has_a_state_for_each_and_over_one_it_has_one() -> None:
    schema = parse_schema({"a": "int", "b": "int"})
    user_module = Total()
    bound_twice = [
        bind_aggregate_module(user_module, [column_argument(schema, name, "")], f"r{at}")
        for at, name in enumerate("aba")
    ]
    module = aggregate_module(bound_twice, schema)
    assert over(module, [Lifetime((1, 10), 0, 1), Lifetime((2, 20), 0, 1)]) == [(3, 30, 3)]
    assert user_module.calls == ["add [1, 2]", "add [10, 20]"]


def test_the_order_in_which_rows_come_depends_on_what_the_module_gets_alone() -> None:
    schema = parse_schema({"hidden": "int", "n": "int"})
    seen: list[list[int]] = []

    class Order(Aggregate[int, int]):
        inputs: ClassVar[SchemaLike] = {"value": "int"}
        result = "int"

        def compute(self, rows: Sequence[int]) -> int:
            seen.append(list(rows))
            return 0

    module = aggregate_module([bind_aggregate_module(Order(), [column_argument(schema, "n", "")], "r")], schema)
    for hidden in ((1, 2, 3), (3, 2, 1)):
        over(module, sorted(Lifetime((one, n), 0, 1) for one, n in zip(hidden, (5, 9, 7))))
    assert seen == [[5, 7, 9]] * 2


def test_rows_that_wait_are_bounded() -> None:
    user_module = Total()
    module = bound(user_module)
    assert isinstance(module, IncrementalModule)
    state = module.begin()
    for number in range(3000):
        state = module.add(state, Lifetime((number,), 0, 1))
    assert 2 <= len(user_module.calls) <= 4
    assert module.result(state, WINDOW) == [(sum(range(3000)),)]


def test_a_time_insensitive_module_gets_the_same_whatever_the_lifetimes_are() -> None:
    seen = []

    class Look(Operator[int]):
        inputs: ClassVar[SchemaLike] = {"value": "int"}
        results: ClassVar[SchemaLike] = {"value": "int"}

        def compute(self, rows: Sequence[int]) -> list[tuple[int]]:
            seen.append(list(rows))
            return []

    module = bound(Look())
    assert not module.reads_events
    assert not module.reads_window
    for events in (events_of((1, 0, 5), (2, 3, 4)), events_of((1, 4, 5), (2, 0, 1))):
        over(module, sorted(events, key=lambda event: event.row))
    assert seen == [[1, 2], [1, 2]]
    with_times = aggregate_module(
        [
            bind_aggregate_module(Weighted(), [ARGUMENT], "w"),
            bind_aggregate_module(Spread(), [ARGUMENT], "s"),
            bind_aggregate("first", [ARGUMENT], {}, "f", NUMBERS),
        ],
        NUMBERS,
    )
    assert with_times.reads_events
    assert not with_times.starts_only
    assert over(with_times, events_of((3, 0, 5), (1, 2, 4))) == [(1.7, 2, 3)]


class Sight(TimedOperator[int]):
    """Keeps what it has seen."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"value": "int"}

    def __init__(self, *reads: str) -> None:
        self.properties = Properties(reads=reads)
        self.rows: list[TimedRow[int]] = []
        self.window = Window()

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> list[tuple[int]]:
        self.rows, self.window = list(rows), window
        return []


@pytest.mark.parametrize("reads", [(), ("start",), ("end",), ("start", "end"), ("window",)])
def test_a_module_sees_of_times_what_it_declares(reads: tuple[str, ...]) -> None:
    user_module = Sight(*reads)
    context = WindowContext(Hopping(10, 10), parse_schema({"origin": "string", "at": "timestamp"}).columns)
    module = bind_operator_module(user_module, NUMBERS, [ARGUMENT], context)
    over(module, events_of((1, 2, 9), (2, 3, 5)), WindowDescriptor(0, 10, ("JFK", 0)))
    starts, ends = [one.start for one in user_module.rows], [one.end for one in user_module.rows]
    assert starts == ([2, 3] if "start" in reads else [-(2**63)] * 2)
    assert ends == ({("end",): [5, 9], ("start", "end"): [9, 5]}.get(reads, [INF] * 2))
    assert (user_module.window.start, user_module.window.end) == ((0, 10) if "window" in reads else (-(2**63), INF))
    assert user_module.window.kind == Hopping(10, 10)
    assert user_module.window.key == ("JFK", datetime(1970, 1, 1, tzinfo=timezone.utc))
    assert (module.reads_events, module.starts_only) == ("start" in reads or "end" in reads, reads == ("start",))
    assert module.reads_window is ("window" in reads)


def test_values_are_those_of_python_at_the_edge() -> None:
    schema = parse_schema(
        {"at": "timestamp", "price": "decimal(2)", "tags": "list<int>", "place?": {"x": "int"}, "n": "int"}
    )
    seen: list[Any] = []

    class Echo(Operator[Any]):
        def results_schema(self, inputs: Schema) -> Schema:
            return inputs

        def compute(self, rows: Sequence[Any]) -> list[Any]:
            seen.extend(rows)
            return [row._asdict() for row in rows]

    row = (1_000_000, Decimal("1.50"), (1, 2), (7,), 3)
    assert over(bind_operator_module(Echo(), schema), [Lifetime(row, 0, 1)]) == [row]
    assert seen[0].at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert (seen[0].tags, seen[0].place, seen[0].n) == ([1, 2], {"x": 7}, 3)


def test_an_int_column_is_taken_for_floats_and_other_types_are_refused_by_name() -> None:
    schema = parse_schema({"n": "int", "s": "string", "f": "float(2)", "l": "list<int>"})

    class Mean(Aggregate[float, float]):
        inputs: ClassVar[SchemaLike] = {"value": "float"}
        result = "float"
        version = 3

        def compute(self, rows: Sequence[float]) -> float:
            assert all(isinstance(row, float) for row in rows)
            return sum(rows) / len(rows)

    def bind(*columns: str) -> WindowModule:
        arguments = [column_argument(schema, column, "") for column in columns]
        return aggregate_module([bind_aggregate_module(Mean(), arguments, "m")], schema)

    assert over(bind("n"), [Lifetime((1, "", 0.0, ()), 0, 1), Lifetime((2, "", 0.0, ()), 0, 1)]) == [(1.5,)]
    with pytest.raises(PlanError, match=r"module 'mean' version 3 takes value: float, and column 's' is string"):
        bind("s")
    with pytest.raises(PlanError, match="column 'l' is list<int>"):
        bind("l")
    with pytest.raises(PlanError, match=r"takes 1 columns \(value: float\), and got 2"):
        bind("n", "f")


def test_rows_with_a_missing_value_are_not_given_and_an_aggregate_of_none_is_missing() -> None:
    schema = parse_schema({"n": "int?"})
    argument = column_argument(schema, "n", "")
    aggregate = bind_aggregate_module(Total(), [argument], "t")
    assert aggregate.result.describe() == "int?"
    module = aggregate_module([aggregate], schema)
    assert isinstance(module, IncrementalModule)
    missing, present = Lifetime((None,), 0, 1), Lifetime((4,), 0, 1)
    assert over(module, [missing, present]) == [(4,)]
    assert over(module, [missing]) == [(None,)]
    state = module.add(module.add(module.begin(), missing), present)
    assert module.result(state, WINDOW) == [(4,)]
    assert module.result(module.remove(state, present), WINDOW) == [(None,)]
    assert over(aggregate_module([bind_aggregate_module(Spread(), [argument], "s")], schema), [missing]) == [(None,)]


def failing(value: Any, of_operator: bool = False, result: str = "int") -> WindowModule:
    """Return a module that returns a value, or raises it."""

    def answer() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    class Broken(Aggregate[int, Any]):
        inputs: ClassVar[SchemaLike] = {"value": "int"}

        def compute(self, rows: Sequence[int]) -> Any:
            return answer()

    class BrokenOperator(Operator[int]):
        inputs: ClassVar[SchemaLike] = {"value": "int"}
        results: ClassVar[SchemaLike] = {"a": "int", "b": "string?"}

        def compute(self, rows: Sequence[int]) -> Any:
            return answer()

    Broken.result = result
    return bound(BrokenOperator() if of_operator else Broken())


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (
            failing([1]),
            r"module 'broken' version 1 returned in window \[0, 10\) for r, which is int: \[1\] is not a whole",
        ),
        (failing(None), "no value for r, which is int"),
        (failing(1.5), "1.5 is not a whole number"),
        (failing("x", result="float"), "'x' is not a number"),
        (failing(ValueError("bad")), r"raised ValueError: bad in window \[0, 10\), given the event \(1\) \[2, 3\)"),
        (failing(None, of_operator=True), r"returned None; an operator returns rows in window \[0, 10\)"),
        (failing(5, of_operator=True), "raised TypeError: 'int' object is not iterable"),
        (failing([5], of_operator=True), "5 where a row is a tuple, a list or a mapping"),
        (failing([(1,)], of_operator=True), "a row with 1 columns, and declares 2"),
        (failing([("x", "y")], of_operator=True), "for a, which is int: 'x' is not a whole number"),
        (failing([{"a": 1, "c": 2}], of_operator=True), "a row with a column 'c', which it does not declare"),
        (failing([{"b": "y"}], of_operator=True), "no value for a, which is int"),
    ],
)
def test_what_a_module_may_not_return_or_raise_is_named(module: WindowModule, problem: str) -> None:
    with pytest.raises(ModuleViolation, match=problem):
        over(module, events_of((1, 2, 3)))


def test_an_aggregate_may_return_none_if_it_declares_it_and_an_operator_any_number_of_rows() -> None:
    assert over(failing(None, result="int?"), events_of((1, 2, 3))) == [(None,)]
    assert over(failing([{"a": 1}, (2, "x")], of_operator=True), events_of((1, 2, 3))) == [(1, None), (2, "x")]
    assert over(failing([], of_operator=True), events_of((1, 2, 3))) == []


def test_a_generator_that_fails_late_is_named_too() -> None:
    class Late(Operator[int]):
        inputs: ClassVar[SchemaLike] = {"value": "int"}
        results: ClassVar[SchemaLike] = {"value": "int"}

        def compute(self, rows: Sequence[int]) -> Any:
            yield (1,)
            raise KeyError("gone")

    with pytest.raises(ModuleViolation, match="module 'late' version 1 raised KeyError: 'gone'"):
        over(bound(Late()), events_of((1, 2, 3), (2, 2, 3)))


@pytest.mark.parametrize("raised", [SystemExit(0), GeneratorExit(), KeyboardInterrupt()])
def test_a_module_does_not_end_the_program(raised: BaseException) -> None:
    with handled_interrupts(), pytest.raises(ModuleViolation, match=f"raised {type(raised).__name__}: .*in window"):
        over(failing(raised), events_of((1, 2, 3)))


def test_an_interrupt_ends_the_program_and_is_no_fault_of_a_module() -> None:
    accept_interrupts()

    class Slow(Aggregate[int, int]):
        inputs: ClassVar[SchemaLike] = {"value": "int"}
        result = "int"

        def compute(self, rows: Sequence[int]) -> int:
            signal.raise_signal(signal.SIGINT)
            return 0

    with pytest.raises(KeyboardInterrupt):
        over(bound(Slow()), events_of((1, 2, 3)))


@pytest.mark.parametrize("lifetime", [("0", 5), (0, 5.0), (0, 2**63), (True, 5)])
def test_a_lifetime_that_is_none_is_refused(lifetime: tuple[Any, Any]) -> None:
    class Odd(TimedOperator[int]):
        inputs: ClassVar[SchemaLike] = {"value": "int"}
        results: ClassVar[SchemaLike] = {"value": "int"}

        def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> list[Stamped]:
            return [Stamped((1,), *lifetime)]

    with pytest.raises(ModuleViolation, match=r"a lifetime with .*, which is no time"):
        over(bound(Odd()), events_of((1, 2, 3)))


def test_policies_that_do_not_go_with_a_module_are_refused() -> None:
    check_policies(Ranked(), Clip.LEFT, Stamp.UNCHANGED)
    check_policies(Spread(), Clip.FULL, Stamp.ALIGN)
    for stamp in (Stamp.UNCHANGED, Stamp.CLIP, Stamp.TIME_BOUND):
        with pytest.raises(PlanError, match=f"gives its results no lifetimes, so output={stamp} does not go"):
            check_policies(Distinct(), Clip.NONE, stamp)
        with pytest.raises(PlanError, match="gives its results no lifetimes"):
            check_policies(Weighted(), Clip.NONE, stamp)
    with pytest.raises(PlanError, match="does not declare time_bound"):
        check_policies(Ranked(), Clip.NONE, Stamp.TIME_BOUND)
    needing = Sight("start", "end")
    needing.properties = Properties(needs=("start",))
    for clip in (Clip.LEFT, Clip.FULL):
        with pytest.raises(PlanError, match=f"needs the starts of events, which clip={clip} cuts"):
            check_policies(needing, clip, Stamp.ALIGN)
    check_policies(needing, Clip.RIGHT, Stamp.ALIGN)
    needing.properties = Properties(needs=("end",))
    with pytest.raises(PlanError, match="needs the ends of events"):
        check_policies(needing, Clip.RIGHT, Stamp.ALIGN)
    check_policies(needing, Clip.LEFT, Stamp.ALIGN)


def test_declarations_that_cannot_be_are_refused() -> None:
    with pytest.raises(PlanError, match="needs end, which it does not read"):
        Properties(reads=("start",), needs=("end",))
    with pytest.raises(PlanError, match="reads"):
        Properties(reads=("begin",))
    with pytest.raises(PlanError, match=r"a module that needs \('window',\): what there is are start, end"):
        Properties(needs=("window",))
    with pytest.raises(PlanError, match="needs"):
        Properties(needs="start")
    random_one = Sight()
    random_one.properties = Properties(deterministic=False)
    with pytest.raises(PlanError, match="module 'sight' version 1 is declared not deterministic"):
        bind_operator_module(random_one, NUMBERS, [ARGUMENT])
    random_one.properties = Properties(empty_preserving=False)
    with pytest.raises(PlanError, match="declares results of windows without events"):
        bind_operator_module(random_one, NUMBERS, [ARGUMENT])


def test_a_state_of_another_version_is_refused() -> None:
    old, new = Total(), Total()
    new.version = 2
    before, after = bound(old), bound(new)
    assert isinstance(before, IncrementalModule)
    assert isinstance(after, IncrementalModule)
    plain = before.state_of(before.add(before.begin(), events_of((1, 0, 1))[0]))
    assert plain == [[1, 1, [1, 1]]]
    with pytest.raises(PlanError, match="module 'total' version 2 cannot go on with a state of version 1"):
        after.restore(plain)
