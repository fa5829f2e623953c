r"""A reader's checkpoint as bytes.

It is what a reader of raw elements needs to go on after a restart as if it had never stopped.

    lmerge checkpoint 1\n | 16 bytes BLAKE2b | MessagePack [merge, stable point, since, [[vs, payload, ve]], epoch]

A checkpoint is bound to the merge by name and epoch, and to nothing else: any server of the merge will do. Epoch 0,
that of a merge that was never reset, is left out. A token alone (``wire.token``) is enough for a reader that keeps its
own live events.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgpack

from lmerge.client.subscribe.reader import ResumePoint
from lmerge.core.elements import NEG_INF, Event
from lmerge.errors import UsageError
from lmerge.wire.token import read_token

_MAGIC: Final = b"lmerge checkpoint 1\n"
_ANY_VERSION: Final = b"lmerge checkpoint "
_DIGEST_BYTES: Final = 16


def dump(merge: str, resume_point: ResumePoint, epoch: int = 0) -> bytes:
    """Return the checkpoint of a reader of ``merge`` in ``epoch``."""
    items = [merge, resume_point.stable_point, resume_point.since, [list(event) for event in resume_point.events]]
    body: bytes = msgpack.packb([*items, epoch] if epoch else items)
    return _MAGIC + _digest(body) + body


def load(data: bytes, merge: str) -> tuple[ResumePoint, int]:
    """Return what ``dump`` wrote, and the epoch.

    Raises UsageError if it is damaged, of another version or of another merge.
    """
    what = f"cannot resume merge {merge!r} from a checkpoint of {len(data)} bytes"
    if not data.startswith(_MAGIC):
        why = "it is of another version" if data.startswith(_ANY_VERSION) else "it is no checkpoint"
        raise UsageError(f"{what}: {why}")
    start = len(_MAGIC) + _DIGEST_BYTES
    body = data[start:]
    if _digest(body) != data[len(_MAGIC) : start]:
        raise UsageError(f"{what}: it is damaged; its checksum does not match")
    name, stable_point, since, events, *epoch = msgpack.unpackb(body)
    if name != merge:
        raise UsageError(f"{what}: it is one of merge {name!r}")
    resume_point = ResumePoint(stable_point, since, [Event(vs, payload, ve) for vs, payload, ve in events])
    return resume_point, epoch[0] if epoch else 0


def parse_resume(resume: str | bytes, merge: str) -> tuple[ResumePoint, int | None]:
    """Return where ``resume=``, a token or a checkpoint, goes on, and the epoch; None: any. Raises UsageError."""
    if isinstance(resume, str):
        token = read_token(resume, merge)
        return ResumePoint(NEG_INF, token.time), token.epoch
    return load(bytes(resume), merge)


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
