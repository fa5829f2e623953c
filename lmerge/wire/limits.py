"""Default limits of both ends of the wire. A server may be started with others and declares them when it accepts.

Each stands beside its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# gRPC's own default: peers that do not read lmerge's limits accept it.
MESSAGE_BYTES: Final = 4 * 2**20

# A payload is one row, not a document; a quarter of a message, so that a batch always makes progress.
PAYLOAD_BYTES: Final = 2**20

# At 100-byte payloads a batch of this size already fills a message. With smaller payloads a larger batch would make
# the merge's turns so long that other publishers wait (65,536 elements take the Python core about 0.2 s).
BATCH_ELEMENTS: Final = 65_536

# What the fields and the tags around the columns of a batch can need beyond the columns themselves.
MESSAGE_OVERHEAD_BYTES: Final = 256

# kinds, vs, ve, vold and payload end of one element.
ELEMENT_BYTES: Final = 1 + 8 + 8 + 8 + 4


@dataclass(frozen=True)
class BatchLimits:
    """The most that one batch may hold. Counts, and bytes."""

    elements: int = BATCH_ELEMENTS
    payload_bytes: int = PAYLOAD_BYTES
    message_bytes: int = MESSAGE_BYTES


DEFAULT_LIMITS: Final = BatchLimits()
# For batches that a server has accepted already, under limits of its own.
UNLIMITED: Final = BatchLimits(elements=2**31, payload_bytes=2**31, message_bytes=2**31)
