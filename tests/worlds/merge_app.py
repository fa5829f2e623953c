"""A driver that merges: ``python merge_app.py SCRATCH [MASTER]``.

It merges the rows in SCRATCH/rows and the files in SCRATCH/files, one of each a batch. The rows of batch N go to
SCRATCH/output/N.json. A batch that runs again must give the same rows, whatever was killed in between.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import spark_world
from merging_world import FIELDS

MASTER = "local-cluster[2,1,1024]"
SHARDS = 2


def main(scratch: Path, master: str = MASTER) -> None:
    from lmerge.spark import element_files, merge

    patience = {"spark_task_maxFailures": "100", "spark_stage_maxConsecutiveAttempts": "100"}
    spark = spark_world.cluster_session(scratch, master, **patience)
    rows = spark.readStream.schema(FIELDS).option("maxFilesPerTrigger", 1).json(str(scratch / "rows"))
    files = element_files(spark, str(scratch / "files"), maxFilesPerTrigger=1)
    checkpoint = str(scratch / "checkpoint")
    merged = merge({"rows": rows, "files": files}, shards=SHARDS, checkpoint=checkpoint)

    def keep(batch: Any, number: int) -> None:
        write(scratch / "output" / f"{number}.json", sorted(json.dumps(plain(row)) for row in batch.collect()))

    query = merged.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    (scratch / "ended").touch()
    spark.stop()


def plain(row: Any) -> dict[str, Any]:
    """Return a row with its payload as text."""
    fields: dict[str, Any] = row.asDict()
    return fields | {"payload": None if row.payload is None else bytes(row.payload).decode()}


def write(path: Path, rows: list[str]) -> None:
    """Write the rows of a batch. Raises AssertionError if the batch gave others before."""
    text = "\n".join(rows)
    if path.exists():
        assert path.read_text() == text, f"batch {path.stem} gave other rows when it ran again"
        return
    path.parent.mkdir(exist_ok=True)
    unseen = path.with_suffix(f".{os.getpid()}")
    unseen.write_text(text)
    unseen.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
