"""The job in Pathway: group the inputs by (vs, payload).

Variants: ``streaming`` feeds rows of the inputs in turns through a Python connector, with regular commits and temporal
forgetting to clear state. ``one commit`` reads CSV files with the connector in Rust in static mode, which ingests
everything in one commit and so keeps all state: the most that this engine can do, not a stream. Two threads.
"""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path

os.environ["PATHWAY_THREADS"] = "2"

import pathway as pw
import pyarrow as pa
from pathway.internals.parse_graph import G

from bench.peers.job import DELAY_MS, INPUTS, serve

BATCHES_A_COMMIT = 8  # of 4,096 rows of each input


class EventSchema(pw.Schema):
    vs: int
    payload: str
    ve: int


class RecordedInputs(pw.io.python.ConnectorSubject):
    def __init__(self, data: Path) -> None:
        super().__init__()
        self.data = data

    @property
    def _deletions_enabled(self) -> bool:  # documented as faster where nothing is deleted
        return False

    def run(self) -> None:
        readers = [pa.ipc.open_file(pa.memory_map(str(self.data / f"rows{at}.arrow"))) for at in range(INPUTS)]
        inputs = [map(reader.get_batch, range(reader.num_record_batches)) for reader in readers]
        for number, batch in enumerate(chain.from_iterable(zip_longest(*inputs)), 1):
            columns = batch["vs"].to_numpy().tolist(), batch["payload"].to_pylist(), batch["ve"].to_numpy().tolist()
            for vs, payload, ve in zip(*columns):
                self.next(vs=vs, payload=payload, ve=ve)
            if number % (BATCHES_A_COMMIT * INPUTS) == 0:
                self.commit()


def deduplicated(rows: pw.Table) -> pw.Table:
    return rows.groupby(pw.this.vs, pw.this.payload).reduce(pw.this.vs, pw.this.payload, ve=pw.reducers.any(pw.this.ve))


def run(data: Path, variant: str, output: Path | None) -> float:
    G.clear()  # the graph of the run before
    if variant == "streaming":
        rows = pw.io.python.read(RecordedInputs(data), schema=EventSchema, autocommit_duration_ms=None)
        recent = rows.ignore_late(pw.this.vs, DELAY_MS).forget(pw.this.vs, DELAY_MS, mark_forgetting_records=True)
        merged = deduplicated(recent).filter_out_results_of_forgetting()
    else:
        inputs = [
            pw.io.csv.read(str(data / f"rows{at}.csv"), schema=EventSchema, mode="static") for at in range(INPUTS)
        ]
        merged = deduplicated(pw.Table.concat_reindex(*inputs))
    if output is None:
        pw.io.null.write(merged)
    else:
        pw.io.csv.write(merged, str(output / "events.csv"))
    began = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return time.perf_counter() - began


if __name__ == "__main__":
    serve(run, {"pathway": version("pathway"), "python": platform.python_version()})
