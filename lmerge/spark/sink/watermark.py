"""Reads Spark's own log of its batches: the watermark that a batch ran with, and which batch comes next.

Before batch N runs, Spark writes ``<checkpoint>/offsets/N``: a version, one line of JSON with the batch's metadata,
then one line per source. ``batchWatermarkMs`` in it is the watermark of batch N, the same at each run of it.

It is the latest watermark that a sink can rely on when it commits batch N: the filter of late rows in batch N+1 uses
the watermark of batch N, whatever rows were in batch N itself.

    batch   runs with   its rows are up to   the next one lets in
    5           108 s                140 s
    6           135 s                        what is later than 108 s, the watermark of batch 5

After batch N, Spark writes ``<checkpoint>/commits/N``. A batch without it is run again.
"""

from __future__ import annotations

import json
from typing import Any, Final

from lmerge.errors import UsageError

# The log of an ordinary batch has a few hundred bytes for each source.
_LOG_BYTES_MAX: Final = 64 * 2**20
_NO_PYARROW: Final = "the checkpoint is read with pyarrow: pip install 'lmerge[spark]'"


def batch_watermark_us(checkpoint: str, batch: int) -> int | None:
    """Return the watermark of batch ``batch`` in microseconds, or None: there is none yet, or the query has none.

    Raises UsageError if the log of the batch is not there or cannot be read.
    """
    metadata = _metadata(_read(checkpoint, f"offsets/{batch}"), checkpoint, batch)
    watermark_ms = metadata.get("batchWatermarkMs")
    if type(watermark_ms) is not int:
        raise UsageError(
            f"cannot read the watermark of batch {batch} from {checkpoint}/offsets/{batch}: it has no batchWatermarkMs"
        )
    # Spark begins at 0, which also stands for none. A stream of the year 1969 gets its stables later, never sooner.
    return watermark_ms * 1000 if watermark_ms > 0 else None


def next_batch(checkpoint: str) -> int:
    """Return the number of the batch that Spark runs next, or again. Raises UsageError or StoreDamaged."""
    try:
        from lmerge.spark.spool.files import SpoolFiles
        from lmerge.spark.spool.layout import batch_numbers
    except ImportError:
        raise UsageError(_NO_PYARROW) from None
    files = SpoolFiles.at(checkpoint)
    begun = batch_numbers(files.names("offsets"), "")
    if not begun:
        return 0
    is_done = begun[-1] in batch_numbers(files.names("commits"), "")
    return begun[-1] + 1 if is_done else begun[-1]


def query_id(checkpoint: str) -> str:
    """Return the id of the query whose checkpoint this is. Raises UsageError."""
    text = _read(checkpoint, "metadata")
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{checkpoint}/metadata is not what Spark writes: {text!r:.80}") from None


def _metadata(text: str, checkpoint: str, batch: int) -> dict[str, Any]:
    lines = text.split("\n")
    try:
        metadata = json.loads(lines[1])
    except (IndexError, ValueError):
        metadata = None
    if not lines[0].startswith("v") or not isinstance(metadata, dict):
        raise UsageError(
            f"cannot read the watermark of batch {batch}: {checkpoint}/offsets/{batch} is not what Spark "
            f"writes: {text!r:.80}"
        )
    return metadata


def _read(checkpoint: str, name: str) -> str:
    """Return the text of a file of the checkpoint. Raises UsageError."""
    try:
        from lmerge.spark.spool.files import file_system
    except ImportError:
        raise UsageError(_NO_PYARROW) from None
    try:
        files, path = file_system(checkpoint)
        with files.open_input_stream(f"{path}/{name}") as file:
            return bytes(file.read(_LOG_BYTES_MAX)).decode()
    except (OSError, ValueError) as problem:
        own = "" if ":" in checkpoint else "; a path is one of this machine's own files, any other needs a URI"
        raise UsageError(f"cannot read {name} of the checkpoint {checkpoint}: {problem}{own}") from None
