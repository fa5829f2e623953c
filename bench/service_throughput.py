"""How many elements a second does a server take in, with 3 publisher processes and 1 subscriber on loopback?

100-byte payloads, 1 % stables, R3, everything on one machine of 2 cores: 5 processes share them. Counted: elements
merged, from the word "go" until the subscriber has the last one. Target: 150,000 elements/s in total.
"""

from __future__ import annotations

import json
import time

from bench.harness import begin
from bench.load import server, start

EVENTS = 200_000
REPEATS = 3


def once() -> float:
    """Elements/s."""
    with server() as target:
        reader = start("subscribe", target, "count")
        publishers = [start("flat-out", target, name, EVENTS, 100) for name in "abc"]
        for process in (reader, *publishers):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        began = time.time()
        for process in publishers:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert reader.stdout is not None
        told = json.loads(reader.stdout.readline())
        for process in (reader, *publishers):
            assert process.wait() == 0
        events = EVENTS + EVENTS // 100 + 1
        assert told["elements"] >= events, told["elements"]
        return 3 * events / (told["ended"] - began)


def main() -> None:
    report = begin((__doc__ or "").splitlines()[0])
    row = report.add("3 publishers, 1 subscriber, 100-byte payloads", [once() for _ in range(REPEATS)], "elements/s")
    report.note(f"target 150,000 elements/s: {'reached' if row.median >= 150_000 else 'MISSED'} ({row.median:,.0f})")
    report.save("service_throughput")


if __name__ == "__main__":
    main()
