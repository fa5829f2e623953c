"""What `helm test` runs: two replicas publish one stream, one of them is killed, and the merged stream is judged.

    LMERGE_SERVERS=h1:7171,h2:7171 python stream_test.py MERGE

The truth is a list of events that both replicas compute from the time at which the test began. The judge compares what
a subscriber has read with that list, and uses no code of the merge. Exit code 0: every event once, no other event.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Final

import lmerge
from lmerge.core.elements import Adjust, Insert

EVENTS: Final = int(os.environ.get("LMERGE_TEST_EVENTS", "200"))
STEP_US: Final = 10_000
LIFE_US: Final = 50_000
STABLE_EVERY: Final = 5
KILLED_AT: Final = EVENTS // 2
LIMIT_S: Final = 60.0 + EVENTS * STEP_US / 1e6
Event = tuple[bytes, int, int]


def truth(began_us: int) -> list[Event]:
    """Return the events: payload, start and end in microseconds."""
    starts = (began_us + number * STEP_US for number in range(EVENTS))
    return [(f"event {number}".encode(), start, start + LIFE_US) for number, start in enumerate(starts)]


def publish(servers: str, merge: str, replica: str, began_us: int) -> None:
    """Publish the events at their pace; the replica b in reverse order between two stables, and with a revision."""
    security = lmerge.Security.from_environment()
    events = truth(began_us)
    with lmerge.Publisher(servers, merge, replica, security=security) as publisher:
        for first in range(0, EVENTS, STABLE_EVERY):
            group = events[first : first + STABLE_EVERY]
            time.sleep(max(0.0, (group[-1][1] - began_us) / 1e6 - (time.time() - began_us / 1e6)))
            for payload, start, end in group if replica == "a" else reversed(group):
                if replica == "a":
                    publisher.insert(payload, start, end)
                else:
                    publisher.insert(payload, start, end + STEP_US)
                    publisher.adjust(payload, start, end + STEP_US, end)
            publisher.stable(group[-1][1] + 1)
            publisher.flush()
        publisher.stable(events[-1][2] + 1)


def read(servers: str, merge: str, began_us: int, first: subprocess.Popen[bytes]) -> Counter[Event]:
    """Read until all is final, and kill the replica ``first`` on the way. Return how often each event is there."""
    seen: Counter[Event] = Counter()
    events = truth(began_us)
    kill_at_us, until_us = events[KILLED_AT][1], events[-1][2] + 1
    security = lmerge.Security.from_environment()
    # The token asks for every event that ends after the beginning, however late this reader connects.
    for element in lmerge.Subscriber(servers, merge, resume=f"{merge}@{began_us}", security=security):
        if isinstance(element, Insert):
            seen[element.payload, element.vs, element.ve] += 1
        elif isinstance(element, Adjust):
            seen[element.payload, element.vs, element.vold] -= 1
            if element.ve > element.vs:  # otherwise the event is deleted
                seen[element.payload, element.vs, element.ve] += 1
        elif element.vc >= until_us:
            break
        elif element.vc > kill_at_us and first.poll() is None:
            first.send_signal(signal.SIGKILL)
            first.wait()
            print(f"replica a is killed at {(element.vc - began_us) / 1e6:.2f} s of the stream", flush=True)
    return Counter({event: count for event, count in seen.items() if count and event[1] >= began_us})


def verdict(seen: Counter[Event], began_us: int) -> str | None:
    """Return what is wrong with the events that were read; None if nothing is."""
    expected = Counter(truth(began_us))
    lost, more = expected - seen, seen - expected
    if lost or more:
        first = min([*lost, *more], key=lambda event: event[1])
        return f"{lost.total()} events are lost and {more.total()} are too many; the first is {first}"
    return None


def main(merge: str) -> int:
    """Run the test in a merge; return the exit code."""
    servers = os.environ["LMERGE_SERVERS"]
    began_us = int(time.time() * 1e6)
    processes = [subprocess.Popen([sys.executable, __file__, merge, replica, str(began_us)]) for replica in ("a", "b")]
    signal.alarm(int(LIMIT_S))  # a stream that stops ends the test
    try:
        seen = read(servers, merge, began_us, processes[0])
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    problem = verdict(seen, began_us)
    print(problem or f"passed: {EVENTS} events, each once, while one of two replicas was killed", flush=True)
    return 1 if problem else 0


if __name__ == "__main__":
    if len(sys.argv) == 4:
        publish(os.environ["LMERGE_SERVERS"], sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1]))
