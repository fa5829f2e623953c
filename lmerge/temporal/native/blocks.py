"""Rows of blocks in their order, for modules that get them: columns are sorted before values become objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmerge._native import block_arrays, block_values


def ordered_values(blocks: Sequence[Any], numbers: Sequence[int]) -> list[Any]:
    """Return the rows of columns of several blocks in their order: tuples, or values of a single column."""
    return block_values(blocks, numbers)


def ordered_arrays(blocks: Sequence[Any], numbers: Sequence[int]) -> list[Any]:
    """Return columns of several blocks as arrays of Arrow, in the order of their rows. Needs pyarrow."""
    import pyarrow as pa

    batch = pa.record_batch(block_arrays(blocks, numbers))
    return list(batch.columns)
