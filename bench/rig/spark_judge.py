"""The judge of what Spark replicas publish, in a process of its own: ``python -m bench.rig.spark_judge PIPE``.

These streams do not end: at any moment, what is frozen must be just the events that end before the stable point. The
pipe brings (servers, merge, reference, epoch); then ("at",) is answered with the stable point, and ("verdict",) with
the verdict of what came up to then.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from multiprocessing.connection import Connection

from bench.rig.judge import StreamJudge, StreamVerdict
from lmerge.client import AsyncSubscriber
from lmerge.core.elements import NEG_INF


class TableJudge(StreamJudge):
    """Judges what has been frozen up to now."""

    def verdict_now(self) -> StreamVerdict:
        """Every event that ends before the stable point must have been frozen once, and nothing else."""
        found, stable = self.found, self.stable_point
        if stable == NEG_INF:
            return found
        candidates = range(self.reference.number(stable))
        due = [at for at in candidates if self.reference.event(at)[1] < stable]
        times = [self.seen[at] if at < len(self.seen) else 0 for at in due]
        found.expected, found.lost = len(due), times.count(0)
        found.duplicates = sum(times) - (len(due) - found.lost)
        found.unexpected += sum(self.seen) - sum(times)
        if found.lost:
            self._example(f"the first that is lost is event {due[times.index(0)]}")
        return found


def run(told: Connection) -> None:
    """The process."""
    servers, merge, reference, epoch_s = told.recv()
    subscriber = AsyncSubscriber(servers, merge, name="judge", wait_for_merge=True)
    asyncio.run(_read(TableJudge(reference), subscriber, epoch_s, told))


async def _read(judge: TableJudge, subscriber: AsyncSubscriber, epoch_s: float, told: Connection) -> None:
    loop = asyncio.get_running_loop()
    reading = asyncio.current_task()
    assert reading is not None

    def listen() -> None:
        try:
            (word,) = told.recv()
        except (EOFError, OSError):
            reading.cancel()  # the benchmark has gone
            return
        if word == "at":
            told.send(("at", judge.stable_point))
            return
        verdict = judge.verdict_now()
        verdict.gaps, verdict.reconnects = len(subscriber.gaps), subscriber.reconnects
        told.send(("verdict", verdict))
        reading.cancel()

    loop.add_reader(told.fileno(), listen)
    with contextlib.suppress(asyncio.CancelledError):
        async for batch in subscriber.batches():
            judge.take(batch, time.monotonic(), epoch_s)


if __name__ == "__main__":
    run(Connection(int(sys.argv[1])))
