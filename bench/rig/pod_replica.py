"""A replica of a ReplicatedQuery that publishes the probe stream of `lmerge drill`: ``python -c TEXT TRUTH``.

The image has no benchmarks. So the text of this module is in the command of the query, and uses what the image has: the
drill's publisher. It gets its orders here as it gets them in a drill: one line on standard input, which stays open.
TRUTH: the fields of ``ProbeTruth`` as JSON. What to publish to comes from the environment, as for every replica.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import asdict

from lmerge.client import Security
from lmerge_controller.drill.probe import replica
from lmerge_controller.drill.probe.replica import ReplicaOrders

DEAD = 137


def orders(truth: dict[str, int]) -> ReplicaOrders:
    """Return what this replica publishes. Each process has another physical form of the same events."""
    security = Security.from_environment()
    return ReplicaOrders(
        os.environ["LMERGE_REPLICA"],
        os.environ["LMERGE_SERVERS"],
        os.environ["LMERGE_MERGE"],
        salt=time.time_ns() & 0xFFFF_FFFF,
        role=os.environ["LMERGE_ROLE"],
        joins=True,
        truth=truth,
        security=None if security is None else asdict(security),
    )


def main() -> None:
    """Publish until the process is killed."""
    # The first process of a container ignores signals that it does not handle. It dies at once, as by SIGKILL.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(DEAD))
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.write(writing, json.dumps(asdict(orders(json.loads(sys.argv[-1])))).encode() + b"\n")
    asyncio.run(replica.run())


if __name__ == "__main__":
    main()
