"""A reader's checkpoint as bytes: what a reader of raw elements needs to go on after a restart as if it had never
stopped.

    lmerge checkpoint 1\\n | 16 bytes BLAKE2b | MessagePack [merge, stable point, since, [[vs, payload, ve]]]

It is bound to the merge by name, and to nothing else: any server of the merge will do. A token alone (``wire.token``)
is enough for a reader that keeps its own live events.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgpack

from lmerge.client.reader import Known
from lmerge.core.elements import NEG_INF, Event
from lmerge.errors import UsageError
from lmerge.wire.token import parse_token

_MAGIC: Final = b"lmerge checkpoint 1\n"
_ANY_VERSION: Final = b"lmerge checkpoint "
_DIGEST_BYTES: Final = 16


def dump(merge: str, known: Known) -> bytes:
    """The checkpoint of a reader of ``merge``."""
    body: bytes = msgpack.packb([merge, known.stable_point, known.since, [list(event) for event in known.events]])
    return _MAGIC + _digest(body) + body


def load(data: bytes, merge: str) -> Known:
    """What ``dump`` wrote. Raises UsageError if it is damaged, of another version or of another merge."""
    what = f"cannot resume merge {merge!r} from a checkpoint of {len(data)} bytes"
    if not data.startswith(_MAGIC):
        why = "it is of another version" if data.startswith(_ANY_VERSION) else "it is no checkpoint"
        raise UsageError(f"{what}: {why}")
    start = len(_MAGIC) + _DIGEST_BYTES
    body = data[start:]
    if _digest(body) != data[len(_MAGIC) : start]:
        raise UsageError(f"{what}: it is damaged; its checksum does not match")
    name, stable_point, since, events = msgpack.unpackb(body)
    if name != merge:
        raise UsageError(f"{what}: it is one of merge {name!r}")
    return Known(stable_point, since, [Event(vs, payload, ve) for vs, payload, ve in events])


def parse_resume(resume: str | bytes, merge: str) -> Known:
    """Where ``resume=`` goes on: a token or a checkpoint. Raises UsageError."""
    if isinstance(resume, str):
        return Known(NEG_INF, parse_token(resume, merge))
    return load(bytes(resume), merge)


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()

