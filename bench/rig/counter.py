"""A process that reads a merge and counts: ``python -m bench.rig.counter SERVERS MERGE INSERTS``.

It prints ``ready``. When it has INSERTS inserts, it prints the number of elements and the time.
"""

from __future__ import annotations

import json
import sys
import time

from lmerge.client import Subscriber


def main(servers: str, merge: str, inserts: int) -> None:
    with Subscriber(servers, merge, name="counter", wait_for_merge=True) as subscriber:
        print("ready", flush=True)
        seen = elements = 0
        for batch in subscriber.batches():
            seen += batch.counts(batch.count)[0]
            elements += batch.count
            if seen >= inserts:
                break
        print(json.dumps({"ended": time.time(), "inserts": seen, "elements": elements}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
