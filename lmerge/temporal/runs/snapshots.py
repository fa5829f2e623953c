r"""Snapshots of a running query as bytes, and the plan that each belongs to.

    lmerge plan snapshot 2\n | 32 bytes SHA-256 | MessagePack of ``QueryRun.snapshot``

Plain values only: no snapshot can run code, and both implementations of the operators read the same. A snapshot belongs
to a plan, with all parameters and the versions of its modules. Another plan is refused with what differs. The digest is
one for which processors have instructions: the state of a million events has 70 MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgpack

from lmerge.core.collector import without_collector
from lmerge.temporal.errors import PlanError, SnapshotDamaged
from lmerge.temporal.plan.differences import plan_differences
from lmerge.temporal.runs.settings import SourceSettings

_MAGIC: Final = b"lmerge plan snapshot 2\n"
_ANY_VERSION: Final = b"lmerge plan snapshot "
_DIGEST_BYTES: Final = 32
_SHOWN_MAX: Final = 5


def dump_snapshot(snapshot: Mapping[str, Any]) -> bytes:
    """Return a snapshot as bytes."""
    body: bytes = msgpack.packb(snapshot)
    return _MAGIC + _digest(body) + body


@without_collector()
def load_snapshot(data: bytes) -> dict[str, Any]:
    """Return the snapshot of bytes. Raises SnapshotDamaged if they are cut short, changed, or of another version."""
    what = f"{len(data)} bytes are no snapshot of a running plan that this version can read"
    if not data.startswith(_MAGIC):
        version = data[len(_ANY_VERSION) : len(_MAGIC) + 8].split(b"\n")[0]
        is_other = data.startswith(_ANY_VERSION)
        raise SnapshotDamaged(f"{what}: {f'they have version {version!r}' if is_other else 'they begin otherwise'}")
    start = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(data)[start:]
    if _digest(body) != data[len(_MAGIC) : start]:
        raise SnapshotDamaged(f"{what}: their checksum does not match, so they are damaged or cut short")
    try:
        snapshot = msgpack.unpackb(body)
    except (ValueError, msgpack.exceptions.UnpackException) as problem:
        raise SnapshotDamaged(f"{what}: {problem}") from None
    if not isinstance(snapshot, dict):
        raise SnapshotDamaged(f"{what}: they hold {type(snapshot).__name__}")
    return snapshot


def check_same_plan(snapshot: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Raise PlanError with what differs if a snapshot's document is not that of the plan."""
    _check_none(plan_differences(snapshot, plan))


def check_same_settings(were: Mapping[str, SourceSettings], are: Mapping[str, SourceSettings]) -> None:
    """Raise PlanError with what differs if a source has other settings than in the snapshot."""
    _check_none(
        [
            f"the settings of source {source!r} were {were[source]}, and are {chosen}"
            for source, chosen in are.items()
            if source in were and chosen != were[source]
        ]
    )


def _check_none(found: Sequence[str]) -> None:
    if found:
        more = f", and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
        raise PlanError(f"the snapshot is one of another plan: {'; '.join(found[:_SHOWN_MAX])}{more}")


def _digest(body: bytes | memoryview) -> bytes:
    return sha256(body).digest()
