"""A replica with a known truth: event k is ``e<k>`` with the lifetime [k, k + 3). A process of `lmerge up`, or a pod.

It works by its environment alone: LMERGE_SERVERS, LMERGE_MERGE, LMERGE_REPLICA, LMERGE_ROLE and LMERGE_STARTED.
TICKS_S: events in a second. END_FILE: the stream ends before the event that this file names, once it is there.
LIES_FROM: payloads are wrong from this event on.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from lmerge.client import Origin, Publisher, Security, describe_merge
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError

LENGTH = 3
SECURITY = Security.from_environment()


def events(end: int) -> set[tuple[int, int, bytes]]:
    """Return the truth: start, end and payload of every event."""
    return {(k, k + LENGTH, b"e%d" % k) for k in range(end)}


def main() -> int:
    servers, merge = os.environ["LMERGE_SERVERS"], os.environ["LMERGE_MERGE"]
    started_s, rate = float(os.environ["LMERGE_STARTED"]), float(os.environ["TICKS_S"])
    pace = threading.Event()  # never set
    lies_from = int(os.environ.get("LIES_FROM", INF))
    merged_to = min(stable_point(server, merge) for server in servers.split(","))
    origin = Origin(join_at=None if merged_to == NEG_INF else merged_to)
    replica, role = os.environ["LMERGE_REPLICA"], os.environ["LMERGE_ROLE"]
    laws = ["insert-only", "key"]
    with Publisher(servers, merge, replica, role=role, properties=laws, origin=origin, security=SECURITY) as publisher:
        k = 0 if merged_to == NEG_INF else max(merged_to - LENGTH, 0)
        while k < (end := end_of(Path(os.environ["END_FILE"]))):
            now = min(int((time.time() - started_s) * rate), end)
            for event in range(k, now):
                publisher.insert(b"e%d" % event if event < lies_from else b"x%d" % event, event, event + LENGTH)
            if now > k:
                k = now
                publisher.stable(max(now, merged_to))
            pace.wait(1 / rate)
        publisher.stable(INF)
        publisher.flush()
    return 0


def end_of(file: Path) -> int:
    """Return the event before which the stream ends."""
    return int(file.read_text()) if file.exists() else INF


def stable_point(server: str, merge: str) -> int:
    """Return how far the merge is on a server; -inf if it is not there."""
    try:
        return int(describe_merge(server, merge, security=SECURITY).summary.stable_point)
    except LmergeError:
        return NEG_INF


if __name__ == "__main__":
    sys.exit(main())
