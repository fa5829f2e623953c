"""Modules by name: entry points, registration, parameters, descriptions (M10, M12, M13)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import ClassVar

import pytest
from module_world import NUMBERS, CountsByValue, Spread, Total
from package_world import write_package

import lmerge.temporal as lt
import lmerge.temporal.expressions.installed as installed_module
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.functions import FunctionRegistry, ScalarFunction
from lmerge.temporal.expressions.installed import GROUP
from lmerge.temporal.expressions.json_format import from_json, to_json
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.modules.adapters import bind_aggregate_module, bind_operator_module
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.describing import DescribedParameter, describe
from lmerge.temporal.modules.functions import aggregate_function
from lmerge.temporal.modules.kinds import Aggregate
from lmerge.temporal.modules.registry import ModuleRegistry, bind_call
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.testing.example_modules import FollowedBy, MyAverage, MyTimeWeightedAverage
from lmerge.wire.schema import Column, Schema, SchemaLike, parse_schema

IMPORTED = "imported_modules"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, **entries: str) -> None:
    """Make a package that declares modules importable."""
    write_package(folder, package, **entries)
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    examples = "lmerge.testing.example_modules"
    install(tmp_path, monkeypatch, "pack", my_average=f"{examples}:MyAverage", lazy=f"{IMPORTED}:NOTHING")
    tmp_path.joinpath(f"{IMPORTED}.py").write_text("NOTHING = 1\n")
    return tmp_path


def test_installed_modules_are_listed_without_importing_them(installed: Path) -> None:
    registry = ModuleRegistry()
    registry.register(Spread)
    assert [name for name in registry.names() if name in ("my_average", "lazy", "spread")] == [
        "lazy",
        "my_average",
        "spread",
    ]
    assert IMPORTED not in sys.modules


def test_a_module_is_made_by_its_name_with_parameters(installed: Path) -> None:
    module = ModuleRegistry().module("my_average", {"digits": 1})
    assert isinstance(module, MyAverage)
    assert module.compute([1.0, 1.0, 1.2]) == 1.1
    assert module.shown == "module 'my_average' version 1"
    registry = ModuleRegistry()
    registry.register(aggregate_function(name="top", inputs={"v": "float"}, result="float")(max))
    assert registry.module("top").shown == "module 'top' version 1"


def test_packages_are_read_once_and_again_when_one_comes(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = ModuleRegistry()
    registry.names()
    read: list[str] = []

    def reading(group: str) -> EntryPoints:
        read.append(group)
        return entry_points(group=group)

    monkeypatch.setattr(installed_module, "entry_points", reading)
    assert "my_average" in registry.names()
    assert registry.find("my_average") is MyAverage
    assert read == []
    before = tmp_path.stat().st_mtime_ns
    write_package(tmp_path, "later", followed_by="lmerge.testing.example_modules:FollowedBy")
    os.utime(tmp_path, ns=(before, before + 10**9))  # the clock of a file system can have steps of some milliseconds
    assert registry.find("followed_by") is FollowedBy
    assert registry.find("my_average") is MyAverage
    assert read == [GROUP]


def test_another_version_than_that_of_the_plan_is_refused(installed: Path) -> None:
    assert ModuleRegistry().module("my_average", version=1).version == 1
    with pytest.raises(PlanError, match="the plan needs module 'my_average' version 2, and version 1 is here"):
        ModuleRegistry().module("my_average", version=2)


def test_an_aggregate_is_bound_by_its_name_whoever_wrote_it() -> None:
    modules, schema = ModuleRegistry(), parse_schema({"delay": "float"})
    modules.register(MyAverage)
    modules.register(FollowedBy)
    argument, window = [column_argument(schema, "delay", "")], WindowDescriptor(0, 10)
    events = [Lifetime((value,), 0, 1) for value in (1.0, 1.0, 1.2)]
    for name, parameters, found in (("max", {}, 1.2), ("my_average", {"digits": 1}, 1.1)):
        bound = bind_call(name, argument, parameters, "m", schema, modules=modules)
        assert (bound.result.name, bound.over(events, window)) == ("m", found)
    with pytest.raises(
        PlanError, match=r"there is no aggregate 'maximum'; there are count, .* followed_by, my_average"
    ):
        bind_call("maximum", argument, {}, "m", schema, modules=modules)
    with pytest.raises(PlanError, match="module 'followed_by' version 1 is an operator: it returns rows"):
        bind_call("followed_by", argument, {}, "m", schema, modules=modules)


def test_two_modules_of_one_name_are_an_error_that_names_both(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "other", monkeypatch, "other", my_average="other:Average")
    registry = ModuleRegistry()
    assert registry.names().count("my_average") == 1
    for use in (lambda: registry.find("my_average"), lambda: describe("my_average", registry)):
        with pytest.raises(
            PlanError, match=r"the name of module 'my_average' is not unique: .*:MyAverage of pack 1.0, other"
        ):
            use()
    with pytest.raises(PlanError, match=r"a module 'my_average' is there already: .* of pack 1.0"):
        registry.register(Spread, "my_average")


def test_a_registration_takes_no_name_that_is_there() -> None:
    registry = ModuleRegistry()
    registry.register(Spread)
    with pytest.raises(PlanError, match="a module 'spread' is there already: it is registered"):
        registry.register(Total, "spread")
    with pytest.raises(PlanError, match="a module 'median' is there already: it comes with lmerge"):
        registry.register(Total, "median")
    registry.forget("spread")
    registry.register(Total, "spread")
    assert registry.find("spread") is Total


def test_an_entry_point_has_the_name_of_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "pack", average="lmerge.testing.example_modules:MyAverage")
    with pytest.raises(
        PlanError, match=r"entry point average of lmerge.modules is called 'my_average' by its own name"
    ):
        ModuleRegistry().find("average")


@pytest.fixture
def threshold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with two versions of a function, of which it declares the second."""
    code = """
        from lmerge.temporal.expressions.functions import FunctionRegistry

        FUNCTIONS = FunctionRegistry()
        FUNCTIONS.scalar(["int"], "float", name="threshold")(float)

        @FUNCTIONS.scalar(["int", "float?"], "float", version=2, nulls="pass", injective=True)
        def threshold(sensor, most):
            \"""The limit of a sensor.\"""
            return 5.0 + sensor
    """
    write_package(tmp_path, "sensors", code, threshold="sensors:threshold", misnamed="sensors:threshold")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "threshold"
    sys.modules.pop("sensors", None)


