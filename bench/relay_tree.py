"""What does each level of a tree of relays add to the latency, and how many readers does a tree of three levels reach?

A tree: the root merges two replicas; below each server stand two more, each fed by a relay. Real processes, loopback, 2
cores shared by all of them. 100-byte payloads at 1,000 elements/s for each replica, open loop. One reader at each level
measures the age of every element, from when it was due to when the reader has it, and counts them: a tree that loses or
repeats one is no tree. From the CPU seconds of a relay and of a server with its readers follows how many servers a
million readers need.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from bench.harness import Panel, begin, bench_parser, plot
from bench.load import let_begin, result_of, server, start, wait_until_ready

LEVELS = 3
FANOUT = 2
PER_S = 1_000
SECONDS = 10
WARM_S = 2
PAYLOAD_BYTES = 100
REPEATS = 3
READERS = 1_000_000


@contextmanager
def relay(source: str, target: str, name: str) -> Iterator[psutil.Process]:
    """Run a relay process from ``source`` to ``target``."""
    command = ["relay", "--from", source, "--merge", "bench", "--to", target, "--as", name, "--property", "key"]
    process = subprocess.Popen([sys.executable, "-m", "lmerge", *command], stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def grown(stack: ExitStack) -> tuple[list[list[str]], list[psutil.Process]]:
    """Start a tree. Return the addresses of its servers, by level, and its relays."""
    levels = [[stack.enter_context(server())]]
    relays = []
    for level in range(1, LEVELS + 1):
        below = []
        # Every server of a level but the first has no servers below it: the machine has two cores.
        for at in range(FANOUT):
            below.append(stack.enter_context(server()))
            relays.append(stack.enter_context(relay(levels[-1][0], below[-1], f"relay-{level}-{at}")))
        levels.append(below)
    return levels, relays


def once() -> tuple[list[dict[str, float]], float]:
    """Return the latencies of a reader of each level in ms, and the CPU seconds of a relay for each second."""
    count = PER_S * SECONDS
    with ExitStack() as stack:
        levels, relays = grown(stack)
        readers = [start("subscribe", servers[-1], "latency", PER_S * WARM_S) for servers in levels]
        publishers = [start("paced", levels[0][0], name, count, PAYLOAD_BYTES, PER_S, 0.0) for name in "ab"]
        wait_until_ready((*readers, *publishers))
        let_begin(publishers, str(time.time() + 1.0))
        found = [result_of(reader) for reader in readers]
        cpu_s = max(sum(process.cpu_times()[:2]) for process in relays)
        for process in (*readers, *publishers):
            assert process.wait() == 0
    inserts = {int(one["elements"]) for one in found}
    assert min(inserts) >= count, f"a reader got {min(inserts)} elements of {count} events"
    return found, cpu_s / SECONDS


def servers_for(readers: int, fanout: int) -> list[int]:
    """Return the servers of each level, root first, so that no server has more than ``fanout`` readers or relays."""
    levels = [math.ceil(readers / fanout)]
    while levels[0] > 1:
        levels.insert(0, math.ceil(levels[0] / fanout))
    return levels


def main() -> None:
    parser = bench_parser(__doc__, "relay_tree", "once")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    report = begin((__doc__ or "").splitlines()[0])
    runs = [once() for _ in range(1 if options.quick else options.repeats)]
    panels = {part: Panel(f"{part} of the age", "level of the tree", "ms") for part in ("p50", "p99")}
    for level in range(LEVELS + 1):
        for part, panel in panels.items():
            row = report.add(f"level {level}: {part}", [found[level][part] for found, _ in runs], "ms")
            panel.add("reader", level, row)
    report.add("CPU of a relay", [100 * cpu for _, cpu in runs], "% of a core")
    for fanout in (50, 100, 200):
        levels = servers_for(READERS, fanout)
        report.note(f"{READERS:,} readers, {fanout} for each server: {sum(levels):,} servers, by level {levels}")
    if options.quick:
        return
    report.save("relay_tree")
    plot("relay_tree", "Age of an element at each level of a tree of relays, loopback, 2 cores", list(panels.values()))


if __name__ == "__main__":
    main()
