"""Groups of arguments of ``publish``: how rows become payloads, and how the query runs as a replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lmerge.core.inputs import InputRole
from lmerge.wire.schema import Schema


@dataclass(frozen=True)
class Payload:
    """How a row becomes a payload.

    - ``columns``: by default all columns of which ``vs``, ``ve`` and ``kind`` are not made.
    - ``schema``: how they are encoded, the same on all replicas, by default by their types; ``"raw"``: the one column
      holds bytes or text, which is the payload as it is.
    - ``round_digits``: the digits to which floats are rounded, for all of them or by name; by default none are.
    """

    columns: Sequence[str] | None = None
    schema: Schema | Mapping[str, object] | str | None = None
    round_digits: int | Mapping[str, int] | None = None


@dataclass(frozen=True)
class Running:
    """How a query takes part in a merge, and how it runs.

    - ``role``: ``active``, or ``observe``: compared with the others and never emitted.
    - ``join_at``: the stream is right for events that end then or later: microseconds since the epoch, or ISO 8601 with
      a zone; None: it is right from its beginning.
    - ``output_mode``: Spark's, ``append`` or ``update``, where the mode of publishing does not determine it.
    - ``partitions``: of the keyed state, fixed while the checkpoint lives; None: Spark's setting.
    - ``spool``: a folder that the driver and all executors share, as a path or URI; None: in the checkpoint.
    - ``skips``: whether the query leaves out events that servers do not need any more; None: if its plan can be read
      and has a ``skip_to``.
    - ``give_up_after``: fail after so long without any server, ``"30 seconds"``, at most a week; None: wait.
    """

    role: str = InputRole.ACTIVE
    join_at: int | str | None = None
    output_mode: str | None = None
    partitions: int | None = None
    spool: str | None = None
    skips: bool | None = None
    give_up_after: str | None = None
