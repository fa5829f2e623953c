"""The names that users import: each is there, and every aggregate has a function with its name."""

from __future__ import annotations

import subprocess
import sys

import lmerge.temporal as lt
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES
from lmerge.temporal.plan.calls import WindowCall


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
