"""The options of the whole suite, its test coroutines, and the engines on which a test runs.

A test with the fixture ``engine`` runs twice: on the engine that reads, merges or writes. Tests of the core always do.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import zlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from interrupts import accept_interrupts

from lmerge.client.connection import channels
from lmerge.core.engines import selection
from lmerge.service.choices import TransportChoice
from lmerge.service.port import any_port

# The speed at which a machine draws examples and runs them decides nothing.
settings.register_profile("lmerge", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lmerge")

accept_interrupts()

DEADLINE_S = 60.0  # far above any test's time, so that a wait without an end ends


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the expected outputs of scenario files again")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run each test coroutine in a loop of its own and with a deadline: its ``timeout`` mark, if it has one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    mark = pyfuncitem.get_closest_marker("timeout")
    deadline_s = mark.args[0] if mark is not None and mark.args else DEADLINE_S
    asyncio.run(_with_deadline(pyfuncitem.obj(**arguments), deadline_s))
    return True


async def _with_deadline(coroutine: Coroutine[Any, Any, None], deadline_s: float) -> None:
    """Await a test. At its deadline, print where each task waits: the error shows only the test's own."""
    test = asyncio.ensure_future(coroutine)
    if not (await asyncio.wait([test], timeout=deadline_s))[0]:
        for task in asyncio.all_tasks():
            _print_waits(task)
        test.cancel()
        await asyncio.wait([test])
        raise TimeoutError(f"the test did not end in {deadline_s:g} s; where its tasks waited is in stderr")
    test.result()


def _print_waits(task: asyncio.Task[Any]) -> None:
    """Print the coroutines of a task, outermost first. Task.print_stack shows one, and fails on those of grpc.aio."""
    print(task, file=sys.stderr)
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
        print(f"  {getattr(awaited, '__qualname__', awaited)} {place}", file=sys.stderr)
        awaited = getattr(awaited, "cr_await", None)


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.long)], ids=[pytest.HIDDEN_PARAM, "all"])
def seeds_of(request: pytest.FixtureRequest) -> Callable[[int, int], range]:
    """Return which of a number of seeds a test takes, such as every third of 60: ``seeds_of(60, 3)``. Long tests: all.

    Each case of a test begins at another seed, so that the cases together take them all in the default suite too.
    """
    case = zlib.crc32(request.node.name.encode())

    def seeds_of(number: int, every: int) -> range:
        return range(number) if request.param == "all" else range(case % every, number, every)

    return seeds_of


@pytest.fixture(scope="session")
def long_seeds() -> range:
    """Return the seeds of the long tests: LMERGE_SEEDS of them."""
    return range(int(os.environ.get("LMERGE_SEEDS", "200")))


@pytest.fixture(scope="session")
def demand() -> Callable[[str], None]:
    """Return a function that ends the test if an engine is missing: as a failure where it is required, as in CI."""

    def demand(engine: str) -> None:
        problem = selection.native_problem() if engine == selection.NATIVE else None
        if problem:
            if os.environ.get("CI") or os.environ.get("LMERGE_REQUIRE_NATIVE"):
                pytest.fail(f"the native core is required here: {problem}")
            pytest.skip(f"no native core: {problem}")

    return demand


@pytest.fixture(params=[selection.PYTHON, selection.NATIVE])
def engine(request: pytest.FixtureRequest, demand: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the engine that ``auto`` means."""
    name: str = request.param
    demand(name)
    monkeypatch.setattr(selection, "best", lambda: name)
    return name


@pytest.fixture(params=list(TransportChoice)[1:])
def transport(request: pytest.FixtureRequest, demand: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the transport that ``auto`` means."""
    if request.param == TransportChoice.NATIVE:
        demand(selection.NATIVE)
    monkeypatch.setattr(any_port, "automatic", lambda _settings: request.param)
    return str(request.param)


@pytest.fixture(params=channels.TRANSPORTS[1:])
def client_transport(
    request: pytest.FixtureRequest, demand: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Select the transport of clients."""
    if request.param == channels.NATIVE:
        demand(selection.NATIVE)
    monkeypatch.setenv(channels.VARIABLE, request.param)
    return str(request.param)


@pytest.fixture
def native_engine(demand: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the native engine, for what Python's engine does not have."""
    demand(selection.NATIVE)
    monkeypatch.setattr(selection, "best", lambda: selection.NATIVE)
    return selection.NATIVE
