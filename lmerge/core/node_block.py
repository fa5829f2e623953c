"""Reads the nodes of an index from bytes, as the native core writes them (native/core/src/node_block.rs).

For each node: Vs (8 bytes, little-endian as all numbers), the length of the payload (4), the payload, and an entry for
the output and for each slot. R3: the end, or the largest negative number if there is none (8). R4: how many ends (4),
and each of them (8).
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from lmerge.core.elements import NEG_INF
from lmerge.core.properties import Case

_KEY: Final = struct.Struct("<qI")
_COUNT: Final = struct.Struct("<I")


def unpacked(algorithm: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an algorithm with the nodes of a block, if there is one, as a list. Raises ValueError."""
    fields = dict(state)
    block = fields.pop("block", None)
    if block is not None:
        fields["nodes"] = nodes_of(block, fields["slots"], has_lists=algorithm == Case.R4.algorithm)
    return fields


def nodes_of(block: bytes, slots: int, *, has_lists: bool) -> list[list[Any]]:
    """Return the nodes as in a snapshot's JSON: [vs, payload in base64, entries]. ``has_lists``: R4.

    Raises ValueError if the block ends inside a node.
    """
    nodes: list[list[Any]] = []
    at = 0
    try:
        while at < len(block):
            vs, size = _KEY.unpack_from(block, at)
            start = at + _KEY.size
            at = start + size
            node = [vs, b64encode(block[start:at]).decode()]
            for _ in range(slots + 1):
                entry, at = _entry(block, at, has_lists)
                node.append(entry)
            nodes.append(node)
    except struct.error as problem:
        raise ValueError(f"a block of nodes ends inside one ({problem})") from problem
    return sorted(nodes, key=lambda node: (node[0], node[1]))


def _entry(block: bytes, at: int, has_lists: bool) -> tuple[Any, int]:
    count = 1
    if has_lists:
        (count,) = _COUNT.unpack_from(block, at)
        at += _COUNT.size
    ends = list(struct.unpack_from(f"<{count}q", block, at))
    entry: Any = (ends or None) if has_lists else (None if ends[0] == NEG_INF else ends[0])
    return entry, at + 8 * count
