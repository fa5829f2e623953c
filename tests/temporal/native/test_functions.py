"""Users' functions in native expressions: the results, the errors and the rows that they get are those of Python."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from interrupts import accept_interrupts, handled_interrupts

import lmerge.temporal as lt
from lmerge.core.elements import INF
from lmerge.core.engines import selection
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.expressions.binding import BoundProjection, bind_all
from lmerge.temporal.expressions.functions import FunctionRegistry, ScalarFunction
from lmerge.temporal.expressions.surface import Expression, coalesce, col, lit, when
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.values import Values
from lmerge.wire.native_fitting import declared
from lmerge.wire.schema import Schema, parse_schema

pytestmark = pytest.mark.skipif(selection.native_problem() is not None, reason="the native core is not built")

SCHEMA = parse_schema({"a": "int", "b": "int?", "x": "float", "t": "string?", "at": "timestamp", "p": "decimal(2)?"})
FORMS = ("row", "list", "numpy", "arrow")


def native(bound: BoundProjection, rows: Sequence[Values], schema: Schema = SCHEMA) -> list[Values]:
    from lmerge._native import ColumnForm
    from lmerge.temporal.native.expressions import native_expressions

    expressions = native_expressions(bound, schema)
    assert expressions is not None
    batch = ColumnForm(declared(schema)).batch([(row, 0, 0, 1) for row in rows])
    return [row for row, *_ in expressions.evaluate(batch).changes()]


def outcome(work: Callable[[], list[Values]]) -> str:
    """Return values with their types, or the error with its cause."""
    try:
        return repr(work())
    except ModuleViolation as violation:
        return f"{violation} because of {violation.__cause__!r}"


def of_python(bound: BoundProjection, rows: Sequence[Values]) -> str:
    return outcome(lambda: list(map(bound.evaluate, rows)))


def of_native(bound: BoundProjection, rows: Sequence[Values]) -> str:
    return outcome(lambda: native(bound, rows))


def random_row(rng: Random) -> Values:
    return (
        rng.randint(-3, 3),
        rng.choice((None, 0, 2, 5)),
        rng.choice((0.0, 1.5, float("inf"), -2.25)),
        rng.choice((None, "", "é", "abc")),
        rng.choice((0, 86_400_000_000, -1, 2**62 if rng.random() < 0.05 else 5)),
        rng.choice((None, Decimal("1.50"), Decimal("-0.01"))),
    )


def sum_of(a: int | None, b: int | None) -> int | None:
    if a == 3 and b == 2:
        raise KeyError("three and two")
    return 1.5 if a == -3 and b == 5 else None if a is None or b is None else a + b  # type: ignore[return-value]  # what the plan refuses


def in_form(function: Callable[..., Any], form: str) -> Callable[..., Any]:
    """Return a function of one row as one of columns in a form."""
    if form == "row":
        return function

    def of_columns(*columns: Any) -> Any:
        if form == "numpy":
            assert all(isinstance(column, np.ndarray) and not column.flags.writeable for column in columns)
        if form == "arrow":
            assert all(isinstance(column, pa.Array) for column in columns)
        rows = zip(*(column if isinstance(column, list) else column.tolist() for column in columns), strict=True)
        found = list(itertools.starmap(function, rows))
        if form == "numpy" and all(type(one) is float for one in found):
            return np.array(found, dtype="float64")
        return pa.array(found) if form == "arrow" and len({type(one) for one in found}) == 1 else found

    return of_columns


def functions_in(form: str) -> dict[str, ScalarFunction]:
    registry = FunctionRegistry()
    options: dict[str, Any] = {} if form == "row" else {"vectorised": True, "columns": form}
    declared_functions: dict[str, tuple[list[str], str, Any, Callable[..., Any]]] = {
        "sum_of": (["int?", "int?"], "int?", "pass", sum_of),
        "half": (["float"], "float", "skip", lambda x: -0.0 if x == 0.0 else x - x),
        "ratio": (["int", "int"], "int", "skip", lambda a, b: 60 // (a + b)),
        "named": (["string"], "string", "skip", lambda t: t.upper() if t else 5),
        "later": (["timestamp"], "timestamp", "skip", lambda at: at + timedelta(days=1)),
        "price": (["decimal(2)"], "float(1)", "skip", lambda p: float(p) / 3),
        "pair": (["int", "string"], "list<string>", "skip", lambda n, t: [t] * n),
        "kept": (["int"], "bool", "skip", lambda a: a % 2 == 0),
    }
    return {
        name: registry.scalar(arguments, result, name=name, nulls=nulls, **options)(in_form(function, form))
        for name, (arguments, result, nulls, function) in declared_functions.items()
    }


def random_int(rng: Random, of: dict[str, ScalarFunction], depth: int) -> Expression:
    if depth == 0:
        return rng.choice((col.a, col.b, lit(rng.randint(-2, 4))))
    left, right = random_int(rng, of, depth - 1), random_int(rng, of, depth - 1)
    return rng.choice(
        (
            of["sum_of"](left, right),
            of["ratio"](left, right),
            left - right,
            when(of["kept"](left)).then(of["sum_of"](left, 1)).otherwise(right),
            when((left > 0) & of["kept"](right)).then(right).otherwise(of["ratio"](right, left)),
            when((left > 0) | (of["sum_of"](left, right) > 1)).then(left).otherwise(9),
            coalesce(left, of["ratio"](right, 2)),
        )
    )


def random_trees(rng: Random, of: dict[str, ScalarFunction]) -> list[Expression]:
    others = (
        of["half"](col.x),
        of["named"](col.t),
        of["later"](col.at),
        of["price"](col.p),
        of["pair"](col.a, col.t),
        of["named"](when(of["kept"](col.a)).then(col.t).otherwise("other")),
    )
    return [random_int(rng, of, rng.randint(1, 3)) for _ in range(rng.randint(1, 3))] + rng.sample(others, 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(40))
def test_functions_give_the_same_results_and_errors(form: str, seed: int) -> None:
    rng, of = Random(seed), functions_in(form)
    bound = bind_all(random_trees(rng, of), SCHEMA, operator="any")
    rows = [random_row(rng) for _ in range(30)]
    good = []
    for row in rows:
        expected = of_python(bound, [row])
        assert of_native(bound, [row]) == expected
        if " because of " not in expected:
            good.append(row)
    assert of_native(bound, good) == of_python(bound, good)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(12))
def test_a_plan_ends_at_the_first_row_that_fails(form: str, seed: int) -> None:
    rng, of = Random(seed), functions_in(form)
    kept, trees = of["kept"](coalesce(col.b, 0)) | (random_int(rng, of, 2) > 0), random_trees(rng, of)
    stream = lt.source("s", SCHEMA).where((col.a > -3) & kept)
    stream = stream.select("a", **{f"y{at}": tree for at, tree in enumerate(trees)}).where(of["kept"](col.a))
    graphs = [compile_plan([stream.node]).graph(implementation) for implementation in ("python", "native")]
    bound = bind_all([kept, *trees], SCHEMA)

    def is_good(row: Values) -> bool:
        return "because of" not in of_python(bound, [row])

    for now in range(20):
        some = [random_row(rng) for _ in range(rng.randint(0, 12))]
        rows = [row for row in some if is_good(row) or rng.random() < 0.03]
        delta = Delta([Change(row, now, now, now + 9) for row in rows], now + 1, now)
        found = []
        for graph in graphs:
            try:
                found.append(repr(graph.step([delta])))
            except LmergeError as error:
                found.append(f"{error} because of {error.__cause__!r}")
        assert found[0] == found[1]
        if "because of" in found[0]:
            return


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("implementation", ["python", "native"])
def test_the_first_row_decides_and_not_the_first_part(form: str, implementation: str) -> None:
    registry = FunctionRegistry()
    options: dict[str, Any] = {} if form == "row" else {"vectorised": True, "columns": form}
    inverse, root = (
        registry.scalar(["int"], "int", name=name, **options)(in_form(function, form))
        for name, function in (("inverse", lambda a: 6 // (a - 3)), ("root", lambda a: [0, 1][a + 2]))
    )
    stream = lt.source("s", {"a": "int"}).select("a", y=inverse(col.a)).select(z=root(col.y))
    graph = compile_plan([stream.node]).graph(implementation)
    with pytest.raises(ModuleViolation, match=r"root.* raised IndexError: .*, in row \(2, -6\)"):
        graph.step([Delta([Change((a,), a, a, INF) for a in range(4)], None)])


@pytest.mark.parametrize("form", FORMS)
def test_only_the_rows_that_need_it_reach_a_function(form: str) -> None:
    given: list[int] = []

    def noted(a: int) -> int:
        given.append(a)
        return a

    options: dict[str, Any] = {} if form == "row" else {"vectorised": True, "columns": form}
    function = FunctionRegistry().scalar(["int"], "int", name="noted", **options)(in_form(noted, form))
    rows = [(a, b, 0.0, None, 0, None) for a, b in ((1, 1), (2, None), (3, 2), (4, 1), (5, None), (6, 3))]
    for tree, needed in (
        ((col.a > 2) & (function(col.a) > 0), [3, 4, 5, 6]),
        ((col.a > 2) | (function(col.a) > 0), [1, 2]),
        ((col.b > 1) & (function(col.a) > 0), [2, 3, 5, 6]),
        (function(col.b), [1, 2, 1, 3]),
        (coalesce(col.b, function(col.a)), [2, 5]),
        (when(col.a == 4).then(function(col.a)).otherwise(1), [4]),
        (when(col.a == 4).then(1).otherwise(function(col.a)), [1, 2, 3, 5, 6]),
        (when(col.a < 3).then(function(col.a)).when(col.a < 5).then(function(col.a) + 1).otherwise(0), [1, 2, 3, 4]),
        (function(col.a + 0) + function(col.a + 0), [1, 2, 3, 4, 5, 6]),
        (function(lit(7)), [7]),
    ):
        bound = bind_all([tree], SCHEMA)
        given.clear()
        found = native(bound, rows)
        assert given == needed, str(tree)
        assert found == list(map(bound.evaluate, rows))
    assert native(bound, []) == []


def test_a_failure_is_kept_and_not_looked_for_again() -> None:
    """A function that fails once is called once for the row, and its error has the cause that it had."""
    calls: list[int] = []

    def fails_once(a: int) -> int:
        calls.append(a)
        if calls.count(2) == 1 and a == 2:
            raise ValueError("once")
        return a

    function = FunctionRegistry().scalar(["int"], "int", name="fails_once")(fails_once)
    rows = [(a, None, 0.0, None, 0, None) for a in (1, 2, 3)]
    with pytest.raises(
        ModuleViolation, match="'fails_once' version 1 raised ValueError: once, in row \\(2, "
    ) as raised:
        native(bind_all([function(col.a)], SCHEMA), rows)
    assert calls == [1, 2]
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("raised", [SystemExit(0), GeneratorExit(), KeyboardInterrupt()])
def test_a_function_does_not_end_the_program(form: str, raised: BaseException) -> None:
    def ends(a: Any) -> Any:
        raise raised

    options: dict[str, Any] = {} if form == "row" else {"vectorised": True, "columns": form}
    bound = bind_all([FunctionRegistry().scalar(["int"], "int", **options)(ends)(col.a)], SCHEMA)
    message = rf"function 'ends' version 1 raised {type(raised).__name__}: .*in row \(1, "
    with handled_interrupts(), pytest.raises(ModuleViolation, match=message):
        native(bound, [(a, None, 0.0, None, 0, None) for a in (1, 2)])


@pytest.mark.parametrize("form", FORMS)
def test_an_interrupt_ends_the_program_and_is_no_fault_of_a_function(form: str) -> None:
    accept_interrupts()

    def slow(a: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return a

    options: dict[str, Any] = {} if form == "row" else {"vectorised": True, "columns": form}
    bound = bind_all([FunctionRegistry().scalar(["int"], "int", **options)(slow)(col.a)], SCHEMA)
    with pytest.raises(KeyboardInterrupt):
        native(bound, [(a, None, 0.0, None, 0, None) for a in (1, 2)])


def test_a_function_that_stops_an_iteration_is_named() -> None:
    function = FunctionRegistry().scalar(["int"], "int", name="ends")(lambda a: a if a < 2 else next(iter(())))
    rows = [(a, None, 0.0, None, 0, None) for a in (1, 2, 3)]
    bound = bind_all([function(col.a)], SCHEMA)
    with pytest.raises(ModuleViolation, match="'ends' version 1 raised StopIteration: , in row \\(2, "):
        native(bound, rows)


def test_a_batch_that_fails_only_together_is_named() -> None:
    def picky(values: list[int]) -> list[int]:
        if len(values) > 1:
            raise ValueError("too many")
        return values

    function = FunctionRegistry().scalar(["int"], "int", name="picky", vectorised=True)(picky)
    stream = lt.source("s", {"a": "int"}).select(y=function(col.a))
    delta = Delta([Change((a,), a, a, INF) for a in range(3)], None)
    texts = []
    for implementation in ("python", "native"):
        graph = compile_plan([stream.node]).graph(implementation)
        with pytest.raises(
            ModuleViolation, match="too many, in a batch of 3 rows; the first is the one shown"
        ) as raised:
            graph.step([delta])
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


def test_functions_that_are_not_deterministic_run_in_python() -> None:
    from lmerge.temporal.native.expressions import native_expressions

    function = FunctionRegistry().scalar(["int"], "int", name="any", deterministic=False)(lambda n: n)
    assert native_expressions(bind_all([function(col.a) + 1], SCHEMA), SCHEMA) is None


def test_arrays_are_those_of_the_plan() -> None:
    """A function of arrays gets the memory of the batch, and its results are taken as they are, but for their form."""
    given: list[Any] = []

    def shared(values: Any) -> Any:
        given.append(values)
        return np.where(values == 0.0, -0.0, values)

    function = FunctionRegistry().scalar(["float"], "float", name="shared", vectorised=True, columns="numpy")(shared)
    bound = bind_all([function(col.x)], SCHEMA)
    assert repr(native(bound, [(0, 1, x, "", 0, None) for x in (0.0, 1.5)])) == "[(0.0,), (1.5,)]"
    (array,) = given
    assert array.dtype == "float64"
    assert not array.flags.writeable
    assert not array.flags.owndata


def test_moments_reach_a_function_as_moments() -> None:
    function = FunctionRegistry().scalar(["timestamp"], "int", name="year", vectorised=True, columns="numpy")(
        lambda moments: [moment.year for moment in moments]
    )
    bound = bind_all([function(col.at)], SCHEMA)
    at = int(datetime(2013, 5, 1, tzinfo=timezone.utc).timestamp()) * 1_000_000
    assert native(bound, [(0, 1, 0.0, "", at, None)]) == [(2013,)]
