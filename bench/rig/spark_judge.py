"""The judge of the merged stream of Spark replicas, in a process: ``python -m bench.rig.spark_judge PIPE``.

These streams do not end. At any time the frozen events must be exactly those that end before the stable point. The
process receives (servers, merge, reference, epoch) over the pipe. It answers ("at",) with the stable point, and
("verdict",) with the verdict on the output up to then.
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
    """Judges the events that are frozen up to now."""

    def verdict_now(self) -> StreamVerdict:
        """Return the verdict: every event that ends before the stable point must be frozen once, and nothing else."""
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


def run(pipe: Connection) -> None:
    """Run the process."""
    servers, merge, reference, epoch_s = pipe.recv()
    subscriber = AsyncSubscriber(servers, merge, name="judge", wait_for_merge=True)
    asyncio.run(_read(TableJudge(reference), subscriber, epoch_s, pipe))


async def _read(judge: TableJudge, subscriber: AsyncSubscriber, epoch_s: float, pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    reading = asyncio.current_task()
    assert reading is not None

    def receive() -> None:
        try:
            (kind,) = pipe.recv()
        except (EOFError, OSError):
            reading.cancel()  # the benchmark has ended
            return
        if kind == "at":
            pipe.send(("at", judge.stable_point))
            return
        verdict = judge.verdict_now()
        verdict.gaps, verdict.reconnects = len(subscriber.gaps), subscriber.reconnects
        pipe.send(("verdict", verdict))
        reading.cancel()

    loop.add_reader(pipe.fileno(), receive)
    with contextlib.suppress(asyncio.CancelledError):
        async for batch in subscriber.batches():
            judge.take(batch, time.monotonic(), epoch_s)


if __name__ == "__main__":
    run(Connection(int(sys.argv[1])))
