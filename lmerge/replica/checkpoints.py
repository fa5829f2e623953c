r"""Checkpoints of a plan that runs as a replica: files from which it goes on as if it had never stopped.

    DIR/checkpoint    lmerge replica checkpoint 1\n | 16 bytes BLAKE2b | MessagePack
    DIR/lock          held by the process that uses DIR

A checkpoint is taken between two steps, so its parts agree: the state of the plan, the positions of the sources, and
the events that were published and that a server may still need. It replaces the one before at once. A run that begins
with it joins the merge at ``complete_from`` and publishes those events first, so nothing is lost that was on its way
to a server, and the merge emits nothing again. Another replica of the merge can begin with a copy of it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgpack

from lmerge import files
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import INSERT, NEG_INF
from lmerge.errors import StoreFull, UsageError
from lmerge.replica.feeds import FeedPosition
from lmerge.temporal.errors import SnapshotDamaged

_MAGIC: Final = b"lmerge replica checkpoint 1\n"
_ANY_VERSION: Final = b"lmerge replica checkpoint "
_DIGEST_BYTES: Final = 16
NAME: Final = "checkpoint"


@dataclass(frozen=True)
class ReplicaCheckpoint:
    """Where a run has stopped.

    ``query``: the snapshot of its plan. ``positions``: of its sources by name. ``published``: live events as inserts,
    then its stable point, right for events that end at ``complete_from`` or later. ``clock``: of a replay, as its first
    time, its start in seconds, and its speed.
    """

    merge: str
    plan: str
    query: Mapping[str, Any]
    positions: Mapping[str, FeedPosition]
    published: AnyBatch
    complete_from: int
    clock: tuple[int, float, float] | None = None

    def to_bytes(self) -> bytes:
        """Return the checkpoint as bytes."""
        events = [[vs, ve, payload] for kind, vs, ve, _, payload in self.published.rows() if kind == INSERT]
        body: bytes = msgpack.packb(
            {
                "merge": self.merge,
                "plan": self.plan,
                "query": self.query,
                "positions": self.positions,
                "events": events,
                "stable": stable_of(self.published),
                "complete_from": self.complete_from,
                "clock": self.clock,
            }
        )
        return _MAGIC + _digest(body) + body

    @classmethod
    def of_bytes(cls, data: bytes, where: str) -> ReplicaCheckpoint:
        """Return the checkpoint of ``to_bytes``. Raises SnapshotDamaged, which names ``where`` it was read."""
        what = f"{where} is no checkpoint of a replica that can be read"
        if not data.startswith(_MAGIC):
            is_other = data.startswith(_ANY_VERSION)
            raise SnapshotDamaged(f"{what}: {'it is of another version' if is_other else 'it begins otherwise'}")
        start = len(_MAGIC) + _DIGEST_BYTES
        body = data[start:]
        if _digest(body) != data[len(_MAGIC) : start]:
            raise SnapshotDamaged(f"{what}: its checksum does not match, so it is damaged or cut short")
        found = msgpack.unpackb(body, strict_map_key=False)
        builder = BatchBuilder()
        for vs, ve, payload in found["events"]:
            builder.insert(payload, vs, ve)
        if found["stable"] > NEG_INF:
            builder.stable(found["stable"])
        clock = found["clock"]
        return cls(
            found["merge"],
            found["plan"],
            found["query"],
            found["positions"],
            builder.build(),
            found["complete_from"],
            None if clock is None else (clock[0], clock[1], clock[2]),
        )


class CheckpointFolder:
    """The folder of a replica's checkpoint, which one process uses. Raises UsageError if it cannot be, or is in use."""

    def __init__(self, path: Path) -> None:
        self.path = path / NAME
        try:
            files.make_folder(path)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, files.PRIVATE_FILE)
        except OSError as problem:
            raise UsageError(f"cannot use the checkpoint {path}: {problem.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(f"another process uses the checkpoint {path}") from None

    def load(self) -> ReplicaCheckpoint | None:
        """Return the checkpoint, None if there is none yet. Raises SnapshotDamaged, UsageError."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise UsageError(f"cannot read the checkpoint {self.path}: {problem.strerror}") from None
        return ReplicaCheckpoint.of_bytes(data, str(self.path))

    def save(self, checkpoint: ReplicaCheckpoint) -> int:
        """Replace the checkpoint; return its size in bytes. Raises StoreFull: then the one before is still there."""
        data = checkpoint.to_bytes()
        try:
            files.replace(self.path, data)
        except OSError as problem:
            raise StoreFull(f"cannot write the checkpoint {self.path}: {problem.strerror}") from None
        return len(data)

    def close(self) -> None:
        """Release the folder."""
        os.close(self._lock)


def stable_of(published: AnyBatch) -> int:
    """Return the stable point at the end of published events; -inf without one."""
    last = NEG_INF
    for kind, vs, *_ in published.rows():
        last = last if kind == INSERT else vs
    return last


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
