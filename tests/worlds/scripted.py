"""A subscriber with a script instead of a server: every stream that a merge may emit, from any token, at any pace.

As a program it is a sink in a process of its own, to be killed: ``python scripted.py parquet|postgres TARGET SEED``. It
asks on its output before each batch, and waits for a line on its input; when that ends it goes on to its end by itself.
So how far it is when it is killed does not depend on the speed of the machine.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random

from client_world import until

from lmerge.client.sinks import SinkProgress, SinkSubscriber
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.core.batch import Batch
from lmerge.core.elements import NEG_INF, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.testing.streams.merge_inputs import MIXED, present, reference
from lmerge.wire.schema import Schema
from lmerge.wire.token import parse_token

MERGE = "flights"
PROCESS_EVENTS = 800
PROCESS_SERVERS = 3
ASK = "?\n"  # before each batch
GO = "go\n"
MORE_MAX = 3  # batches that a process may take on its way to its end


class Scripted:
    """Plays ``elements`` in batches cut by ``random``. ``before_batch`` is awaited before each."""

    def __init__(
        self,
        elements: Sequence[Element],
        *,
        schema: Schema | None = None,
        gaps: Sequence[SubscriptionGap] = (),
        random: Random | None = None,
        before_batch: Callable[[int], object] | None = None,
    ) -> None:
        self.schema = schema
        self.gaps = list(gaps)
        self.epoch: int | None = 0
        self._elements = elements
        self._random = random or Random(1)
        self._before_batch = before_batch
        self._open = True

    async def batches(self) -> AsyncIterator[Batch]:
        at = number = 0
        while at < len(self._elements) and self._open:
            size = self._random.randint(1, 40)
            await asyncio.sleep(0.001)  # time for a transaction or two
            if self._before_batch is not None:
                awaited = self._before_batch(number)
                if asyncio.iscoroutine(awaited):
                    await awaited
            yield Batch.of(self._elements[at : at + size])
            at += size
            number += 1

    def close(self) -> None:
        self._open = False


def resumed(elements: Sequence[Element], since: int, random: Random) -> list[Element]:
    """Return what a server sends to a reader that resumes: a snapshot of a time up to ``since``, then the rest."""
    starts = [at for at, e in enumerate(elements) if isinstance(e, Stable) and e.vc <= since]
    if not starts:
        return list(elements)
    start = random.choice(starts[-5:])
    table = Tdb()
    for element in elements[: start + 1]:
        table.apply(element)
    snapshot: list[Element] = [Insert(payload, vs, ve) for vs, payload, ve in table.live_events()]
    return [*snapshot, *elements[start:]]


def world(seed: int, count: int = PROCESS_EVENTS) -> tuple[list[Event], list[list[Element]]]:
    """Return a TDB with duplicates and the streams of several servers."""
    random = Random(seed)
    events = reference(random, count, duplicates=True)
    return events, [present(random, events, replace(MIXED, invented=0.2)) for _ in range(PROCESS_SERVERS)]


def subscribing(
    servers: list[list[Element]], random: Random, before_batch: Callable[[int], object] | None = None
) -> Callable[[str | None], SinkSubscriber]:
    """Return a function that subscribes to any of the servers."""

    def subscribe(token: str | None) -> SinkSubscriber:
        since = NEG_INF if token is None else parse_token(token, MERGE)
        return Scripted(resumed(random.choice(servers), since, random), random=random, before_batch=before_batch)

    return subscribe


def kill_often(
    kind: str,
    target: str,
    seed: int,
    kills: int,
    *,
    lines: tuple[int, int],
    within_s: float,
    is_done: Callable[[], bool] = lambda: False,
) -> int:
    """Run the sink in processes that are killed, then one to its end. Return how many were killed before.

    Each is killed up to ``within_s`` seconds after it has committed a number of times between ``lines``, and has been
    given up to ``MORE_MAX`` batches more. ``is_done``: whether the sink has come to its end already.
    """
    random, killed = Random(seed), 0
    command = [sys.executable, __file__, kind, target, str(seed)]
    for _ in range(kills):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        commits_before, committed = random.randint(*lines), 0
        for line in process.stdout:
            committed += line != ASK
            if line == ASK:
                more = 1 if committed < commits_before else random.randint(0, MORE_MAX)
                process.stdin.write(GO * more)
                process.stdin.flush()
                if committed >= commits_before:
                    break
        with suppress(subprocess.TimeoutExpired):
            process.wait(random.random() * within_s)
        killed += process.poll() is None
        process.kill()
        process.communicate()
        if is_done():
            return killed
    subprocess.run(command, check=True, timeout=120, capture_output=True, stdin=subprocess.DEVNULL)
    return killed


def print_progress(progress: SinkProgress) -> None:
    """Print the progress, for the killer to count."""
    sys.stdout.write(f"{progress.token}\n")
    sys.stdout.flush()


async def ask(_number: int) -> None:
    """Ask the killer for leave to take another batch."""
    sys.stdout.write(ASK)
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


def main(kind: str, target: str, seed: int) -> None:
    """Run a sink to the end of the stream."""
    _, servers = world(seed)
    if kind == "postgres":
        from lmerge.client.sinks.postgres import PostgresSink

        sink = PostgresSink(target, "flights", MERGE, on_progress=print_progress)

        async def ask_when_written(number: int) -> None:
            """Have one transaction for each stable point, however slow the database is: so many can be counted."""
            await until(lambda: sink._pending.token is None)
            await ask(number)

        asyncio.run(sink.run(subscribing(servers, Random(), ask_when_written)))
    else:
        from lmerge.client.sinks.parquet import ParquetSink

        parquet = ParquetSink(target, MERGE, file_events_max=100, on_progress=print_progress)
        asyncio.run(parquet.run(subscribing(servers, Random(), ask)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