def test_a_function_of_a_package_is_found_by_its_name_and_version(threshold: str) -> None:
    functions = FunctionRegistry()
    found = functions.find(threshold, 2)
    assert found.function(1, None) == 6.0
    written = to_json(ScalarFunction(found)(col.id, col.most))
    assert from_json(written, FunctionRegistry()).node == from_json(written, functions).node
    with pytest.raises(PlanError, match="function 'threshold' has no version 3; it is declared in 2"):
        functions.find(threshold, 3)
    with pytest.raises(
        PlanError, match=r"entry point misnamed of lmerge.modules is called 'threshold' by its own name"
    ):
        functions.find("misnamed", 1)


def test_a_function_is_described_and_no_module_of_windows(threshold: str) -> None:
    registry = ModuleRegistry(FunctionRegistry())
    assert threshold in registry.names()
    found = describe(threshold, registry)
    assert (found.version, found.kind, found.inputs, found.results) == (2, "function", "int, float?", "float")
    assert (found.summary, found.properties) == ("The limit of a sensor.", ("nulls=pass", "injective"))
    assert found.origin == "sensors:threshold of sensors 1.0"
    with pytest.raises(PlanError, match="'threshold' is a function of rows: expressions call it, and not windows"):
        registry.module(threshold)


def test_a_function_of_this_process_is_described_by_its_newest_version() -> None:
    functions = FunctionRegistry()
    functions.scalar(["int"], "int", name="f", version=3, vectorised=True, columns="numpy", deterministic=False)(abs)
    functions.scalar(["int"], "int", name="f")(abs)
    found = describe("f", ModuleRegistry(functions))
    assert (found.version, found.kind, found.origin) == (3, "function, vectorised", "it is declared in this process")
    assert found.properties == ("columns=numpy", "not deterministic")


def test_a_plan_that_needs_what_is_not_installed_names_it() -> None:
    registry, schema = ModuleRegistry(), parse_schema({"v": "float"})
    with pytest.raises(PlanError, match="the plan needs module 'spread' version 1, which is not installed"):
        registry.module("spread", version=1)
    with pytest.raises(PlanError, match="the plan needs module 'spread' version 1, which is not installed"):
        bind_call("spread", [column_argument(schema, "v", "")], {}, "m", schema, modules=registry, version=1)
    with pytest.raises(PlanError, match="the plan needs function 'limit' version 2, which is not installed"):
        FunctionRegistry().find("limit", 2)


