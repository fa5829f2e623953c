"""A replica in a process of its own: an event and a stable every 20 ms, the same ones in every process.

    python paced_replica_app.py SERVERS MERGE NAME EPOCH_S [--from TICK] [--bytes N] [--wrong-every N]

``EPOCH_S``: the wall time of tick 0. A replica that starts later first publishes all ticks since ``--from``, so it
joins at once. ``--wrong-every``: every so many ticks the payload is another one, as from a query that is not
deterministic. The time of the stream is in microseconds.
"""

from __future__ import annotations

import argparse
import time

import lmerge

TICK_US = 20_000
LIFETIME_US = 5 * TICK_US


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("servers", "merge", "name"):
        parser.add_argument(name)
    parser.add_argument("epoch_s", type=float)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--wrong-every", type=int, default=0)
    given = parser.parse_args()
    origin = lmerge.Origin(join_at=given.first * TICK_US) if given.first else lmerge.Origin()
    with lmerge.Publisher(given.servers, given.merge, given.name, properties=["key"], origin=origin) as publisher:
        tick = given.first
        while True:
            due_s = given.epoch_s + tick * TICK_US / 1e6
            while time.time() < due_s:
                time.sleep(0.005)
            kind = "wrong" if given.wrong_every and tick % given.wrong_every == 0 else "right"
            at = tick * TICK_US
            publisher.insert(f"{kind}-{tick}".ljust(given.bytes, "."), vs=at, ve=at + LIFETIME_US)
            publisher.stable(at)
            tick += 1


if __name__ == "__main__":
    main()
