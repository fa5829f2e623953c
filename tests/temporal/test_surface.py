"""The names that users import: each is there, and every aggregate has a function with its name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lmerge.temporal as lt
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES
from lmerge.temporal.plan.calls import WindowCall
from lmerge.temporal.plan.json_format import plan_to_json


def test_every_name_is_there() -> None:
    for name in lt.__all__:
        assert getattr(lt, name) is not None


def test_every_aggregate_has_a_function_that_calls_it() -> None:
    for name in BUILTIN_AGGREGATES:
        further = {"p": 0.5} if name.startswith("percentile") else {}
        call = getattr(lt, name)(lt.col.delay, **further)
        assert isinstance(call, WindowCall)
        assert call.name == name


def test_a_name_that_is_not_there_is_an_error_of_python() -> None:
    assert not hasattr(lt, "tumble")


def test_the_package_loads_nothing_until_a_name_is_used() -> None:
    program = "import sys, lmerge.temporal; print(sorted(name for name in sys.modules if 'lmerge.temporal.' in name))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plan_is_printed_written_and_read_back() -> None:
    flights = lt.source("flights", {"origin": "string", "delay": "int"})
    late, all_of_them = flights.where(lt.col.delay > 15), flights.select("origin")
    assert str(late) == late.tree() == "filter col.delay > 15\n└─ flights (origin: string, delay: int)"
    assert late.explain().startswith("flights (origin: string, delay: int)\n    promises nothing")
    assert lt.Stream.from_json(late.to_json()) == late
    document = plan_to_json({"late": late.node, "all": all_of_them.node})
    assert lt.from_json(document) == {"late": late, "all": all_of_them}
    with pytest.raises(PlanError, match="the plan has the results late, all"):
        lt.Stream.from_json(document)
    with pytest.raises(PlanError, match="this is no plan"):
        lt.Stream.from_json({})
