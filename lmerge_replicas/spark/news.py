"""The news of the flights as a log that can be read again: one file of Arrow record batches, in order of time.

Written by `__main__`, read by `source`. A row is the state of one flight from a moment on:

======  ==============================================================================================
at      when this state begins
flight  the identity of the flight
vs      its scheduled departure
ve      when it is expected to arrive, or has arrived; null: it never does; as ``vs``: it does not take place
======  ==============================================================================================

The times follow the model of ``lmerge_replicas.flights.style``. A flight is announced an hour before it is to leave,
with its planned arrival. A late departure moves that. Then the flight lands, is diverted, or was cancelled at the
moment at which it should have left. The last row of a flight is its true end, and every other replica publishes the
same in the end.

The log begins and ends with a row without a flight, which like a cancelled flight is no event. The first is dated
before the replay begins, so a query can start, and attach, before there is news. The last is dated ``SILENCE`` after
all others. A watermark follows the rows, so after this row everything published is final.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from lmerge.core.elements import INF
from lmerge_replicas.flights.flight import DAY, HOUR, Flight, read_flights
from lmerge_replicas.flights.replay import first_instant
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.style import LATE, LEAD, final_at

# Every flight of the table is final within this time after its scheduled departure; the longest takes 33 hours.
LONGEST: Final = 35 * HOUR
# A watermark this far behind the latest scheduled departure is behind every row that can still come, because a flight
# is announced ``LEAD`` before it leaves.
WATERMARK_DELAY: Final = LONGEST + LEAD
SILENCE: Final = WATERMARK_DELAY + HOUR
BEGINNING: Final = DAY  # so early that it gives no watermark
ROWS_PER_BATCH: Final = 8_192


class News(NamedTuple):
    """One row. ``ve`` None: it never arrives."""

    at: int
    flight: str
    vs: int
    ve: int | None


def news_of(flight: Flight) -> Iterator[News]:
    """Return the news of one flight, in order of time."""
    name = flight.payload.decode()
    yield News(flight.vs - LEAD, name, flight.vs, flight.planned)
    if flight.departed is None:
        yield News(flight.vs, name, flight.vs, flight.vs)
        return
    delay, final = flight.departed - flight.vs, final_at(flight)
    if delay >= LATE and flight.departed < final:
        yield News(flight.departed, name, flight.vs, flight.planned + delay)
    yield News(final, name, flight.vs, None if flight.ve == INF else flight.ve)


def all_news(flights: Sequence[Flight], days: Days) -> list[News]:
    """Return the whole log, in order of time."""
    rows = sorted(news for flight in flights for news in news_of(flight)) if flights else []
    first = first_instant(days)
    at = rows[-1].at + HOUR if rows else first + HOUR
    end = max([at, *(row.ve for row in rows if row.ve is not None)]) + SILENCE
    return [News(first, "", BEGINNING, BEGINNING), *rows, News(at, "", end, end)]


def write_log(folder: Path, days: Days) -> Path:
    """Return the log of ``days`` in ``folder``. It is written if missing. Raises UsageError without the raw table."""
    path = folder / f"news-{days.first:%Y%m%d}-{days.last:%Y%m%d}.arrow"
    if not path.exists():
        import pyarrow as pa

        table = _table(all_news(read_flights(days), days))
        handle, name = tempfile.mkstemp(dir=folder, prefix=".news-")
        with os.fdopen(handle, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, ROWS_PER_BATCH)
        Path(name).rename(path)
    return path


def read_log(path: str | Path) -> Any:
    """Return the log as an Arrow table that stays in the file."""
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def final_watermark(log: Any) -> int:
    """Return the watermark after the last row: a batch that ran with it has published everything."""
    return int(log.column("vs")[-1].value) - WATERMARK_DELAY


def _table(rows: Sequence[News]) -> Any:
    import pyarrow as pa

    moment = pa.timestamp("us", "UTC")
    types = {"at": moment, "flight": pa.string(), "vs": moment, "ve": moment}
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(types.items(), columns, strict=True)})
