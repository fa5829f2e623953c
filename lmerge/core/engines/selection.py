"""Chooses the engine: ``auto`` is the native core where it is built, and Python everywhere else.

Modules named ``native_*`` here, in ``core.divergence``, in ``wire`` and in ``client`` import the compiled core. They
are imported in functions only, when the native engine is chosen. So lmerge works where the core is not built.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, Protocol

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import Event
from lmerge.core.engines.python_engine import Engine, PythonEngine
from lmerge.core.inputs import Input
from lmerge.core.policy import Closing, Policy
from lmerge.core.tdb import Tdb
from lmerge.errors import UsageError

AUTO: Final = "auto"
PYTHON: Final = "python"
NATIVE: Final = "native"
ENGINES: Final = (AUTO, PYTHON, NATIVE)
SHARDS_MAX: Final = 64  # as in native/core: the list that assigns elements to shards has one byte for each element


class LiveTdb(Protocol):
    """The live events of one stream: ``tdb.Tdb`` without frozen events, on either engine."""

    @property
    def stable_point(self) -> int: ...
    @property
    def live_count(self) -> int: ...
    def apply_batch(self, batch: AnyBatch) -> None: ...
    def enter(self, vs: int, payload: bytes, ve: int) -> None: ...
    def live_events(self) -> list[Event]: ...
    def live_ends(self, vs: int, payload: bytes) -> tuple[int, ...]: ...
    def check(self) -> None: ...


@cache
def native_problem() -> str | None:
    """Return why the native core cannot be used; None if it can."""
    try:
        import lmerge.core.engines.native_engine  # noqa: F401 - whether it can be imported is the question
    except ImportError as problem:
        return str(problem)
    return None


def available() -> tuple[str, ...]:
    """Return the engines that can be used on this machine."""
    return (PYTHON,) if native_problem() else (PYTHON, NATIVE)


def best() -> str:
    """Return the engine that ``auto`` selects on this machine."""
    return available()[-1]


def resolve(engine: str) -> str:
    """Return ``python`` or ``native`` for a name of ENGINES. Raises UsageError if that engine is not available."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; it is {', '.join(ENGINES)}")
    if engine == AUTO:
        return best()
    problem = native_problem() if engine == NATIVE else None
    if problem:
        raise UsageError(f"the native engine cannot be used: {problem}")
    return engine


def make_engine(
    engine: str,
    algorithm: str,
    inputs: Mapping[str, Input],
    policy: Policy,
    closing: Closing,
    *,
    track_live: bool,
    keeps_delivered: bool = False,
    shards: int = 1,
) -> Engine:
    """Return the engine that ``resolve`` returned, running ``algorithm``.

    ``keeps_delivered``: keep what inputs deliver under R0-R2, see ``delivered``. More than one of ``shards`` needs the
    native engine.
    """
    if engine == PYTHON:
        assert shards == 1
        return PythonEngine(algorithm, inputs, policy, closing, track_live=track_live, keeps_delivered=keeps_delivered)
    from lmerge.core.engines.native_engine import NativeEngine

    return NativeEngine(
        algorithm, inputs, policy, closing, track_live=track_live, keeps_delivered=keeps_delivered, shards=shards
    )


def live_tdb(name: str, engine: str = AUTO) -> LiveTdb:
    """Return a TDB that drops fully frozen events, to follow one stream. Raises UsageError as ``resolve`` does."""
    if resolve(engine) == PYTHON:
        return Tdb(name, keep_frozen=False)
    from lmerge.core.engines.native_tdb import NativeTdb

    return NativeTdb(name)