def test_a_plan_records_the_version_of_an_aggregate_that_does_not_come_with_lmerge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
        from lmerge.temporal import aggregate_function

        only_here = aggregate_function(inputs={"v": "float"}, result="float", name="only_here", version=4)(max)
    """
    write_package(tmp_path, "recorded", code, only_here="recorded:only_here")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert lt.aggregate("only_here", col.v).version == 4
    assert lt.aggregate("max", col.v).version is None
    assert lt.aggregate("maximum", col.v).version is None


def test_what_a_module_declares_of_its_columns_is_read_with_care() -> None:
    class Raises(Spread):
        def result_column(self, inputs: Schema) -> Column:
            raise SystemExit(0)

    class Untyped(Spread):
        inputs: ClassVar[SchemaLike] = {"value": "number"}

    class RowsRaise(FollowedBy):
        def results_schema(self, inputs: Schema) -> Schema:
            raise KeyError("first")

    with pytest.raises(PlanError, match="module 'raises' version 1 cannot declare its results: SystemExit: 0"):
        bind_aggregate_module(Raises(), [column_argument(NUMBERS, "n", "")], "r")
    with pytest.raises(PlanError, match="module 'rows_raise' version 1 cannot declare its results: KeyError: 'first'"):
        bind_operator_module(RowsRaise(), parse_schema({"kind": "string", "key": "string"}))
    registry = ModuleRegistry()
    registry.register(Untyped)
    with pytest.raises(
        PlanError, match=r"module 'untyped' cannot be made with \(\): UsageError: column 'value': unknown"
    ):
        registry.module("untyped")


def test_what_cannot_be_read_is_named() -> None:
    class Odd(Spread):
        properties = None  # type: ignore[assignment]  # what the test is about

    registry = ModuleRegistry()
    registry.register(Odd)
    with pytest.raises(PlanError, match="module 'odd' declares what cannot be read: AttributeError"):
        describe("odd", registry)


def test_what_is_no_module_is_refused(installed: Path) -> None:
    registry = ModuleRegistry()
    for declared in (int, max, Spread(), Aggregate):
        with pytest.raises(PlanError, match="is no module: derive a class from a kind"):
            registry.register(declared)  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(
        PlanError, match=r"the entry point lazy of lmerge.modules is no module: imported_modules:NOTHING"
    ):
        registry.find("lazy")
    sys.modules.pop(IMPORTED)


def test_a_module_that_is_not_there_or_does_not_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "pack", broken="no_such_module_here:X")
    with pytest.raises(PlanError, match=r"there is no module 'averag'; there are .*broken"):
        ModuleRegistry().find("averag")
    with pytest.raises(
        PlanError, match="module 'broken' cannot be imported from no_such_module_here:X: ModuleNotFoundError: No module"
    ):
        ModuleRegistry().find("broken")


def test_parameters_that_do_not_fit_are_named() -> None:
    class Scaled(Spread):
        def __init__(self, factor: int, offset: int = 0) -> None:
            if factor < 0:
                raise ValueError("factor is negative")

    registry = ModuleRegistry()
    registry.register(Scaled)
    assert registry.module("scaled", {"factor": 2}).input_schema() is not None
    with pytest.raises(PlanError, match="module 'scaled' has no parameter 'digits'; there are factor, offset"):
        registry.module("scaled", {"factor": 1, "digits": 2})
    with pytest.raises(PlanError, match="module 'scaled' needs the parameter 'factor'"):
        registry.module("scaled")
    with pytest.raises(PlanError, match=r"parameter 'factor' is <.*>, which a plan cannot record"):
        registry.module("scaled", {"factor": object()})
    with pytest.raises(PlanError, match=r"cannot be made with \(factor=-1\): ValueError: factor is negative"):
        registry.module("scaled", {"factor": -1})


def test_a_description_has_all_that_is_declared() -> None:
    registry = ModuleRegistry()
    registry.register(MyAverage)
    found = describe("my_average", registry)
    assert (found.version, found.kind, found.inputs, found.results) == (1, "aggregate", "value: float", "float")
    assert found.summary == "The average of a column. ``digits``: it is rounded to, if given."
    assert found.parameters == (DescribedParameter("digits", "int | None", "None"),)
    assert found.origin == "it is registered"
    registry.register(FollowedBy)
    pattern = describe("followed_by", registry)
    assert pattern.kind == "operator, time-sensitive"
    assert pattern.results == "first: string, second: string"
    assert pattern.properties == ("reads=start+window", "needs=start", "insert_only")
    registry.register(MyTimeWeightedAverage)
    assert describe("my_time_weighted_average", registry).parameters == ()
    registry.register(CountsByValue)
    assert describe("counts_by_value", registry).kind == "operator, incremental, mergeable"

    @aggregate_function()
    def sharp(values: list[float], *, by: float, note: str = "x") -> float | None:
        """Sharpen."""
        return by

    registry.register(sharp)
    found = describe("sharp", registry)
    assert (found.kind, found.summary, found.inputs, found.results) == (
        "aggregate",
        "Sharpen.",
        "values: float",
        "float?",
    )
    assert found.parameters == (DescribedParameter("by", "float", None), DescribedParameter("note", "str", "'x'"))


def test_a_class_over_any_rows_is_described_so() -> None:
    from module_world import Distinct

    registry = ModuleRegistry()
    registry.register(Distinct)
    found = describe("distinct", registry)
    assert (found.inputs, found.results) == ("any", "depends on the inputs")
    assert found.properties == ("filter_commutes=n", "per_group=n", "insert_only")
    assert NUMBERS.names == ("n",)
