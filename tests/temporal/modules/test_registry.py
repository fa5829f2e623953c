"""Modules by name: entry points, registration, parameters, descriptions (M10, M12, M13)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from module_world import NUMBERS, CountsByValue, Spread, Total

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.functions import aggregate
from lmerge.temporal.modules.kinds import Aggregate
from lmerge.temporal.modules.registry import GROUP, DescribedParameter, ModuleRegistry, bind_call
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.testing.example_modules import FollowedBy, MyAverage, MyTimeWeightedAverage
from lmerge.wire.schema import parse_schema

IMPORTED = "imported_modules"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, **entries: str) -> None:
    """Make a package that declares modules importable."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    info.joinpath("entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    examples = "lmerge.testing.example_modules"
    install(tmp_path, monkeypatch, "pack", average=f"{examples}:MyAverage", lazy=f"{IMPORTED}:NOTHING")
    tmp_path.joinpath(f"{IMPORTED}.py").write_text("NOTHING = 1\n")
    return tmp_path


def test_installed_modules_are_listed_without_importing_them(installed: Path) -> None:
    registry = ModuleRegistry()
    registry.register(Spread)
    assert [name for name in registry.names() if name in ("average", "lazy", "spread")] == ["average", "lazy", "spread"]
    assert IMPORTED not in sys.modules


def test_a_module_is_made_by_its_name_with_parameters(installed: Path) -> None:
    module = ModuleRegistry().module("average", {"digits": 1})
    assert isinstance(module, MyAverage)
    assert module.compute([1.0, 1.0, 1.2]) == 1.1
    assert module.shown == "module 'average' version 1"
    registry = ModuleRegistry()
    registry.register(aggregate(name="top", inputs={"v": "float"}, result="float")(max))
    assert registry.module("top").shown == "module 'top' version 1"


def test_another_version_than_that_of_the_plan_is_refused(installed: Path) -> None:
    assert ModuleRegistry().module("average", version=1).version == 1
    with pytest.raises(PlanError, match="the plan needs module 'average' version 2, and version 1 is here"):
        ModuleRegistry().module("average", version=2)


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
    install(tmp_path / "other", monkeypatch, "other", average="other:Average")
    registry = ModuleRegistry()
    for use in (registry.names, lambda: registry.find("average"), lambda: registry.describe("average")):
        with pytest.raises(
            PlanError, match=r"the name of module 'average' is not unique: .*:MyAverage of pack 1.0, other"
        ):
            use()
    with pytest.raises(PlanError, match=r"a module 'average' is there already: .* of pack 1.0"):
        registry.register(Spread, "average")


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
        PlanError, match="module 'broken' cannot be imported from no_such_module_here:X: No module named"
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
    found = registry.describe("my_average")
    assert (found.version, found.kind, found.inputs, found.results) == (1, "aggregate", "value: float", "float")
    assert found.summary == "The average of a column. ``digits``: it is rounded to, if given."
    assert found.parameters == (DescribedParameter("digits", "int | None", "None"),)
    assert found.origin == "it is registered"
    registry.register(FollowedBy)
    pattern = registry.describe("followed_by")
    assert pattern.kind == "operator, time-sensitive"
    assert pattern.results == "first: string, second: string"
    assert pattern.properties == ("reads=start+window", "needs=start", "insert_only")
    registry.register(MyTimeWeightedAverage)
    assert registry.describe("my_time_weighted_average").parameters == ()
    registry.register(CountsByValue)
    assert registry.describe("counts_by_value").kind == "operator, incremental, mergeable"

    @aggregate()
    def sharp(values: list[float], *, by: float, note: str = "x") -> float | None:
        """Sharpen."""
        return by

    registry.register(sharp)
    found = registry.describe("sharp")
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
    found = registry.describe("distinct")
    assert (found.inputs, found.results) == ("any", "depends on the inputs")
    assert found.properties == ("filter_commutes=n", "per_group=n", "insert_only")
    assert NUMBERS.names == ("n",)
