"""The choice of the engine: ``auto`` is the native core where it is built, and Python everywhere else.

``native``, and modules named ``native_*`` here, in ``wire`` and in ``client``, import the compiled core. They are
imported in functions only (here, in ``wire.frames``, in ``client.publish.live_events``), when the native engine is
asked for: where the core is not built, nobody misses it.
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
SHARDS_MAX: Final = 64  # as in native/core: the list that shares a batch out has a byte an element


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
    """Why the native core cannot be used; None if it can."""
    try:
        import lmerge.core.engines.native_engine  # noqa: F401 - whether it can be imported is the question
    except ImportError as problem:
        return str(problem)
    return None


def best() -> str:
    """The engine that ``auto`` means here."""
    return PYTHON if native_problem() else NATIVE


def resolve(engine: str) -> str:
    """``python`` or ``native`` for a word of ENGINES. Raises UsageError if there is no such engine here."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; it is {', '.join(ENGINES)}")
    if engine == AUTO:
        return best()
    problem = native_problem() if engine == NATIVE else None
    if problem:
        raise UsageError(f"the native engine cannot be used: {problem}")
    return engine


def make_engine(
    engine: str, algorithm: str, inputs: Mapping[str, Input], policy: Policy, closing: Closing, *, track_live: bool,
    keeps_delivered: bool = False, shards: int = 1,
) -> Engine:
    """The engine that ``resolve`` named, running ``algorithm``. ``keeps_delivered``: under R0-R2, see ``delivered``.
    ``shards`` above 1 are native only.
    """
    if engine == PYTHON:
        assert shards == 1
        return PythonEngine(
            algorithm, inputs, policy, closing, track_live=track_live, keeps_delivered=keeps_delivered
        )
    from lmerge.core.engines.native_engine import NativeEngine

    return NativeEngine(
        algorithm, inputs, policy, closing, track_live=track_live, keeps_delivered=keeps_delivered, shards=shards
    )


def live_tdb(name: str, engine: str = AUTO) -> LiveTdb:
    """A TDB that forgets fully frozen events, for following one stream. Raises UsageError."""
    if resolve(engine) == PYTHON:
        return Tdb(name, keep_frozen=False)
    from lmerge.core.engines.native_tdb import NativeTdb

    return NativeTdb(name)
